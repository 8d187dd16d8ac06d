// Package prose finds what a program can find of sentences that readers must read twice: in comments of Go files and in pages.
//
// A sentence begins with its subject, so with none of "Of", "Who", "What", "Where" and their like. A decimal has its zero. The
// package does not know grammar: a clause in the middle of a sentence passes, and so do a question and a heading.
package prose

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
)

// Mistake is a place that must change.
type Mistake struct {
	Line  int    // of the comment or paragraph, from 1
	Found string // the mistake, with some words behind it
	Help  string
}

var (
	// opening is a sentence that begins with such a word: at the start of the text, after another sentence, or in a list, a cell or bold
	// face. The rest of the sentence says whether it is a question.
	opening = regexp.MustCompile(`(?:^|[.!?:] |\| |^[*\-] |^[0-9]+\. |\*\*|^> )((?:Of|Who|Whoever|Whom|Whose|What|Whatever|Where|Wherever) [a-z][^.!?|]*[.!?|]?)`)

	// decimal has no digit before its point, and is neither a version, nor a path, nor the end of a name.
	decimal = regexp.MustCompile(`(?:^|[\s(|=≥≤<>±−+~])([-−]?\.[0-9]+)(?:[^0-9.A-Za-z/_]|$)`)

	// called is a function or field with such a name.
	called = regexp.MustCompile(`^(?:Of|What|Where) (?:agrees|is|makes|names|returns|says|sums|turns|uses) `)

	quoted = regexp.MustCompile("`[^`]*`|\"[^\"]*\"")
)

// find returns the mistakes in a text without line ends. named is the name of what the text describes, which may begin it.
func find(line int, text, named string) (all []Mistake) {
	text = quoted.ReplaceAllString(text, "`x`")
	for _, m := range opening.FindAllStringSubmatchIndex(text, -1) {
		sentence := text[m[2]:m[3]]
		word, _, _ := strings.Cut(sentence, " ")
		if strings.HasSuffix(sentence, "?") || called.MatchString(sentence) && (word == named || word == "Of") {
			continue
		}
		all = append(all, Mistake{line, short(sentence), "begin the sentence with its subject"})
	}
	for _, m := range decimal.FindAllStringSubmatch(text, -1) {
		all = append(all, Mistake{line, m[1], "write the zero before the point"})
	}
	return all
}

func short(s string) string {
	if words := strings.Fields(s); len(words) > 8 {
		return strings.Join(words[:8], " ") + " …"
	}
	return s
}

// Page returns the mistakes in a page of Markdown. Code, headings and comments of HTML are not read.
func Page(page string) (all []Mistake) {
	fence, hidden := "", false
	for i, line := range strings.Split(page, "\n") {
		text := strings.TrimSpace(line)
		switch {
		case fence != "":
			if strings.HasPrefix(text, fence) {
				fence = ""
			}
		case strings.HasPrefix(text, "```"), strings.HasPrefix(text, "~~~"):
			fence = text[:3]
		case hidden || strings.HasPrefix(text, "<!--"):
			hidden = !strings.Contains(text, "-->")
		case !strings.HasPrefix(text, "#"):
			all = append(all, find(i+1, text, "")...)
		}
	}
	return all
}

// Comments returns the mistakes in the comments of a Go file. Directives and indented code are not read.
func Comments(name string, source []byte) (all []Mistake, err error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(f) {
		return nil, err
	}
	names := described(f)
	for _, group := range f.Comments {
		var lines []string
		for _, c := range group.List {
			text := strings.TrimPrefix(c.Text, "//")
			if strings.HasPrefix(c.Text, "//") && (text == "" || text[0] != ' ' && text[0] != '\t') || strings.HasPrefix(text, "\t") || strings.HasPrefix(text, " \t") {
				lines = append(lines, ".") // a blank line or code ends the sentence
				continue
			}
			lines = append(lines, strings.TrimSpace(text))
		}
		text := strings.TrimPrefix(strings.Join(lines, " "), ". ")
		all = append(all, find(files.Position(group.Pos()).Line, text, names[group])...)
	}
	return all, nil
}

// described returns the name of the declaration that each comment describes.
func described(f *ast.File) map[*ast.CommentGroup]string {
	names := map[*ast.CommentGroup]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names[n.Doc] = n.Name.Name
		case *ast.TypeSpec:
			names[n.Doc] = n.Name.Name
		case *ast.GenDecl:
			if len(n.Specs) == 1 {
				if s, ok := n.Specs[0].(*ast.TypeSpec); ok {
					names[n.Doc] = s.Name.Name
				}
				if s, ok := n.Specs[0].(*ast.ValueSpec); ok {
					names[n.Doc] = s.Names[0].Name
				}
			}
		case *ast.ValueSpec:
			names[n.Doc] = n.Names[0].Name
		case *ast.Field:
			if len(n.Names) > 0 {
				names[n.Doc], names[n.Comment] = n.Names[0].Name, n.Names[0].Name
			}
		}
		return true
	})
	return names
}
