package guides

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// block is a code block of a page.
type block struct {
	page string // its path in the repository
	line int    // of the fence
	lang string
	text string // without the indentation of the fence
	mark string // the comment above the fence, "" for none
}

func (b *block) at() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// programs are the first words by which a block is one of commands.
var programs = []string{
	"kubectl", "make", "go", "ctr", "curl", "helm", "for", "echo", "printf", "jq", "crictl", "docker", "tar", "sha256sum", "git", "$",
}

// assignment is the beginning of a command that sets a variable first.
var assignment = regexp.MustCompile(`^[A-Z_]+=`)

// commands reports whether the block shows commands.
func (b *block) commands() bool {
	if b.lang != "" && b.lang != "sh" && b.lang != "shell" && b.lang != "bash" && b.lang != "console" {
		return false
	}
	for line := range strings.Lines(b.text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		first, _, _ := strings.Cut(line, " ")
		return slices.Contains(programs, first) || assignment.MatchString(line)
	}
	return false
}

// objects reports whether the block shows whole objects of the API and nothing else.
func (b *block) objects() bool {
	for document := range strings.SplitSeq(b.text, "\n---\n") {
		if !strings.HasPrefix(document, "apiVersion: ") || !strings.Contains(document, "\nkind: ") || !strings.Contains(document, "\nmetadata:") {
			return false
		}
	}
	return b.lang == "yaml"
}

var comment = regexp.MustCompile(`^\s*<!--\s*(.*?)\s*-->\s*$`)

// blocks returns the code blocks of README.md and of all guides.
func blocks(root string) ([]block, error) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "guides", "*.md"))
	if err != nil {
		return nil, err
	}
	var all []block
	for _, page := range append([]string{filepath.Join(root, "README.md")}, pages...) {
		raw, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(root, page)
		if err != nil {
			return nil, err
		}
		of, err := parse(filepath.ToSlash(name), string(raw))
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

// parse returns the code blocks of one page.
func parse(page, text string) ([]block, error) {
	var all []block
	var open *block
	var indent, above string
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		fence := strings.HasPrefix(trimmed, "```")
		switch {
		case fence && open == nil:
			indent = line[:len(line)-len(trimmed)]
			open = &block{page: page, line: i + 1, lang: strings.TrimPrefix(trimmed, "```")}
			if m := comment.FindStringSubmatch(above); m != nil {
				open.mark = m[1]
			}
		case fence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
		if open == nil && trimmed != "" {
			above = line
		}
	}
	if open != nil {
		return nil, fmt.Errorf("read %s: the code block of line %d does not end", page, open.line)
	}
	return all, nil
}
