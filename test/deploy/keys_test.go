package deploy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

const byKeys = "ValidatingAdmissionPolicy 'tandem-keys'"

// A key that nobody reads is refused with the legal one that was meant.
func TestUnknownKeysAreRefused(t *testing.T) {
	const (
		domain     = v1alpha1.Domain + "/"
		onTheOwner = "Tandem reads the annotations of a notebook on its StatefulSet or Deployment, not on its pods: move them"
	)
	for _, test := range []struct {
		label bool
		key   string
		want  string
	}{
		{false, "max-slowdwn", "the nearest legal one is the annotation tandem-gpu.io/max-slowdown:"},
		{true, "max-slowdown", "the nearest legal one is the annotation tandem-gpu.io/max-slowdown:"},
		{false, "maxSlowdown", "the nearest legal one is the annotation tandem-gpu.io/max-slowdown:"},
		{false, "max_latency", "the nearest legal one is the annotation tandem-gpu.io/max-latency:"},
		{false, "gang", "the nearest legal one is the label tandem-gpu.io/gang:"},
		{false, "profile", "the nearest legal one is the label tandem-gpu.io/profile:"},
		{true, "profil", "the nearest legal one is the label tandem-gpu.io/profile:"},
		{false, "gpu-model", "the nearest legal one is the annotation tandem-gpu.io/gpu-models:"},
		{false, "checkpoint", "the nearest legal one is the annotation tandem-gpu.io/checkpoint-time:"},
		{false, "min-member", "the nearest legal one is the annotation tandem-gpu.io/min-members:"},
		{false, "elastic-worker", "the nearest legal one is the annotation tandem-gpu.io/elastic-workers:"},
		{false, "elastic-rates", "the nearest legal one is the annotation tandem-gpu.io/elastic-rate:"},
		{false, "compute-limits", "the nearest legal one is the annotation tandem-gpu.io/compute-limit:"},
		{false, "notebook", onTheOwner}, {false, "notebook-idle", onTheOwner}, {true, "notebook-path", onTheOwner},
		{false, "notebook-port", onTheOwner}, {false, "notebook-token", onTheOwner},
		{false, "foo", "legal are the annotation tandem-gpu.io/compute-limit,"},
		{true, "x", "the label tandem-gpu.io/gang"},
		{true, strings.Repeat("z", 63), "legal are the annotation"},
	} {
		t.Run(test.key, func(t *testing.T) {
			for _, p := range []*corev1.Pod{pod("keys"), plainPod()} {
				field := "metadata.annotations"
				if test.label {
					p.Labels, field = map[string]string{domain + test.key: "1"}, "metadata.labels"
				} else {
					p.Annotations = map[string]string{domain + test.key: "1"}
				}
				c := client(t.Context(), t, jane)
				_, err := c.CoreV1().Pods(team).Create(t.Context(), p, dryRun)
				wantRefusal(t, err, byKeys, field+"["+domain+test.key+"]", test.want)
				p.Annotations, p.Labels = nil, nil
				body := fmt.Sprintf(`{"metadata":{%q:{%q:"1"}}}`, strings.TrimPrefix(field, "metadata."), domain+test.key)
				wantRefusal(t, patch(types.MergePatchType, body)(t.Context(), c, create(t.Context(), t, c, p)), byKeys, test.want)
			}
		})
	}
}

// Namespaces have labels of their own: a misspelt one would leave a namespace open that was to be closed.
func TestUnknownKeysOfNamespacesAreRefused(t *testing.T) {
	for key, want := range map[string]string{"host-acces": "host-access", "strictest-slowdwn": "strictest-slowdown", "scheduler-nam": "scheduler-name"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "misspelt", Labels: map[string]string{v1alpha1.Domain + "/" + key: "allowed"}}}
		_, err := client(t.Context(), t, admin).CoreV1().Namespaces().Create(t.Context(), namespace, dryRun)
		wantRefusal(t, err, byKeys, "metadata.labels["+v1alpha1.Domain+"/"+key+"]", "the nearest legal one is the label tandem-gpu.io/"+want+":")
	}
}

// Several unknown keys are all named, and keys of others are theirs.
func TestKeysOfOthersAreAccepted(t *testing.T) {
	p := pod("keys")
	p.Annotations = map[string]string{v1alpha1.Domain + "/b": "", v1alpha1.Domain + "/a": ""}
	pods := client(t.Context(), t, jane).CoreV1().Pods(team)
	_, err := pods.Create(t.Context(), p, dryRun)
	wantRefusal(t, err, byKeys, "metadata.annotations[tandem-gpu.io/a]", "metadata.annotations[tandem-gpu.io/b]")
	p.Annotations = map[string]string{"tandem-gpu.io": "", "tandem-gpu.io.example.com/a": "", "x.tandem-gpu.io/a": "", "max-slowdown": "1"}
	if _, err := pods.Create(t.Context(), p, dryRun); err != nil {
		t.Error(err)
	}
}

// A key that was there before the policy stays.
func TestOldKeysStay(t *testing.T) {
	p := pod("old-key")
	p.Annotations = map[string]string{v1alpha1.Domain + "/foo": "1"}
	p = createOld(t, p, "tandem-keys")
	c := client(t.Context(), t, jane)
	if err := patch(types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`)(t.Context(), c, p); err != nil {
		t.Error(err)
	}
	wantRefusal(t, patch(types.MergePatchType, `{"metadata":{"annotations":{"tandem-gpu.io/bar":"b"}}}`)(t.Context(), c, p), byKeys, "tandem-gpu.io/bar")
}

// The policy knows exactly the keys of pods that Tandem has.
func TestPolicyKnowsAllKeys(t *testing.T) {
	declared := declaredKeys(t)
	for _, policy := range allPolicies(t) {
		for _, v := range policy.Spec.Variables {
			kind := map[string]string{"annotations": "Annotation", "labels": "Label"}[v.Name]
			if policy.Name != "tandem-keys" || kind == "" {
				continue
			}
			if diff := cmp.Diff(declared[kind], listed(v.Expression)); diff != "" {
				t.Errorf("keys of kind %s, names.go (-), the policy (+):\n%s", kind, diff)
			}
		}
	}
}

// declaredKeys returns the keys of pods without the domain, sorted, by the constants of names.go whose names start with Annotation,
// Label and Resource.
func declaredKeys(t *testing.T) map[string][]string {
	t.Helper()
	root, err := sandbox.Root()
	must.OK(t, err)
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "pkg/api/v1alpha1/names.go"), nil, 0)
	must.OK(t, err)
	declared := map[string][]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || spec.Names[0].Name == "LabelLearned" { // that of WorkloadProfiles
			return true
		}
		sum, ok := spec.Values[0].(*ast.BinaryExpr)
		if !ok {
			return true
		}
		for _, kind := range []string{"Annotation", "Label", "Resource"} {
			if name, err := strconv.Unquote(sum.Y.(*ast.BasicLit).Value); err == nil && strings.HasPrefix(spec.Names[0].Name, kind) {
				declared[kind] = append(declared[kind], strings.TrimPrefix(name, "/"))
			}
		}
		return true
	})
	if len(declared["Annotation"]) < 10 || len(declared["Label"]) < 2 || len(declared["Resource"]) != 2 {
		t.Fatalf("names.go declares %v only", declared)
	}
	for _, names := range declared {
		slices.Sort(names)
	}
	return declared
}

// listed returns the names of the last list of an expression, sorted.
func listed(expression string) []string {
	var known []string
	for name := range strings.SplitSeq(strings.Trim(expression[strings.LastIndex(expression, "["):], "[]"), ",") {
		known = append(known, strings.Trim(strings.TrimSpace(name), "'"))
	}
	slices.Sort(known)
	return known
}
