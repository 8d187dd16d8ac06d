package proposal_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/kubectl/proposal"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// A replica of a100 serves 45 requests a second and costs 10, one of t4 serves 5 and costs 3. 180 requests a second are 4 a100. Three times that is
// more than the 10 a100 that are legal serve: 540 are 10 a100 and 18 t4.
func TestFleet(t *testing.T) {
	f := &v1alpha1.InferenceFleet{}
	f.Namespace, f.Name, f.Status.Demand = "ns", "bert", "180"
	f.Spec.Variants = []v1alpha1.FleetVariant{{Name: "a100", Cost: 10, MinReplicas: 1, MaxReplicas: 10}, {Name: "t4", Cost: 3, MaxReplicas: 20}}
	f.Status.Variants = []v1alpha1.FleetVariantStatus{{Name: "t4", Capacity: "5"}, {Name: "a100", Replicas: 4, Capacity: "45"}}
	for factor, want := range map[float64][2]int{1: {4, 0}, 2: {8, 0}, 3: {10, 18}, 9: {10, 20}, .1: {1, 0}} {
		got, err := proposal.Fleet(f, factor)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]proposal.VariantSize{{Name: "a100", Now: 4, Would: want[0]}, {Name: "t4", Would: want[1]}}, got.Variants); diff != "" || got.Asked != 180*factor {
			t.Errorf("%v times the rate: %s%v", factor, diff, got.Asked)
		}
	}
	for name, change := range map[string]func(*v1alpha1.InferenceFleet){
		"has classes of requests": func(f *v1alpha1.InferenceFleet) { f.Spec.Classes = make([]v1alpha1.FleetClass, 1) },
		"which holds sizes":       func(f *v1alpha1.InferenceFleet) { f.Annotations = map[string]string{v1alpha1.AnnotationSize: "paused"} },
	} {
		other := f.DeepCopy()
		change(other)
		if _, err := proposal.Fleet(other, 2); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	unknown := f.DeepCopy()
	for i := range unknown.Status.Variants {
		unknown.Status.Variants[i].Capacity = ""
	}
	if got, err := proposal.Fleet(unknown, 9); err != nil || got.Variants[0].Would != 4 || got.Variants[1].Would != 0 {
		t.Errorf("variants of unknown capacity: %+v, %v", got, err)
	}
	f.Status.Variants = f.Status.Variants[:1]
	if _, err := proposal.Fleet(f, 2); err == nil || !strings.Contains(err.Error(), "does not have variant a100 yet") {
		t.Error(err)
	}
	f.Status.Demand = ""
	if _, err := proposal.Fleet(f, 2); err == nil || !strings.Contains(err.Error(), "its status has no demand") {
		t.Error(err)
	}
}
