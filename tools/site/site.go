package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// A site is the documentation of one version.
type site struct {
	fsys   fs.FS
	groups []group
	pages  map[string]*page // by the path of the file or folder in the repository
	// order lists the keys of pages in the order in which they were found: first those of the groups.
	order []string
	files []string // files that the site has as they are: pictures
}

// A page is one HTML file of the site.
type page struct {
	Source string // the path of the file or folder in the repository
	URL    string // relative to the version's folder
	Title  string
	Body   string // HTML
	Parts  []part // what the search finds
}

// A part is what stands under one heading.
type part struct {
	Heading, Anchor, Text string
}

// read makes pages of all Markdown files, and of the files and folders to which they link.
func read(fsys fs.FS) (*site, error) {
	arranged, err := arrange(fsys, groups)
	if err != nil {
		return nil, err
	}
	s := &site{fsys: fsys, groups: arranged, pages: map[string]*page{}}
	for _, g := range arranged {
		for _, f := range g.Pages {
			s.add(&page{Source: f, URL: urlOf(f)})
		}
	}
	for i := 0; i < len(s.order); i++ { // links add pages
		p := s.pages[s.order[i]]
		if err := s.fill(p); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Source, err)
		}
	}
	return s, nil
}

func (s *site) add(p *page) *page {
	s.pages[p.Source] = p
	s.order = append(s.order, p.Source)
	return p
}

// urlOf returns the place of a Markdown file in the site.
func urlOf(file string) string {
	if file == "README.md" {
		return "index.html"
	}
	return strings.TrimSuffix(strings.TrimPrefix(file, "docs/"), ".md") + ".html"
}

// fill writes a page's HTML.
func (s *site) fill(p *page) error {
	if p.Body != "" { // a file or folder that a page links to
		return nil
	}
	source, err := fs.ReadFile(s.fsys, p.Source)
	if err != nil {
		return err
	}
	md := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough), goldmark.WithParserOptions(parser.WithAutoHeadingID()),
		goldmark.WithRendererOptions(html.WithUnsafe())) // the repository's own pages have anchors in HTML
	doc := md.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(&anchors{}))))
	if err := s.retarget(p, doc); err != nil {
		return err
	}
	p.Title, p.Parts = parts(doc, source)
	if p.Title == "" {
		return fmt.Errorf("the page has no heading of the first level, which would be its title")
	}
	var b bytes.Buffer
	if err := md.Renderer().Render(&b, source, doc); err != nil {
		return err
	}
	p.Body = b.String()
	return nil
}

// retarget makes the links of a page lead to pages of the site.
func (s *site) retarget(p *page, doc ast.Node) error {
	return ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var err error
		switch n := n.(type) {
		case *ast.Link:
			n.Destination, err = s.destination(p, n.Destination)
		case *ast.Image:
			n.Destination, err = s.destination(p, n.Destination)
		}
		return ast.WalkContinue, err
	})
}

// destination returns where a link of a page leads in the site.
func (s *site) destination(p *page, raw []byte) ([]byte, error) {
	link := string(raw)
	if strings.Contains(link, "://") || strings.HasPrefix(link, "#") || strings.HasPrefix(link, "mailto:") {
		return raw, nil
	}
	file, anchor, _ := strings.Cut(link, "#")
	name := path.Join(path.Dir(p.Source), file)
	url, err := s.urlFor(name)
	if err != nil {
		return nil, fmt.Errorf("link %q: %w", link, err)
	}
	if anchor != "" {
		url += "#" + anchor
	}
	return []byte(relative(p.URL, url)), nil
}

// urlFor returns the place of a file or folder of the repository in the site, and puts it there if need be.
func (s *site) urlFor(name string) (string, error) {
	if p, ok := s.pages[name]; ok {
		return p.URL, nil
	}
	info, err := fs.Stat(s.fsys, name)
	if err != nil {
		return "", fmt.Errorf("the repository has no such file: %w", err)
	}
	switch {
	case info.IsDir():
		return s.folder(name)
	case slices.Contains([]string{".png", ".svg"}, path.Ext(name)):
		if !slices.Contains(s.files, name) {
			s.files = append(s.files, name)
		}
		return name, nil
	}
	source, err := fs.ReadFile(s.fsys, name)
	if err != nil {
		return "", err
	}
	body := fmt.Sprintf("<h1>%s</h1>\n<pre><code>%s</code></pre>\n", escape(name), escape(string(source)))
	return s.add(&page{Source: name, URL: "files/" + name + ".html", Title: name, Body: body}).URL, nil
}

// folder adds a page that lists the files of a folder.
func (s *site) folder(name string) (string, error) {
	entries, err := fs.ReadDir(s.fsys, name)
	if err != nil {
		return "", err
	}
	p := s.add(&page{Source: name, URL: "files/" + name + "/index.html", Title: name})
	var b strings.Builder
	fmt.Fprintf(&b, "<h1>%s</h1>\n<ul>\n", escape(name))
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		url, err := s.urlFor(path.Join(name, e.Name()))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "<li><a href=\"%s\">%s</a></li>\n", escape(relative(p.URL, url)), escape(e.Name()))
	}
	p.Body = b.String() + "</ul>\n"
	return p.URL, nil
}

// relative returns the link from one page to another place in the version's folder.
func relative(from, to string) string {
	return strings.Repeat("../", strings.Count(from, "/")) + to
}
