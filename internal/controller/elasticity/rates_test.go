package elasticity

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// working is what the members train-0, train-1, … report: one unit of work a second each, without a restart since these seconds
// after noon. never stands for a member that does not work.
func working(since ...int) map[types.UID]report {
	reports := map[types.UID]report{}
	for i, s := range since {
		r := report{rate: 1, pause: -1}
		if s != never {
			r.since = seconds(s)
		}
		reports[types.UID(fmt.Sprint("uid-train-", i))] = r
	}
	return reports
}

const never = 1 << 30

// after gives all members of reports a pause.
func after(pause time.Duration, reports map[types.UID]report) map[types.UID]report {
	for uid, r := range reports {
		r.pause = pause
		reports[uid] = r
	}
	return reports
}

// look is one look at a gang: who runs, and what they report.
type look struct {
	at, running int
	reports     map[types.UID]report
}

// A gang of 2 members grows to 4, or of 4 shrinks to 2. The cost is the time until those that stayed were back at work, whenever
// that was published.
func TestCostOfAChange(t *testing.T) {
	old := working(-50, -50)
	for _, test := range []struct {
		name     string
		declared bool
		looks    []look
		// pauses and pause are what was learned, sizes the numbers of members with a rate.
		pauses int
		pause  float64
		sizes  []int
	}{
		{"restart, published late", false, []look{{0, 2, old}, {10, 4, old}, {60, 4, working(18, 19, 21, 22)}}, 1, 9, []int{2, 4}},
		{"the new ones start, then all restart", false, []look{{0, 2, old}, {10, 4, after(8*time.Second, working(99, 98, 99, 99))}}, 1, 8, []int{2, 4}},
		{"it paused before the change too", false, []look{{0, 2, old}, {10, 4, after(time.Minute, working(31, 30, 99, 99))}}, 1, 21, []int{2, 4}},
		{"the old rates stand for a while", false, []look{{0, 4, working(-9, -9, -9, -9)}, {10, 2, old}, {20, 2, old}, {40, 2, working(26, 25)}}, 1, 16, []int{2, 4}},
		{"they are back before the next look", false, []look{{0, 2, old}, {10, 4, after(7*time.Second, working(8, 9, 9, 9))}}, 1, 7, []int{2, 4}},
		{"the same, and they do not know since when", false, []look{{0, 2, old}, {10, 4, working(8, 9, 9, 9)}}, 1, 9, []int{2, 4}},
		{"they do not work yet", false, []look{{0, 4, working(-9, -9, -9, -9)}, {10, 2, working(never, never)}, {400, 2, working(never, never)}}, 0, 0, []int{4}},
		{"no restart, before the time in which one would show is over", false, []look{{0, 2, old}, {10, 4, working(-50, -50, 14, 14)}, {129, 4, working(-50, -50, 14, 14)}}, 0, 0, []int{2}},
		{"and then", false, []look{{0, 2, old}, {10, 4, working(-50, -50, 14, 14)}, {130, 4, working(-50, -50, 14, 14)}}, 1, 0, []int{2, 4}},
		{"one of them restarted", false, []look{{0, 2, old}, {10, 4, working(-50, 17, 14, 14)}, {130, 4, working(-50, 17, 14, 14)}}, 1, 7, []int{2, 4}},
		{"declared: all reports count", true, []look{{0, 2, old}, {10, 4, working(-50, -50, 14, 14)}}, 1, 0, []int{2, 4}},
		{"reports that show no restarts count at once", false, []look{{0, 2, working(never, never)}, {10, 4, working(never, never, never, never)}}, 1, 0, []int{2, 4}},
		{"it changes back before the cost is known", false,
			[]look{{0, 2, old}, {10, 4, old}, {20, 2, old}, {60, 2, working(33, 33)}}, 0, 0, []int{2}},
		{"it changes once more before the cost is known", false,
			[]look{{0, 2, old}, {10, 4, old}, {20, 8, old}, {60, 8, working(33, 33, 34, 35, 36, 36, 36, 36)}}, 1, 15, []int{2, 8}},
		{"nothing changed", false, []look{{0, 2, old}, {10, 2, working(5, 5)}}, 0, 0, []int{2}},
	} {
		m := remember(gangOf(members(t, "train", 8, test.looks[0].running, 0), nil), testRules, noon)
		for _, l := range test.looks {
			must.OK(t, m.observe(gangOf(members(t, "train", 8, l.running, 0), nil), l.reports, test.declared, seconds(l.at)))
		}
		var sizes []int
		for _, s := range m.learner.Seen {
			sizes = append(sizes, s.Workers)
		}
		if m.learner.Pauses != test.pauses || m.learner.Pause != test.pause {
			t.Errorf("%s: %d pauses of %v s, want %d of %v s", test.name, m.learner.Pauses, m.learner.Pause, test.pauses, test.pause)
		}
		if diff := cmp.Diff(test.sizes, sizes); diff != "" {
			t.Errorf("%s: sizes with a rate (-want +got):\n%s", test.name, diff)
		}
	}
}

// If all members are others than before, they say when the gang was at work.
func TestCostOfAChangeOfAllMembers(t *testing.T) {
	m := remember(gangOf(members(t, "train", 8, 2, 0), nil), testRules, noon)
	must.OK(t, m.observe(gangOf(members(t, "train", 8, 2, 0), nil), working(-50, -50), false, noon))
	others := members(t, "train", 8, 4, 0)
	reports := map[types.UID]report{}
	for i, pod := range others {
		pod.UID = types.UID(fmt.Sprint("other-", i))
		reports[pod.UID] = report{rate: 1, since: seconds(30 + i), pause: -1}
	}
	must.OK(t, m.observe(gangOf(others, nil), reports, false, seconds(10)))
	if m.learner.Pauses != 1 || m.learner.Pause != 23 {
		t.Errorf("%d pauses of %v s, want one of 23 s: until the last one works", m.learner.Pauses, m.learner.Pause)
	}
}

func TestReportsOf(t *testing.T) {
	nodes := tenants(map[string]string{"a": "1500m", "b": "", "c": "0", "waits": "5", "other": "5"})
	at := metav1.NewTime(noon)
	for i := range nodes[1].Status.Devices {
		for j := range nodes[1].Status.Devices[i].Tenants {
			if tenant := &nodes[1].Status.Devices[i].Tenants[j]; tenant.UID == "uid-a" {
				tenant.RateSince, tenant.PauseSeconds = &at, new(int32(7))
			}
		}
	}
	lies := tenants(map[string]string{"a": "900", "b": "900", "c": "900", "waits": "900", "other": "900"})[1]
	lies.Name = "n2" // none of them is there
	members := map[podgroup.Ref][]*v1.Pod{}
	for name, node := range map[string]string{"a": "n1", "b": "n1", "c": "n1", "waits": ""} {
		ref := podgroup.Ref{Name: name}
		members[ref] = []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: types.UID("uid-" + name)}, Spec: v1.PodSpec{NodeName: node}}}
	}
	want := map[types.UID]report{"uid-a": {rate: 1.5, since: noon, pause: 7 * time.Second}, "uid-c": {pause: -1}}
	if diff := cmp.Diff(want, reportsOf(append(nodes, lies), members), cmp.AllowUnexported(report{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := reportsOf([]*v1alpha1.GPUNode{{}}, members); len(got) != 0 {
		t.Errorf("a node without devices: %v", got)
	}
}

// A profile declares the cost where it has a resizeTime, and 0s is one.
func TestDeclaresCost(t *testing.T) {
	for name, test := range map[string]struct {
		scaling *v1alpha1.ProfileScaling
		want    bool
	}{
		"nothing": {nil, false}, "rates alone": {&v1alpha1.ProfileScaling{}, false},
		"0s": {&v1alpha1.ProfileScaling{ResizeTime: &metav1.Duration{}}, true},
	} {
		o := &v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train"}, Spec: v1alpha1.WorkloadProfileSpec{Scaling: test.scaling}}
		if got := declaresCost(workloads.ReadProfile(o)); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if declaresCost(nil) {
		t.Error("a profile that does not exist declares something")
	}
}
