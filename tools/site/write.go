package main

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed assets
var assets embed.FS

var frame = template.Must(template.ParseFS(assets, "assets/page.html"))

// view is what the frame of a page shows.
type view struct {
	*page
	Version string
	// Base leads from the page to the folder of the version.
	Base   string
	Groups []menu
	HTML   template.HTML
}

// menu is a section of the navigation as a page shows it.
type menu struct {
	Title string
	Open  bool // the page is in it
	Pages []entry
}

type entry struct {
	Title, Link string
	Here        bool
}

// write writes a version of the site in place of the one that is there.
func (s *site) write(target, version string) error {
	if err := os.RemoveAll(target); err != nil {
		return err
	}
	for _, name := range s.order {
		p := s.pages[name]
		v := view{page: p, Version: version, Base: relative(p.URL, ""), Groups: s.menus(p), HTML: template.HTML(p.Body)}
		var b strings.Builder
		if err := frame.Execute(&b, v); err != nil {
			return fmt.Errorf("write %s: %w", p.URL, err)
		}
		if err := put(target, p.URL, []byte(b.String())); err != nil {
			return err
		}
	}
	return s.writeFiles(target)
}

// writeFiles writes what the pages refer to.
func (s *site) writeFiles(target string) error {
	for _, name := range s.files {
		raw, err := fs.ReadFile(s.fsys, name)
		if err != nil {
			return err
		}
		if err := put(target, name, raw); err != nil {
			return err
		}
	}
	for _, name := range []string{"style.css", "site.js", "search.js"} {
		raw, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		if err := put(target, name, raw); err != nil {
			return err
		}
	}
	index, err := json.Marshal(s.index())
	if err != nil {
		return err
	}
	// A script and no JSON file: browsers refuse to fetch files from a page that they read from a disk.
	return put(target, "search-index.js", fmt.Appendf(nil, "const searchIndex = %s;\n", index))
}

// record is a part as the search has it.
type record struct {
	Page    string `json:"page"`
	Heading string `json:"heading"`
	URL     string `json:"url"`
	Text    string `json:"text"`
}

// index returns what the search knows: each part of each Markdown page.
func (s *site) index() []record {
	all := []record{}
	for _, name := range s.order {
		p := s.pages[name]
		for _, part := range p.Parts {
			url := p.URL
			if part.Anchor != "" {
				url += "#" + part.Anchor
			}
			all = append(all, record{Page: p.Title, Heading: part.Heading, URL: url, Text: part.Text})
		}
	}
	return all
}

// menus returns the navigation as a page shows it.
func (s *site) menus(p *page) []menu {
	all := make([]menu, 0, len(s.groups))
	for _, g := range s.groups {
		m := menu{Title: g.Title}
		for _, f := range g.Pages {
			other := s.pages[f]
			m.Pages = append(m.Pages, entry{Title: other.Title, Link: relative(p.URL, other.URL), Here: other == p})
			m.Open = m.Open || other == p
		}
		all = append(all, m)
	}
	all[0].Open = true
	return all
}

// writeVersions lists the versions that the site has, newest first, and makes its first page lead to the newest.
func writeVersions(out string) error {
	indexes, err := filepath.Glob(filepath.Join(out, "*", "search-index.js"))
	if err != nil {
		return err
	}
	versions := make([]string, 0, len(indexes))
	for _, index := range indexes {
		versions = append(versions, filepath.Base(filepath.Dir(index)))
	}
	slices.SortFunc(versions, newer)
	list, err := json.Marshal(versions)
	if err != nil {
		return err
	}
	if err := put(out, "versions.js", fmt.Appendf(nil, "const siteVersions = %s;\n", list)); err != nil {
		return err
	}
	first := escape(versions[0])
	return put(out, "index.html", fmt.Appendf(nil,
		"<!doctype html>\n<meta charset=\"utf-8\">\n<title>Tandem</title>\n<meta http-equiv=\"refresh\" content=\"0; url=%s/index.html\">\n<a href=\"%s/index.html\">Tandem %s</a>\n",
		first, first, first))
}

// put writes a file and the folders above it.
func put(dir, name string, raw []byte) error {
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o644)
}
