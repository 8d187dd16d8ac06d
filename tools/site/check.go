package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// links is what the check of a site found.
type links struct {
	Pages, Internal int
	Broken          []string // a line for each, with the page that has it
	External        []string // addresses outside of the site, each once
}

// hosts lists the places outside of the site to which pages may link. A new one is added on purpose: an address that is
// not meant, such as one of the machine on which a page was written, fails the check.
var hosts = []string{
	"arxiv.org", "docs.nvidia.com", "github.com", "kubernetes.io", "kueue.sigs.k8s.io", "www.usenix.org", "doi.org", "dl.acm.org",
	"jfly.uni-koeln.de", "project-hami.io", "volcano.sh", "karpenter.sh", "helm.sh", "krew.sigs.k8s.io", "developer.nvidia.com", "blogs.nvidia.com",
}

// a target is one link of a page, or one file that it loads.
type target struct {
	page, link string
	loads      bool // the browser fetches it by itself
}

// document is what the check reads of a page.
type document struct {
	anchors map[string]bool
	targets []target
}

// check reads all pages of a version's folder and follows their links.
func check(fsys fs.FS) (links, error) {
	documents := map[string]*document{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".html" {
			return err
		}
		documents[name], err = parse(fsys, name)
		return err
	})
	if err != nil {
		return links{}, err
	}
	c := &checker{fsys: fsys, documents: documents}
	c.Pages = len(documents)
	for _, d := range documents {
		for _, t := range d.targets {
			if problem := c.follow(t); problem != "" {
				c.Broken = append(c.Broken, fmt.Sprintf("%s: %s: %s", t.page, t.link, problem))
			}
		}
	}
	slices.Sort(c.Broken)
	slices.Sort(c.External)
	c.External = slices.Compact(c.External)
	return c.links, nil
}

type checker struct {
	links
	fsys      fs.FS
	documents map[string]*document
}

// follow says what is wrong with a link, "" for nothing.
func (c *checker) follow(t target) string {
	u, err := url.Parse(t.link)
	if err != nil {
		return err.Error()
	}
	if u.Scheme != "" || u.Host != "" {
		return c.leaves(t, u)
	}
	if strings.HasPrefix(u.Path, "/") {
		return "the link begins at the root of the server, where the site need not be"
	}
	c.Internal++
	name := t.page
	if u.Path != "" {
		name = path.Join(path.Dir(t.page), u.Path)
	}
	if name == "../versions.js" {
		return "" // the list of versions is beside the versions
	}
	if strings.HasPrefix(name, "..") {
		return "the link leads out of the site"
	}
	if info, err := fs.Stat(c.fsys, name); err != nil || info.IsDir() {
		return "there is no such file"
	}
	if u.Fragment != "" && (c.documents[name] == nil || !c.documents[name].anchors[u.Fragment]) {
		return "the page has no such heading"
	}
	return ""
}

// leaves says what is wrong with a link that leads out of the site.
func (c *checker) leaves(t target, u *url.URL) string {
	switch {
	case t.loads:
		return "the page loads something from outside of the site"
	case u.Scheme != "https":
		return "a link out of the site begins with https://"
	case !slices.Contains(hosts, u.Host):
		return "hosts in tools/site/check.go does not have " + u.Host
	}
	c.External = append(c.External, t.link)
	return ""
}

// parse reads the anchors and links of a page.
func parse(fsys fs.FS, name string) (*document, error) {
	file, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	root, err := html.Parse(file)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	d := &document{anchors: map[string]bool{}}
	for n := range root.Descendants() {
		for _, a := range n.Attr {
			switch {
			case a.Key == "id", a.Key == "name" && n.Data == "a":
				d.anchors[a.Val] = true
			case a.Key == "href" || a.Key == "src":
				d.targets = append(d.targets, target{page: name, link: a.Val, loads: n.Data != "a"})
			}
		}
	}
	return d, nil
}
