package gpushare

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/interference"
)

// spreading returns a WorkloadProfile of namespace default that tells what it costs to be on several nodes.
func spreading(name, slowdown string) *v1alpha1.WorkloadProfile {
	p := &v1alpha1.WorkloadProfile{}
	p.Namespace, p.Name = "default", name
	p.Spec.Spread = []v1alpha1.ProfileSpread{{TopologyKey: v1.LabelHostname, Slowdown: intstr.FromString(slowdown)}}
	return p
}

func TestLosses(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	d.plugin.readProfile(t.Context(), nil, spreading("near", "1.25"), false)
	d.plugin.readProfile(t.Context(), nil, declared("heavy", 100, 60), false)
	elsewhere := tenant("far", "near", 10)
	elsewhere.Namespace = "other"
	for name, c := range map[string]struct {
		pod  *v1.Pod
		want []gang.Loss
	}{
		"declared":                 {tenant("a", "near", 10), []gang.Loss{{Level: v1.LabelHostname, Part: 200}}},
		"a profile that tells not": {tenant("b", "heavy", 10), nil},
		"a profile that is not":    {tenant("c", "nobody", 10), nil},
		"no profile":               {tenant("d", "", 10), nil},
		"another namespace":        {elsewhere, nil},
		"no vGPU":                  {tenant("e", "near", 0), nil},
	} {
		if diff := cmp.Diff(c.want, d.plugin.Losses(c.pod)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A declaration counts at once, also where neighbours make no difference and no rule ever follows it.
func TestLossesFollowTheProfile(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	d.plugin.crowding.model = interference.Model{Name: harmless}
	p := tenant("a", "near", 10)
	lost := func() int {
		if _, err := d.plugin.Ledgers(t.Context(), p, d.nodes, func(string) bool { return false }); err != nil {
			t.Fatal(err)
		}
		sum := -1
		for _, l := range d.plugin.Losses(p) {
			sum = int(l.Part)
		}
		return sum
	}
	if got := lost(); got != -1 {
		t.Errorf("nothing is declared, and %d thousandths are lost", got)
	}
	before := spreading("near", "1.25")
	d.plugin.readProfile(t.Context(), nil, before, false)
	if got := lost(); got != 200 {
		t.Errorf("%d thousandths are lost, want 200", got)
	}
	d.plugin.readProfile(t.Context(), before, spreading("near", "1"), false)
	if got := lost(); got != 0 {
		t.Errorf("%d thousandths are lost, want 0", got)
	}
	d.plugin.forgetProfile(t.Context(), before)
	if got := lost(); got != -1 {
		t.Errorf("the profile is gone, and %d thousandths are lost", got)
	}
}

// A pod that wants a rate has the same share as a member of a gang as it has alone, also where no rule follows the profiles.
func TestRequestIsThatOfASinglePod(t *testing.T) {
	for _, model := range []string{"default", harmless} {
		d := newDesk(t, gpuNode("n1", 1))
		d.plugin.crowding.model.Name = model
		profile := spreading("near", "1")
		profile.Spec.Throughputs = []v1alpha1.ProfileThroughput{{Model: "A100", SharePercent: 100, Rate: new(resource.MustParse("20"))}}
		d.plugin.readProfile(t.Context(), nil, profile, false)
		d.later += newsPause
		p := with(tenant("a", "near", 1), func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationRate] = "10" })
		if _, err := d.plugin.Ledgers(t.Context(), p, d.nodes, func(string) bool { return false }); err != nil {
			t.Fatal(err)
		}
		together, err := d.plugin.Request(p)
		if err != nil || len(together.Variants) != 1 {
			t.Errorf("model %s: %+v, %v; want one variant", model, together, err)
		}
		if diff := cmp.Diff(*requestOf(d.preFilter(p)), together); diff != "" {
			t.Errorf("model %s: alone (-) and together (+):\n%s", model, diff)
		}
	}
}
