package parking

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// with returns annotations: pairs of a key and a value.
func with(pairs ...string) map[string]string {
	all := map[string]string{"example.com/other": "1", v1alpha1.AnnotationRate: "5"}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

const mode = v1alpha1.AnnotationNotebook

func TestRead(t *testing.T) {
	longest := "/" + strings.Repeat("a", 255)
	for name, test := range map[string]struct {
		annotations map[string]string
		want        *Declared
	}{
		"nothing":  {with(), nil},
		"defaults": {with(mode, "park"), &Declared{Wakes: true, Idle: time.Hour, Port: 8888}},
		"cull":     {with(mode, "cull", v1alpha1.AnnotationNotebookIdle, "168h"), &Declared{Idle: 168 * time.Hour, Port: 8888}},
		"all": {
			with(mode, "park", v1alpha1.AnnotationNotebookIdle, "1m", v1alpha1.AnnotationNotebookPort, "65535", v1alpha1.AnnotationNotebookPath, "/a/b/",
				v1alpha1.AnnotationNotebookToken, "jupyter/key"),
			&Declared{Wakes: true, Idle: time.Minute, Port: 65535, Path: "/a/b", Secret: "jupyter", Key: "key"},
		},
		"the longest path": {with(mode, "cull", v1alpha1.AnnotationNotebookPath, longest), &Declared{Idle: time.Hour, Port: 8888, Path: longest}},
		"a Secret without a key, the root": {
			with(mode, "park", v1alpha1.AnnotationNotebookToken, "jupyter", v1alpha1.AnnotationNotebookPath, "/"),
			&Declared{Wakes: true, Idle: time.Hour, Port: 8888, Secret: "jupyter", Key: "token"},
		},
	} {
		d, err := Read(test.annotations)
		if diff := cmp.Diff(test.want, d); diff != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
}

// An error names the annotation, the value and what is legal.
func TestReadRefuses(t *testing.T) {
	const idle, port, path, token = v1alpha1.AnnotationNotebookIdle, v1alpha1.AnnotationNotebookPort, v1alpha1.AnnotationNotebookPath, v1alpha1.AnnotationNotebookToken
	for _, test := range []struct {
		key, value, want string
	}{
		{mode, "", "it is empty, legal is park or cull"},
		{mode, "Park", `"Park" is not legal, legal is park or cull`},
		{idle, "59s", `"59s" is not legal, legal is a duration from 1m to 168h`},
		{idle, "168h1s", "legal is a duration from 1m to 168h"},
		{idle, "1d", "legal is a duration from 1m to 168h"},
		{idle, "-1h", "legal is a duration from 1m to 168h"},
		{port, "0", `"0" is not legal, legal is the number of a port, from 1 to 65535`},
		{port, "65536", "from 1 to 65535"},
		{port, "http", "from 1 to 65535"},
		{path, "", "it is empty, legal is a path such as /team-a/notebook"},
		{path, "lab", "legal is a path"},
		{path, "/a/../b", "legal is a path"},
		{path, "//evil", "legal is a path"},
		{path, "/a?b", "legal is a path"},
		{path, "/a%2e", "legal is a path"},
		{path, "/" + strings.Repeat("a", 256), "up to 256 bytes"},
		{token, "", "it is empty, legal is the name of a Secret"},
		{token, "Jupyter", "legal is the name of a Secret"},
		{token, "other/jupyter/token", "legal is the name of a Secret"},
		{token, "jupyter/", "legal is the name of a Secret"},
		{mode + "-idl", "1h", "the nearest legal one is " + idle},
		{mode + "s-wholly-other-words", "1h", "legal are " + mode + ","},
		{v1alpha1.AnnotationNotebookParksAt, "1h", "nobody reads it on a workload"},
	} {
		d, err := Read(with(mode, "park", test.key, test.value))
		if d != nil || err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "metadata.annotations["+test.key+"]") || !strings.HasSuffix(err.Error(), "; correct it") {
			t.Errorf("%s=%.30q: %v, want %s", test.key, test.value, err, test.want)
		}
	}
	if _, err := Read(with(idle, "1h")); err == nil || !strings.Contains(err.Error(), "metadata.annotations["+mode+"]: it is missing beside others of notebooks, legal is park or cull") {
		t.Errorf("without a mode: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("park", "1h", "8888", "/a", "s/k")
	f.Add("cull", "", "-", "/..", "/")
	f.Fuzz(func(t *testing.T, m, idle, port, path, token string) {
		d, err := Read(with(mode, m, v1alpha1.AnnotationNotebookIdle, idle, v1alpha1.AnnotationNotebookPort, port, v1alpha1.AnnotationNotebookPath, path, v1alpha1.AnnotationNotebookToken, token))
		if err != nil {
			return
		}
		if d.Idle < LeastIdle || d.Idle > MostIdle || d.Port < 1 || d.Port > 65535 || strings.Contains(d.Path, "..") || strings.HasSuffix(d.Path, "/") || d.Secret == "" {
			t.Errorf("%+v", d)
		}
	})
}
