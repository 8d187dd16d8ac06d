package workloads

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// TestEndlessProfile: so it is with a WorkloadProfile, which tenants write too.
func TestEndlessProfile(t *testing.T) {
	for _, text := range endless {
		q := resource.MustParse(text)
		p := &v1alpha1.WorkloadProfile{Spec: v1alpha1.WorkloadProfileSpec{
			Uses:        []v1alpha1.DeclaredUse{{Model: "A", Memory: &q}},
			Throughputs: []v1alpha1.ProfileThroughput{{Model: "A", SharePercent: 50, Rate: &q}},
		}, Status: v1alpha1.WorkloadProfileStatus{Learned: []v1alpha1.LearnedUse{{Model: "A", Memory: &q, SoloRate: &q}}}}
		var w *Workload
		bytes := allocated(func() { w = ReadProfile(p) })
		if len(w.Malformed) != 4 {
			t.Errorf("%.12s: %q", text, w.Malformed)
		}
		if bytes > 1_200_000 {
			t.Errorf("%.12s: %d bytes were allocated", text, bytes)
		}
	}
}
