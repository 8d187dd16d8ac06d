// Command site builds the documentation site from the Markdown of the repository: pages with navigation, search and a
// switch of versions, and checks every link in them. It needs no network, and neither has the site.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	root := flag.String("root", "../..", "the folder of the repository")
	out := flag.String("out", "../../bin/site", "the folder of the site; every version has a folder of its own in it")
	version := flag.String("version", "main", "the version of the documentation, for example v0.1.0")
	flag.Parse()
	if err := run(*root, *out, *version); err != nil {
		fmt.Fprintf(os.Stderr, "site: %v\n", err)
		os.Exit(1)
	}
}

// run builds a version of the site and checks its links.
func run(root, out, version string) error {
	if version == "" || version != filepath.Base(version) || strings.HasPrefix(version, ".") {
		return fmt.Errorf("--version=%q: want the name of a folder, for example v0.1.0", version)
	}
	s, err := read(os.DirFS(root))
	if err != nil {
		return err
	}
	target := filepath.Join(out, version)
	if err := s.write(target, version); err != nil {
		return err
	}
	if err := writeVersions(out); err != nil {
		return err
	}
	links, err := check(os.DirFS(target))
	if err != nil {
		return err
	}
	if len(links.Broken) > 0 {
		return fmt.Errorf("%d links are broken:\n%s", len(links.Broken), strings.Join(links.Broken, "\n"))
	}
	list := strings.Join(links.External, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(target, "external-links.txt"), []byte(list), 0o644); err != nil {
		return err
	}
	fmt.Printf("site: %d pages in %s; every one of %d links inside of the site leads somewhere; %d links lead out of it (%s)\n",
		links.Pages, target, links.Internal, len(links.External), filepath.Join(target, "external-links.txt"))
	return nil
}
