package elasticity

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/resize"
	"github.com/tandem-gpu/tandem/test/must"
)

func namesOf(pods []*v1.Pod) []string {
	names := []string{}
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return names
}

func idsIn(members []resize.Member) []string {
	ids := []string{}
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return ids
}

// A gang that names no level prefers those of the scheduler's arguments, which may be none.
func TestWishes(t *testing.T) {
	rack := []string{"example.com/rack"}
	for name, c := range map[string]struct {
		gang podgroup.Gang
		args []string
		want gang.Wishes
	}{
		"no level, of the arguments":          {podgroup.Gang{}, rack, gang.Wishes{Preferred: rack}},
		"no level, and none in the arguments": {podgroup.Gang{}, []string{}, gang.Wishes{}},
		"a required level":                    {podgroup.Gang{Required: []string{"zone"}}, rack, gang.Wishes{Required: []string{"zone"}}},
		"a preferred level":                   {podgroup.Gang{Preferred: []string{"zone"}}, rack, gang.Wishes{Preferred: []string{"zone"}}},
	} {
		p := &pass{Controller: &Controller{options: Options{Preferred: c.args}}}
		if diff := cmp.Diff(c.want, p.wishes(&c.gang), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// leaving gives a pod a deletion timestamp.
func leaving(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }

// The members that run have a node and no deletion timestamp. The last ones of these are too many.
func TestSurplus(t *testing.T) {
	pods := members(t, "train", 8, 6, 0)
	leaving(pods[2])
	place(t, pods[5], "n2", 0)
	g := gangOf(pods, nil)
	if diff := cmp.Diff([]string{"train-0", "train-1", "train-3", "train-4", "train-5"}, namesOf(g.running)); diff != "" || g.hosts != 2 {
		t.Errorf("on %d hosts run (-want +got):\n%s", g.hosts, diff)
	}
	for workers, want := range map[int][]string{
		2: {"uid-train-3", "uid-train-4", "uid-train-5"},
		4: {"uid-train-5"},
		5: {},
		8: {},
	} {
		if diff := cmp.Diff(want, idsIn(g.view.Beyond(workers))); diff != "" {
			t.Errorf("of 5 for %d leave (-want +got):\n%s", workers, diff)
		}
	}
}

func TestSizes(t *testing.T) {
	fixed := verdict{reason: reasonNoOwner}
	for _, test := range []struct {
		name             string
		members, running int
		resizable        verdict
		want             []int
	}{
		{"all members exist", 8, 2, yes, []int{2, 4, 8}},
		{"fewer exist", 5, 2, yes, []int{2, 4}},
		{"fewer exist than the least", 1, 0, yes, []int{2}},
		{"the owner makes more", 2, 2, verdict{yes: true, most: 8}, []int{2, 4, 8}},
		{"the owner makes some more", 2, 2, verdict{yes: true, most: 7}, []int{2, 4}},
		{"the owner makes fewer than exist", 8, 2, verdict{yes: true, most: 3}, []int{2, 4, 8}},
		{"not resizable", 8, 4, fixed, []int{4}},
		{"not resizable, one is missing", 8, 7, fixed, []int{4}},
		{"not resizable, none runs", 8, 0, fixed, []int{2}},
	} {
		g := gangOf(members(t, "train", test.members, test.running, 0), nil)
		g.resizable = test.resizable
		g.view = g.show()
		if diff := cmp.Diff(test.want, resize.New(testRules, noon).Offer(g.view)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		if diff := cmp.Diff([]int{2, 4, 8}, g.Sizes); diff != "" {
			t.Errorf("%s: the gang itself (-want +got):\n%s", test.name, diff)
		}
	}
}

// The size of a gang is that of its target, else that of what runs: a legal one.
func TestWorkersOf(t *testing.T) {
	for _, test := range []struct{ running, target, want int }{
		{0, 0, 2}, {1, 0, 2}, {3, 0, 2}, {4, 0, 4}, {8, 0, 8}, {2, 8, 8}, {8, 2, 2}, {8, 7, 4}, {0, 1, 2},
	} {
		var target *v1alpha1.ElasticTarget
		if test.target > 0 {
			target = targetOf("train", 2, 8, int32(test.target))
		}
		if got := gangOf(members(t, "train", 8, test.running, 0), target).workers(); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

// rated returns what a status says of learned rates.
func rated(workers, hosts int32, rate string, reports int32) v1alpha1.ElasticRate {
	return v1alpha1.ElasticRate{Workers: workers, Hosts: hosts, Rate: resource.MustParse(rate), Reports: reports}
}

func TestRemember(t *testing.T) {
	target := targetOf("train", 2, 8, 4)
	target.Status.Rates = []v1alpha1.ElasticRate{
		rated(4, 2, "3.5", 7), rated(4, 1, "4", 2), rated(2, 1, "2", 100),
		rated(0, 1, "1", 1), rated(2, 0, "1", 1), rated(2, 3, "1", 1), rated(8, 1, "0", 1), rated(8, 1, "-1", 1), rated(8, 2, "1", 0), rated(-4, -8, "1", 1),
	}
	target.Status.ResizeSeconds, target.Status.Resizes = new(int32(25)), 3
	pods := members(t, "train", 8, 3, 0)
	pods[0].Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-time.Minute))}}
	leaving(pods[2])
	m := remember(gangOf(pods, target), testRules, noon)
	want := []elastic.Seen{{Workers: 2, Hosts: 1, Rate: 2, Reports: 100}, {Workers: 4, Hosts: 1, Rate: 4, Reports: 2}, {Workers: 4, Hosts: 2, Rate: 3.5, Reports: 7}}
	if diff := cmp.Diff(want, m.learner.Seen); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
	if m.learner.Pause != 25 || m.learner.Pauses != 3 || m.learner.Cost() != 25 {
		t.Errorf("%d pauses of %v s, costs %v", m.learner.Pauses, m.learner.Pause, m.learner.Cost())
	}
	if m.served != 60+3600 { // one has its node for a minute, the other for an hour
		t.Errorf("served %v s", m.served)
	}
}

// A resize time counts only beside the number of changes that it is the mean of.
func TestRememberNothing(t *testing.T) {
	for name, status := range map[string]v1alpha1.ElasticTargetStatus{
		"an empty status": {}, "no number": {ResizeSeconds: new(int32(25))}, "no time": {Resizes: 3}, "a negative number": {ResizeSeconds: new(int32(25)), Resizes: -1},
	} {
		target := targetOf("train", 2, 8, 4)
		target.Status = status
		if m := remember(gangOf(members(t, "train", 2, 0, 0), target), testRules, noon); m.learner.Cost() != elastic.DefaultCost || m.learner.Seen != nil || m.served != 0 {
			t.Errorf("%s: %+v", name, m.learner)
		}
	}
	if m := remember(gangOf(members(t, "train", 2, 0, 0), nil), testRules, noon); m.learner.Cost() != elastic.DefaultCost || m.size == nil {
		t.Errorf("without a target: %+v", m)
	}
}

// tenants returns the GPUNodes on which pods report these rates by name.
func tenants(rates map[string]string) []*v1alpha1.GPUNode {
	g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1alpha1.GPUNodeStatus{Devices: make([]v1alpha1.GPUDevice, 2)}}
	for name, rate := range rates {
		tenant := v1alpha1.GPUTenant{UID: "uid-" + name}
		if rate != "" {
			tenant.Rate = new(resource.MustParse(rate))
		}
		for i := range g.Status.Devices { // a pod on both devices says the same of both
			g.Status.Devices[i].Tenants = append(g.Status.Devices[i].Tenants, tenant)
		}
	}
	return []*v1alpha1.GPUNode{{}, g}
}

// Members that are done lower the least number of a gang that waits: an elastic one shrinks for the last of them. It does not where the scheduler's queue knows the gang and
// counts no members that are done. An elastic gang stays alike to those of the number that it declares.
func TestMembersThatAreDone(t *testing.T) {
	for source, want := range map[podgroup.Source]int32{podgroup.Label: 4, podgroup.Native: 8} {
		last := members(t, "last", 4, 0, 0)[2:]
		place(t, last[0], "n1", 8)
		r := ref("last")
		r.Source = source
		for _, p := range last {
			if source == podgroup.Native {
				p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("last")}
			}
		}
		w := newWorld(t, 9, append(members(t, "train", 8, 8, 0), last...)...)
		must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
		w.gangs.done = map[podgroup.Ref]int{r: 2, ref("train"): 1}
		w.pass(0)
		if got := w.target("train"); got.Spec.Workers != want {
			t.Errorf("%s: %+v", source, got)
		}
		if got := w.memory[ref("train")].like.Least; got != 2 {
			t.Errorf("the job is alike to those of %d", got)
		}
	}
}

// A gang of four runs with two members, a third one waits, and the fourth does not exist. The scheduler plans the third, so a job makes room for
// it. It makes none for a gang that has not started, nor where a user has to correct something.
func TestShrinksForAGangThatLacksMembers(t *testing.T) {
	for name, test := range map[string]struct {
		exist, runs int
		gated       bool
		source      podgroup.Source
		waits       bool
		want        int32
	}{
		"it has started":                       {3, 2, false, podgroup.Label, true, 7},
		"it has lost more":                     {3, 1, false, podgroup.Label, true, 6},
		"the only one that waits is not gated": {4, 2, true, podgroup.Label, true, 7},
		"it has not started":                   {3, 0, false, podgroup.Label, true, 8},
		"its user has to correct it":           {3, 2, false, podgroup.Label, false, 8},
		"the scheduler's queue holds it":       {3, 2, false, podgroup.Native, true, 8},
	} {
		rest := members(t, "rest", test.exist, 0, 0)
		if test.gated {
			rest[test.exist-1].Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/later"}}
		}
		for i := range test.runs {
			place(t, rest[i], "n1", 8+i)
		}
		r := ref("rest")
		r.Source = test.source
		for _, p := range rest {
			if test.source == podgroup.Native {
				p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("rest")}
			}
		}
		w := newWorld(t, 8+test.runs, append(members(t, "train", 8, 8, 0), rest...)...)
		w.gangs.sizes[ref("train")] = []int{2, 6, 7, 8}
		must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
		w.gangs.problems = map[podgroup.Ref]*podgroup.Problem{r: {Message: "3 of 4 members exist", Waits: test.waits}}
		w.pass(0)
		if got := w.target("train"); got.Spec.Workers != test.want {
			t.Errorf("%s: %d workers, want %d: %+v", name, got.Spec.Workers, test.want, got.Status)
		}
	}
}

func TestObserve(t *testing.T) {
	const a, b, c = "train-0", "train-1", "train-2"
	for _, test := range []struct {
		name    string
		running int
		rates   map[string]string
		want    []elastic.Seen
	}{
		{"all report", 2, map[string]string{a: "1.5", b: "2", "other": "100"}, []elastic.Seen{{Workers: 2, Hosts: 1, Rate: 3.5, Reports: 1}}},
		{"one does not report", 3, map[string]string{a: "1", b: "2"}, nil},
		{"one is a tenant and does not report", 3, map[string]string{a: "1", b: "2", c: ""}, nil},
		{"one does no work", 2, map[string]string{a: "2", b: "0"}, []elastic.Seen{{Workers: 2, Hosts: 1, Rate: 2, Reports: 1}}},
		{"none does any work", 2, map[string]string{a: "0", b: "0"}, nil},
		{"none runs", 0, map[string]string{a: "1", b: "2"}, nil},
	} {
		g := gangOf(members(t, "train", 8, test.running, 0), nil)
		m := remember(g, testRules, noon)
		before := m.served
		if err := m.observe(g, reportsOf(tenants(test.rates), map[podgroup.Ref][]*v1.Pod{{}: g.all}), false, seconds(10)); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(test.want, m.learner.Seen); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		if m.served-before != float64(10*test.running) || m.seen != seconds(10) || m.at != seconds(10) {
			t.Errorf("%s: served %v s more, seen %v", test.name, m.served-before, m.seen)
		}
	}
}

// An impossible rate is an error, and changes nothing that was learned.
func TestObserveImpossible(t *testing.T) {
	two, four := gangOf(members(t, "train", 8, 2, 0), nil), gangOf(members(t, "train", 8, 4, 0), nil)
	m := remember(two, testRules, noon)
	for i := range 3 {
		must.OK(t, m.observe(two, map[types.UID]report{"uid-train-0": {rate: 1}, "uid-train-1": {rate: 1}}, false, seconds(i)))
	}
	rates := map[types.UID]report{}
	for i := range 4 {
		rates[types.UID(fmt.Sprint("uid-train-", i))] = report{rate: 1000}
	}
	if err := m.observe(four, rates, false, seconds(10)); err == nil {
		t.Error("no error")
	}
	if diff := cmp.Diff([]elastic.Seen{{Workers: 2, Hosts: 1, Rate: 2, Reports: 3}}, m.learner.Seen); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
}

// The controller reads from a status the rates that it wrote there, but for the rounding.
func TestRatesInStatus(t *testing.T) {
	if got := ratesIn(&elastic.Learner{}); got != nil {
		t.Errorf("nothing is learned: %v", got)
	}
	l := &elastic.Learner{Seen: []elastic.Seen{{Workers: 2, Hosts: 1, Rate: 1.23456, Reports: 3}, {Workers: 4, Hosts: 2, Rate: 98765.4, Reports: 1000}}}
	got := ratesIn(l)
	want := []v1alpha1.ElasticRate{rated(2, 1, "1.23", 3), rated(4, 2, "98800", 100)}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
	target := targetOf("train", 2, 8, 2)
	target.Status.Rates = got
	again := remember(gangOf(members(t, "train", 2, 0, 0), target), testRules, noon).learner.Seen
	if diff := cmp.Diff([]elastic.Seen{{Workers: 2, Hosts: 1, Rate: 1.23, Reports: 3}, {Workers: 4, Hosts: 2, Rate: 98800, Reports: 100}}, again); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
	l.Seen = nil
	for i := range 2 * maxRates {
		l.Seen = append(l.Seen, elastic.Seen{Workers: i + 1, Hosts: 1, Rate: 1, Reports: 1})
	}
	if got := ratesIn(l); len(got) != maxRates {
		t.Errorf("%d rates, the schema allows %d", len(got), maxRates)
	}
}

func TestRoundTo3(t *testing.T) {
	for rate, want := range map[float64]float64{1: 1, 1.2345: 1.23, 1.235: 1.24, 99950: 100000, 0.00012345: 0.000123, 1e12: 1e12, 123: 123} {
		if got := roundTo3(rate); math.Abs(got-want) > want*1e-9 {
			t.Errorf("%v becomes %v, want %v", rate, got, want)
		}
	}
}
