package main

import (
	"fmt"
	"html"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
)

// anchors gives headings the anchors that they have on GitHub, for which the pages are written.
type anchors struct {
	used map[string]bool
}

// Generate returns the anchor of a heading: small letters, digits, dashes for spaces; a number for the second heading of that name.
func (a *anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(string(heading))) {
		switch {
		case r == ' ':
			b.WriteRune('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	anchor := b.String()
	for i := 1; a.used[anchor]; i++ {
		anchor = fmt.Sprintf("%s-%d", b.String(), i)
	}
	a.Put([]byte(anchor))
	return []byte(anchor)
}

// Put notes that an anchor is used.
func (a *anchors) Put(anchor []byte) {
	if a.used == nil {
		a.used = map[string]bool{}
	}
	a.used[string(anchor)] = true
}

// parts returns the title of a document, and its text by headings.
func parts(doc ast.Node, source []byte) (string, []part) {
	title, all := "", []part{}
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			anchor, _ := h.AttributeString("id")
			id, _ := anchor.([]byte)
			heading := plain(h, source)
			if title == "" && h.Level == 1 {
				title, id = heading, nil
			}
			all = append(all, part{Heading: heading, Anchor: string(id)})
			continue
		}
		if len(all) == 0 {
			continue // what stands above the title
		}
		last := &all[len(all)-1]
		last.Text = strings.TrimSpace(last.Text + " " + plain(n, source))
	}
	return title, all
}

// plain returns the text of a node without marks.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Segment.Value(source))
				if n.SoftLineBreak() || n.HardLineBreak() {
					b.WriteByte(' ')
				}
			}
		case *ast.String:
			if entering {
				b.Write(n.Value)
			}
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			if entering {
				for i := range n.Lines().Len() {
					line := n.Lines().At(i)
					b.Write(line.Value(source))
				}
			}
		default:
			if !entering && n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

func escape(s string) string { return html.EscapeString(s) }
