package admission

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMetBy(t *testing.T) {
	zone := func(values ...string) *v1.Affinity {
		return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: "zone", Operator: v1.NodeSelectorOpIn, Values: values},
			}}},
		}}}
	}
	taint := func(effect v1.TaintEffect) v1.NodeSpec {
		return v1.NodeSpec{Taints: []v1.Taint{{Key: "gpu", Effect: effect}}}
	}
	tolerates := []v1.Toleration{{Key: "gpu", Operator: v1.TolerationOpExists}}
	cordoned := []v1.Toleration{{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists}}
	for _, c := range []struct {
		name string
		pod  v1.PodSpec
		node v1.NodeSpec
		want bool
	}{
		{"demands nothing", v1.PodSpec{}, v1.NodeSpec{}, true},
		{"selector", v1.PodSpec{NodeSelector: map[string]string{"zone": "a"}}, v1.NodeSpec{}, true},
		{"selector of another zone", v1.PodSpec{NodeSelector: map[string]string{"zone": "b"}}, v1.NodeSpec{}, false},
		{"affinity", v1.PodSpec{Affinity: zone("b", "a")}, v1.NodeSpec{}, true},
		{"affinity to another zone", v1.PodSpec{Affinity: zone("b")}, v1.NodeSpec{}, false},
		{"affinity that cannot be read", v1.PodSpec{Affinity: zone()}, v1.NodeSpec{}, false},
		{"taint", v1.PodSpec{}, taint(v1.TaintEffectNoSchedule), false},
		{"taint that evicts", v1.PodSpec{}, taint(v1.TaintEffectNoExecute), false},
		{"taint that is a wish", v1.PodSpec{}, taint(v1.TaintEffectPreferNoSchedule), true},
		{"tolerated taint", v1.PodSpec{Tolerations: tolerates}, taint(v1.TaintEffectNoSchedule), true},
		{"cordon", v1.PodSpec{Tolerations: tolerates}, v1.NodeSpec{Unschedulable: true}, false},
		{"tolerated cordon", v1.PodSpec{Tolerations: cordoned}, v1.NodeSpec{Unschedulable: true}, true},
	} {
		d := Of(&v1.Pod{Spec: c.pod})
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}, Spec: c.node}
		if got := d.MetBy(node); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestAlike(t *testing.T) {
	selects := func(zone string) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{NodeSelector: map[string]string{"zone": zone}}}
	}
	with := func(a *v1.Affinity) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{Affinity: a}} }
	some := &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{}}}
	for _, c := range []struct {
		name string
		a, b *v1.Pod
		want bool
	}{
		{"equal", selects("a"), selects("a"), true},
		{"other selector", selects("a"), selects("b"), false},
		{"other affinity", with(some), with(nil), false},
		{"affinity to pods, not to nodes", with(&v1.Affinity{PodAffinity: &v1.PodAffinity{}}), with(nil), true},
		{"other tolerations", &v1.Pod{Spec: v1.PodSpec{Tolerations: []v1.Toleration{{Key: "gpu"}}}}, selects(""), false},
	} {
		if got := Alike(c.a, c.b); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
