package learning

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/gang"
)

// The slowdowns of spread gangs that a profile tells are in the snapshot although it tells nothing else, beside what is
// learned, and until the profile is deleted.
func TestSpreadIsInTheSnapshot(t *testing.T) {
	l := New(Options{Model: model(t, "default"), MaxProfiles: 10, Clock: newClock().time})
	a, _ := two()
	p := podOf(t, a, 1, "")
	p.Labels[v1alpha1.LabelProfile] = "bert"
	wp := &v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "bert"}}
	wp.Spec.Spread = []v1alpha1.ProfileSpread{{TopologyKey: "rack", Slowdown: intstr.FromString("1.25")}}
	l.Profile(wp)
	losses := func() []gang.Loss {
		s := l.Snapshot()
		if w := s.Workload(s.Number(p)); w != nil {
			return w.Losses()
		}
		return nil
	}
	want := []gang.Loss{{Level: "rack", Part: 200}}
	if diff := cmp.Diff(want, losses()); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	learned := wp.DeepCopy()
	learned.Status.Learned = []v1alpha1.LearnedUse{{Model: a100, SMUtilizationPercent: new(int32(80)), SoloObservations: 3}}
	l.Profile(learned)
	if diff := cmp.Diff(want, losses()); diff != "" {
		t.Errorf("losses beside what was learned (-want +got):\n%s", diff)
	}
	l.ProfileGone(p.Namespace, "bert")
	if got := losses(); got != nil {
		t.Errorf("the profile is gone, and the snapshot has %v", got)
	}
}
