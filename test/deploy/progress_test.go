package deploy

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const byProgress = "ValidatingAdmissionPolicy 'tandem-progress'"

// done returns a change that says how much of the work of a pod is done.
func done(raw string, subresources ...string) request {
	return patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationProgress, raw), subresources...)
}

// The policy admits what internal/cluster/kube reads.
func TestProgress(t *testing.T) {
	c := client(t.Context(), t, jane)
	p := create(t.Context(), t, c, pod("progresses"))
	for _, raw := range []string{
		"0", "0.0", "0.25", "0.000001", "0.999999", "1", "1.0", "1.000000",
		"", "1.000001", "1.1", "2", "10", "-0.1", "+0.5", ".5", "0.", "1.", "00", "01", "0.1234567", "1.0000000", "50%", "0,5", "5e-1", "500m", "NaN", " 0.5",
		"0.5 ", "0.5\n", "half",
	} {
		t.Run(raw, func(t *testing.T) {
			fresh := pod("fresh")
			metav1.SetMetaDataAnnotation(&fresh.ObjectMeta, v1alpha1.AnnotationProgress, raw)
			_, _, malformed := kube.Progress(fresh)
			_, onCreate := c.CoreV1().Pods(team).Create(t.Context(), fresh, dryRun)
			onUpdate := done(raw)(t.Context(), c, p)
			for _, err := range []error{onCreate, onUpdate} {
				if malformed != nil {
					wantRefusal(t, err, byProgress, "metadata.annotations[tandem-gpu.io/progress]: ", "a decimal from 0 to 1")
				}
				if malformed == nil && err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// The owner of a running pod says anew how much is done, as often as it likes. A malformed value that was there before the policy stays.
func TestProgressOfRunningPods(t *testing.T) {
	bound := createBound(t.Context(), t, genuine)
	plain := create(t.Context(), t, client(t.Context(), t, jane), plainPod())
	for _, raw := range []string{"0.1", "0.2", "1"} {
		for _, p := range []*corev1.Pod{bound, plain} {
			if err := done(raw)(t.Context(), client(t.Context(), t, jane), p); err != nil {
				t.Fatal(err)
			}
			if got := get(t.Context(), t, p).Annotations[v1alpha1.AnnotationProgress]; got != raw {
				t.Errorf("the pod says %q, want %q", got, raw)
			}
		}
	}
	wantRefusal(t, done("12 of 90", "status")(t.Context(), client(t.Context(), t, admin), bound), byProgress, `"12 of 90" is not legal`)
	long := strings.Repeat("9", 10_000)
	wantRefusal(t, done(long)(t.Context(), client(t.Context(), t, jane), bound), byProgress, strings.Repeat("9", 64)+"…")

	old := pod("old")
	old.Annotations = map[string]string{v1alpha1.AnnotationProgress: "half"}
	old = createOld(t, old, "tandem-progress")
	if err := patch(types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`)(t.Context(), client(t.Context(), t, jane), old); err != nil {
		t.Error(err)
	}
	wantRefusal(t, done("most")(t.Context(), client(t.Context(), t, jane), old), byProgress)
	if err := done("0.5")(t.Context(), client(t.Context(), t, jane), old); err != nil {
		t.Error(err)
	}
}
