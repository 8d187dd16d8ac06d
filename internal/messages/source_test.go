package messages

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is what the test reads of a package: the reasons that it says, the texts in it, and calls that it cannot judge.
type source struct {
	reasons map[string]string // with where they stand
	texts   []string
	opaque  []string
}

// word is the form of a reason.
var word = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

// reasonAt is which argument of a function is the reason of an event.
var reasonAt = map[string]int{"Eventf": 3, "event": 2, "gangEvent": 1}

// readSources reads the production code of all programs.
func readSources(t *testing.T) map[string]*source {
	t.Helper()
	all := map[string]*source{}
	for _, top := range []string{"cmd", "internal", "pkg"} {
		root := filepath.Join("..", "..", top)
		err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../../")
			if dir == "internal/messages" || strings.HasPrefix(dir, "internal/testkit") || strings.HasPrefix(dir, "internal/sandbox") {
				return nil
			}
			if all[dir] == nil {
				all[dir] = &source{reasons: map[string]string{}}
			}
			return all[dir].read(file)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func (s *source) read(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, raw, parser.ParseComments)
	if err != nil {
		return err
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		where := func() string { return files.Position(n.Pos()).String() }
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				s.texts = append(s.texts, literal(n))
			}
		case *ast.GenDecl:
			s.constants(n, where())
		case *ast.CallExpr:
			s.call(n, where())
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if i < len(n.Rhs) && strings.EqualFold(named(left), "reason") {
					s.say(n.Rhs[i], where())
				}
			}
		case *ast.KeyValueExpr:
			if named(n.Key) == "Reason" {
				s.say(n.Value, where())
			}
		case *ast.FuncDecl:
			if n.Name.Name == "eventReason" {
				s.returned(n, where())
			}
		}
		return true
	})
	return nil
}

// constants: a constant says a reason if its name begins with reason, or its type is Reason or Why, or its group is one of reasons.
func (s *source) constants(d *ast.GenDecl, where string) {
	if d.Tok != token.CONST {
		return
	}
	group := d.Doc.Text()
	reasons := strings.HasPrefix(group, "Reasons of") || strings.HasPrefix(group, "The reasons") || strings.Contains(group, "is the reason of a")
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		kind := named(v.Type)
		for i, name := range v.Names {
			if i < len(v.Values) && (reasons || kind == "Reason" || kind == "Why" || strings.HasPrefix(strings.ToLower(name.Name), "reason")) {
				s.say(v.Values[i], where)
			}
		}
	}
}

// call: an event has its reason as an argument: a literal, a name, or what a method eventReason or a type Reason says.
func (s *source) call(c *ast.CallExpr, where string) {
	at, ok := reasonAt[named(c.Fun)]
	if !ok || at >= len(c.Args) {
		return
	}
	switch arg := c.Args[at].(type) {
	case *ast.Ident:
	case *ast.BasicLit:
		s.say(arg, where)
	case *ast.CallExpr:
		if converts := named(arg.Fun) == "string" && len(arg.Args) == 1 && named(arg.Args[0]) == "Reason"; !converts && named(arg.Fun) != "eventReason" {
			s.opaque = append(s.opaque, where)
		}
	default:
		s.opaque = append(s.opaque, where)
	}
}

func (s *source) returned(f *ast.FuncDecl, where string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if r, ok := n.(*ast.ReturnStmt); ok {
			for _, value := range r.Results {
				s.say(value, where)
			}
		}
		return true
	})
}

// say notes the reason that an expression is, if it is a literal of the form of one.
func (s *source) say(e ast.Expr, where string) {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING && word.MatchString(literal(l)) {
		s.reasons[literal(l)] = where
	}
}

// named returns the last name of an expression: Reason of x.Reason.
func named(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

func literal(l *ast.BasicLit) string {
	text, err := strconv.Unquote(l.Value)
	if err != nil {
		return ""
	}
	return text
}

// foreign are words that look like reasons of ours and are not: Tandem reads them, or shows them of others.
var foreign = map[string]string{
	"internal/agent/podsource Evicted":              "the kubelet's reason of an evicted pod, which the agent reads",
	"pkg/plugins/gpushare OutOf":                    "the kubelet's reason of a pod that it refuses, which the scheduler reads",
	"pkg/plugins/gpushare UnexpectedAdmissionError": "the kubelet's reason of a pod that it refuses, which the scheduler reads",
	"internal/kubectl/checks NotWritten":            "the word of doctor for a condition that the agent has not written",
	"pkg/elastic Cheapest":                          "a kind of choice, which the message of a target says as a sentence",
	"pkg/elastic Kept":                              "a kind of choice, which the message of a target says as a sentence",
	"pkg/elastic Fastest":                           "a kind of choice, which the message of a target says as a sentence",
	"pkg/elastic Unknown":                           "a kind of choice, which the message of a target says as a sentence",
}

// Each reason that a program says is in the table, and each row of the table is said by a program.
func TestReasons(t *testing.T) {
	inTable := map[string]bool{} // "package Reason"
	said := map[string]bool{}
	for _, s := range Sections() {
		for _, r := range s.Rows {
			for _, p := range s.Packages {
				inTable[p+" "+r.Reason] = true
			}
		}
	}
	sources := readSources(t)
	for dir, s := range sources {
		for _, where := range s.opaque {
			t.Errorf("%s: an event whose reason this test cannot read: use a literal or a constant", where)
		}
		for _, reason := range slices.Sorted(maps.Keys(s.reasons)) {
			key := dir + " " + reason
			said[key] = true
			if !inTable[key] && foreign[key] == "" {
				t.Errorf("%s: the table in internal/messages has no row for %s of %s", s.reasons[reason], reason, dir)
			}
		}
	}
	for _, s := range Sections() {
		for _, r := range s.Rows {
			if !slices.ContainsFunc(s.Packages, func(p string) bool { return said[p+" "+r.Reason] }) {
				t.Errorf("section %q has a row %s, and no program of %v says it", s.Title, r.Reason, s.Packages)
			}
		}
	}
	for key := range foreign {
		if !said[key] {
			t.Errorf("foreign has %s, which nothing says", key)
		}
	}
	if len(said) < 150 {
		t.Errorf("the programs say %d reasons: the test reads the wrong files", len(said))
	}
}

// verb is a verb of a format.
var verb = regexp.MustCompile(`%(\[\d+\])?[-+# 0]*[\d.]*[a-zA-Z]`)

// The texts of the table are those of the source.
func TestTexts(t *testing.T) {
	sources := readSources(t)
	checked := 0
	for _, s := range Sections() {
		var texts strings.Builder
		for _, p := range s.Packages {
			if sources[p] == nil {
				t.Fatalf("section %q names the package %s, which does not exist", s.Title, p)
			}
			for _, text := range sources[p].texts {
				fmt.Fprintln(&texts, verb.ReplaceAllString(text, "…"))
			}
		}
		for _, r := range s.Rows {
			for part := range strings.SplitSeq(strings.ReplaceAll(r.Says, " · ", "…"), "…") {
				if part = strings.TrimSpace(part); part == "" {
					continue
				}
				checked++
				if !strings.Contains(texts.String(), part) {
					t.Errorf("%s: no text in %v has %q", r.Reason, s.Packages, part)
				}
			}
		}
	}
	if checked < 80 {
		t.Errorf("%d parts of texts were looked for: the table has lost its texts", checked)
	}
}

// Each row says what the message means and what to do, and no reason stands twice in a section.
func TestRows(t *testing.T) {
	for _, s := range Sections() {
		if s.Title == "" || s.Where == "" || len(s.Rows) == 0 {
			t.Errorf("section %q lacks its title, its place or its rows", s.Title)
		}
		seen := map[string]bool{}
		for _, r := range s.Rows {
			if r.Means == "" || r.Do == "" || !strings.HasSuffix(r.Means, ".") || !strings.HasSuffix(r.Do, ".") {
				t.Errorf("%s of %q: what it means and what to do are sentences: %q, %q", r.Reason, s.Title, r.Means, r.Do)
			}
			if seen[r.Reason] {
				t.Errorf("%s stands twice in %q", r.Reason, s.Title)
			}
			seen[r.Reason] = true
		}
	}
}
