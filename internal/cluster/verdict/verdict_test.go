package verdict_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
)

// The framework formats a status to what was said, also where it has wrapped the error of a plugin.
func TestFormatsToWhatWasSaid(t *testing.T) {
	said := `"200%" is not legal, %!d(MISSING) %s 50%% %`
	cause := errors.New(said)
	failed := verdict.Failed(cause)
	format := fmt.Sprintf // as the framework does with messages
	for name, s := range map[string]*fwk.Status{
		"reason": verdict.New(fwk.Unschedulable, said), "error": failed,
		"wrapped": fwk.AsStatus(fmt.Errorf("running Bind plugin: %w", failed.AsError())),
	} {
		if got := strings.TrimPrefix(format(s.Message()), "running Bind plugin: "); got != said {
			t.Errorf("%s: %q, want %q", name, got, said)
		}
	}
	if failed.Code() != fwk.Error || !errors.Is(failed.AsError(), cause) {
		t.Errorf("the status of an error has the code %v and the error %v", failed.Code(), failed.AsError())
	}
	if got := verdict.Failed(nil); !got.IsSuccess() {
		t.Errorf("the status of no error is %v", got)
	}
	if got := verdict.New(fwk.Unschedulable, "20%", "30%"); verdict.Text(got) != "20%, 30%" || len(got.Reasons()) != 2 {
		t.Errorf("the text is %q", verdict.Text(got))
	}
}

// Plugins make no status past this package.
func TestPluginsAnswerByThisPackage(t *testing.T) {
	files, err := filepath.Glob("../../../pkg/plugins/*/*.go")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d files of plugins: %v", len(files), err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && (s.Sel.Name == "NewStatus" || s.Sel.Name == "AsStatus") {
				t.Errorf("%s calls %s: use verdict.New or verdict.Failed, since the framework formats messages", path, s.Sel.Name)
			}
			return true
		})
	}
}
