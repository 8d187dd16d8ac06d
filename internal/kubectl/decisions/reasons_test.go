package decisions

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// reasonLike are words of two humps or more, as ElasticGrow.
var reasonLike = regexp.MustCompile(`^([A-Z][a-z]+){2,}$`)

// writers are the functions that write events.
var writers = []string{"Eventf", "event", "gangEvent"}

// The table has each reason that the sources write, and no reason that no source has.
func TestReasonsAreThoseOfTheSources(t *testing.T) {
	all, written := map[string]bool{"Scheduled": true}, map[string]bool{}
	for _, folder := range []string{"pkg/plugins", "pkg/traffic", "internal/scheduler", "internal/controller", "internal/activator"} {
		err := filepath.WalkDir(filepath.Join("../../..", folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				literals(n, all, written)
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(written) < 5 {
		t.Fatalf("the sources write %v only", written)
	}
	for _, r := range Reasons() {
		if !all[r.Name] || r.What == "" {
			t.Errorf("no source has the reason %s (%s)", r.Name, r.What)
		}
	}
	for name := range written {
		if !slices.ContainsFunc(Reasons(), func(r Reason) bool { return r.Name == name }) {
			t.Errorf("the table lacks the reason %s", name)
		}
	}
}

// literals notes a string of the sources, and those that are written as reasons of events.
func literals(n ast.Node, all, written map[string]bool) {
	text := func(n ast.Node) string {
		if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
			s, _ := strconv.Unquote(l.Value) // the parser has read it
			return s
		}
		return ""
	}
	all[text(n)] = true
	call, is := n.(*ast.CallExpr)
	if !is {
		return
	}
	if f, is := call.Fun.(*ast.SelectorExpr); is && slices.Contains(writers, f.Sel.Name) {
		for _, x := range call.Args {
			if s := text(x); reasonLike.MatchString(s) {
				written[s] = true
			}
		}
	}
}
