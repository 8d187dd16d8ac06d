package guides

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/cluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// ownWord is a word in capitals that users replace by a name of their own, such as NODE.
var ownWord = regexp.MustCompile(`\b[A-Z]+\b`)

// The commands of README.md and of the guides are run, or say what runs them. Whole objects are taken by the API server.
func TestCommands(t *testing.T) {
	root, err := sandbox.Root()
	must.OK(t, err)
	all, err := blocks(root)
	must.OK(t, err)
	shell := newShell(t, root)
	ran, taken := 0, 0
	for i := range all {
		b := &all[i]
		if b.objects() && !strings.HasPrefix(b.mark, "needs:") {
			taken++
			if out, err := shell.pipe(t.Context(), b.text, "kubectl apply --server-side --dry-run=server --namespace=team-a -f -"); err != nil {
				t.Errorf("%s: the API server refuses the object: %v\n%s", b.at(), err, out)
			}
			continue
		}
		if !b.commands() {
			continue
		}
		v, err := judge(root, b)
		if err != nil {
			t.Error(err)
			continue
		}
		if !v.run {
			continue
		}
		ran++
		text := ownWord.ReplaceAllStringFunc(b.text, func(word string) string { return cmp.Or(v.with[word], word) })
		if out, err := shell.pipe(t.Context(), "", text); err != nil {
			t.Errorf("%s: %v\n%s\n%s", b.at(), err, text, out)
		}
	}
	if ran < 10 || taken < 5 {
		t.Errorf("%d blocks of commands were run and %d with objects were tried: the test reads the wrong pages", ran, taken)
	}
}

// shell runs commands as an administrator does: with kubectl, in a folder with the manifests and examples of the repository.
type shell struct {
	dir string
	env []string
}

// workplace makes a folder that commands may write into. It reads the files that they read, since Go's cache of test results knows
// what the test itself reads, and not what kubectl does.
func workplace(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"deploy", "examples"} {
		must.OK(t, os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)))
		err := filepath.WalkDir(filepath.Join(root, name), func(file string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				_, err = os.ReadFile(file)
			}
			return err
		})
		must.OK(t, err)
	}
	must.OK(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	return dir
}

// newShell starts an API server with the objects of testdata/cluster.yaml, which the guides' commands are about.
func newShell(t *testing.T, root string) *shell {
	t.Helper()
	tools, err := sandbox.Tools(t.Context(), "kubectl")
	must.OK(t, err)
	plane := sandbox.StartForTest(t, sandbox.Options{Authorization: "Node,RBAC"})
	config, err := plane.Kubeconfig("admin", []string{"system:masters"})
	must.OK(t, err)
	s := &shell{dir: workplace(t, root), env: append(os.Environ(),
		"KUBECONFIG="+config, "PATH="+filepath.Dir(tools["kubectl"])+string(os.PathListSeparator)+os.Getenv("PATH"))}
	s.env = append(s.env, "HOME="+s.dir)
	if out, err := s.pipe(t.Context(), "", "kubectl apply --server-side -k deploy/"); err != nil {
		t.Fatalf("install Tandem: %v\n%s", err, out)
	}
	objects, err := os.ReadFile(filepath.Join("testdata", "cluster.yaml"))
	must.OK(t, err)
	if out, err := s.pipe(t.Context(), string(objects), "kubectl apply --server-side -f -"); err != nil {
		t.Fatalf("make the cluster of the guides: %v\n%s", err, out)
	}
	client, err := kubernetes.NewForConfig(plane.Admin())
	must.OK(t, err)
	must.OK(t, cluster.AwaitPolicies(t.Context(), client))
	return s
}

// pipe runs a script, which reads input, and returns what it wrote.
func (s *shell) pipe(ctx context.Context, input, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env, cmd.Stdin = s.dir, s.env, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A page is read block by block, with the mark above each.
func TestParse(t *testing.T) {
	page := "# X\n\n<!-- run: NODE=a -->\n```\nkubectl get nodes   # all\n```\n\n1. Do:\n   <!-- needs: a GPU -->\n\n   ```sh\n   make x\n     y\n   ```\n\ntext\n\n```yaml\napiVersion: v1\nkind: Pod\nmetadata: {}\n```\n\n```\nn1 has 3 GPUs\n```\n"
	got, err := parse("x.md", page)
	must.OK(t, err)
	var seen []string
	for i := range got {
		b := &got[i]
		seen = append(seen, fmt.Sprintf("%s %q %q commands=%v objects=%v", b.at(), b.mark, b.text, b.commands(), b.objects()))
	}
	want := []string{
		`x.md:4 "run: NODE=a" "kubectl get nodes   # all\n" commands=true objects=false`,
		`x.md:11 "needs: a GPU" "make x\n  y\n" commands=true objects=false`,
		`x.md:18 "" "apiVersion: v1\nkind: Pod\nmetadata: {}\n" commands=false objects=true`,
		`x.md:24 "" "n1 has 3 GPUs\n" commands=false objects=false`,
	}
	if diff := gocmp.Diff(want, seen); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	if _, err := parse("x.md", "```\nmake\n"); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a block without an end: %v, want an error with its line", err)
	}
}

// The test tells blocks that show commands from those that show outputs and files by their first word, and by the language that
// the block names.
func TestCommandsAreKnown(t *testing.T) {
	for text, want := range map[string]bool{
		"kubectl get pods\n": true, "# all of them\nkubectl get pods\n": true, "\n  make x\n": true, "NODE=gpu-1\n": true, "NODE=gpu-1 kubectl get pods\n": true,
		"$ kubectl get pods\n": true, "n1 has 3 GPUs\n": false, "kubectlx y\n": false, "node=gpu-1\n": false, "# nothing\n": false, "": false,
	} {
		for lang, known := range map[string]bool{"": true, "sh": true, "shell": true, "bash": true, "console": true, "yaml": false, "go": false} {
			if b := (block{lang: lang, text: text}); b.commands() != (want && known) {
				t.Errorf("%q in %q shows commands: %t", text, lang, b.commands())
			}
		}
	}
}

// The pages are README.md and the guides.
func TestBlocks(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"README.md": "```\nmake a\n```\n", "docs/guides/x.md": "```\nmake b\n```\n", "docs/other.md": "```\nmake c\n```\n"} {
		path := filepath.Join(root, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	}
	all, err := blocks(root)
	must.OK(t, err)
	var seen []string
	for i := range all {
		seen = append(seen, all[i].at()+" "+all[i].text)
	}
	if diff := gocmp.Diff([]string{"README.md:1 make a\n", "docs/guides/x.md:1 make b\n"}, seen); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
}

// A mark that says nothing, or something that is not so, is refused.
func TestMarks(t *testing.T) {
	root, err := sandbox.Root()
	must.OK(t, err)
	for mark, want := range map[string]string{
		"":                                 "nothing says how these commands are tested",
		"run: NODE":                        "is not such as NODE=gpu-1",
		"needs: luck":                      "legal are a GPU",
		"tested: test/guides TestNone":     "has no test TestNone",
		"tested: make nothing":             "has no target nothing",
		"tested: somewhere":                "is not a package and a test",
		"tested: test/guides TestMarks":    "",
		"tested: make demo":                "",
		"needs: a GPU":                     "",
		"run: NODE=gpu-1 NAMESPACE=team-a": "",
	} {
		_, err := judge(root, &block{page: "x.md", line: 3, text: "make x\n", mark: mark})
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v, want no error", mark, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "x.md:3: ")):
			t.Errorf("%q: %v, want x.md:3 and %q", mark, err, want)
		}
	}
}

// The commands of the page save all WorkloadProfiles, and bring them back with what was learned.
func TestProfilesAreRestored(t *testing.T) {
	root, err := sandbox.Root()
	must.OK(t, err)
	all, err := blocks(root)
	must.OK(t, err)
	var commands []string
	for i := range all {
		if all[i].page == "docs/guides/operating.md" && all[i].mark == "tested: test/guides TestProfilesAreRestored" {
			commands = append(commands, all[i].text)
		}
	}
	if len(commands) != 2 {
		t.Fatalf("docs/guides/operating.md has %d blocks about profiles, want one that saves and one that restores", len(commands))
	}
	shell := newShell(t, root)
	do := func(input, script string) string {
		t.Helper()
		out, err := shell.pipe(t.Context(), input, script)
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return out
	}
	learned, err := os.ReadFile(filepath.Join("testdata", "learned.yaml"))
	must.OK(t, err)
	do(string(learned), "kubectl --as=system:serviceaccount:tandem-system:tandem-scheduler create -f -")
	for _, name := range []string{"learned-0", "bert"} {
		do(string(learned), "sed s/learned-0/"+name+"/ | kubectl --as=system:serviceaccount:tandem-system:tandem-scheduler apply --server-side --subresource=status -f -")
	}
	show := `kubectl get workloadprofiles -A -o json | jq -S '.items[] | {name: .metadata.name, namespace: .metadata.namespace, labels: .metadata.labels, spec, status}'`
	before := do("", show)
	do("", commands[0])
	do("", "kubectl delete workloadprofiles --all -A")
	do("", commands[1])
	if diff := gocmp.Diff(before, do("", show)); diff != "" {
		t.Errorf("profiles (-saved +restored):\n%s", diff)
	}
	for _, want := range []string{`"soloObservations": 30`, `"coRuns": 12`, `"tandem-gpu.io/learned": "true"`, `"smUtilizationPercent": 55`} {
		if !strings.Contains(before, want) {
			t.Errorf("the saved profiles have no %s:\n%s", want, before)
		}
	}
}
