package podgroup

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
)

const (
	gangLabel  = "label tandem-gpu.io/gang"
	groupLabel = "label scheduling.x-k8s.io/pod-group"
	minMembers = "tandem-gpu.io/min-members"
	required   = "tandem-gpu.io/required-topology"
	preferred  = "tandem-gpu.io/preferred-topology"
	replica    = "label " + membership.LabelReplica
)

func TestOf(t *testing.T) {
	named := inGroup("p", "a", groupLabel, "b", gangLabel, "c")
	tests := []struct {
		name   string
		served Served
		pod    *v1.Pod
		want   Ref
	}{
		{"no gang", both, pod("p", "label app", "x"), Ref{}},
		{"all sources", both, named, Ref{Source: Native, Namespace: "ns", Name: "a"}},
		{"Kubernetes' own is not served", Served{XK8s: true}, named, Ref{Source: XK8s, Namespace: "ns", Name: "b"}},
		{"no PodGroups are served", Served{}, named, Ref{Source: Label, Namespace: "ns", Name: "c"}},
		{"Kubernetes' own in v1", Served{Native: "v1"}, named, Ref{Source: Native, Namespace: "ns", Name: "a"}},
		{"Kubernetes' own alone, which is not served", Served{XK8s: true}, inGroup("p", "a"), Ref{Source: Native, Namespace: "ns", Name: "a"}},
		{"a group of Kubernetes that is not understood", Served{}, ofUnknownGroup("p"), Ref{Source: Native, Namespace: "ns", Name: ""}},
		{"a group of Kubernetes that is not understood, and other gangs", both, ofUnknownGroup("p", groupLabel, "b", gangLabel, "c"), Ref{Source: Native, Namespace: "ns", Name: ""}},
		{"a group of Kubernetes without a name", both, inGroup("p", ""), Ref{Source: Native, Namespace: "ns", Name: ""}},
		{"the label of the scheduler plugins alone, which are not served", Served{}, pod("p", groupLabel, "b"), Ref{Source: XK8s, Namespace: "ns", Name: "b"}},
		{"that label and a group of Kubernetes, which are not served", Served{}, inGroup("p", "a", groupLabel, "b"), Ref{Source: Native, Namespace: "ns", Name: "a"}},
		{"an empty label of the scheduler plugins", both, pod("p", groupLabel, ""), Ref{}},
		{"an empty label of ours", both, pod("p", gangLabel, ""), Ref{Source: Label, Namespace: "ns", Name: ""}},
		{"an annotation of gangs alone", both, pod("p", required, "nvlink"), Ref{Source: Label, Namespace: "ns", Name: ""}},
		{"an annotation of gangs and a PodGroup", both, pod("p", required, "nvlink", groupLabel, "b"), Ref{Source: XK8s, Namespace: "ns", Name: "b"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, ok := newWorld(test.served).Of(test.pod)
			if got != test.want || ok != (test.want != Ref{}) {
				t.Errorf("%+v, %v; want %+v", got, ok, test.want)
			}
		})
	}
}

// ofUnknownGroup returns a pod in a group of a kind that is not known.
func ofUnknownGroup(name string, pairs ...string) *v1.Pod {
	p := pod(name, pairs...)
	p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{}
	return p
}

// The copy of a pod in the scheduler's cache has a name for a group that is not understood, without which that scheduler ends with
// a panic.
func TestNameGroup(t *testing.T) {
	p := ofUnknownGroup("p")
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	kept, err := nameGroup(p)
	if err != nil || kept != p || p.Spec.SchedulingGroup.PodGroupName == nil || *p.Spec.SchedulingGroup.PodGroupName != "" || p.ManagedFields != nil {
		t.Errorf("%v, %+v", err, p)
	}
	named, _ := nameGroup(inGroup("p", "a"))
	if got := membership.GangsOf(named.(*v1.Pod)); got.Native != "a" {
		t.Errorf("the group's name became %q", got.Native)
	}
	if got, err := nameGroup(cache.DeletedFinalStateUnknown{Key: "ns/p"}); err != nil || got != any(cache.DeletedFinalStateUnknown{Key: "ns/p"}) {
		t.Errorf("%v, %v", got, err)
	}
}

// A pod whose group cannot be read is in a gang that says why, so that it is never scheduled alone.
func TestGroupsThatAreNotUnderstood(t *testing.T) {
	w := newWorld(Served{})
	w.put(t, ofUnknownGroup("a"), inGroup("b", "g"), pod("c", groupLabel, "x"))
	const unknown = "spec.schedulingGroup: it names no PodGroup, and this scheduler understands no other group: the pod is in a group, so it is not " +
		"scheduled alone; name a PodGroup by podGroupName, or leave the field out; the field is immutable: the pod must be replaced"
	const unserved = "spec.schedulingGroup.podGroupName names PodGroup g, and the API server serves no PodGroups of scheduling.k8s.io that this " +
		"scheduler reads, neither in v1beta1 nor in v1: serve them, or leave the field out"
	const plugins = "the label scheduling.x-k8s.io/pod-group names PodGroup x, and the API server serves no PodGroups of scheduling.x-k8s.io that this scheduler " +
		"reads: serve v1alpha1, or remove the label"
	for _, test := range []struct {
		source     Source
		name, want string
		waits      bool
	}{{Native, "", unknown, false}, {Native, "g", unserved, true}, {XK8s, "x", plugins, true}} {
		gang, err := w.Gang(Ref{Source: test.source, Namespace: "ns", Name: test.name})
		var problem *Problem
		if !errors.As(err, &problem) || problem.Message != test.want || problem.Waits != test.waits || gang == nil || len(gang.Members) != 1 {
			t.Errorf("gang %q: %v\n%+v", test.name, err, gang)
		}
	}
}

func TestGang(t *testing.T) {
	l, n, x := Ref{Source: Label, Namespace: "ns", Name: "g"}, Ref{Source: Native, Namespace: "ns", Name: "g"}, Ref{Source: XK8s, Namespace: "ns", Name: "g"}
	bound := func(p *v1.Pod) *v1.Pod { return with(p, func(p *v1.Pod) { p.Spec.NodeName = "n1" }) }
	leaving := func(p *v1.Pod) *v1.Pod {
		return with(p, func(p *v1.Pod) { p.DeletionTimestamp = new(metav1.Unix(1, 0)) })
	}
	gated := func(p *v1.Pod) *v1.Pod {
		return with(p, func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/quota"}} })
	}
	ended := func(p *v1.Pod, phase v1.PodPhase) *v1.Pod {
		return with(p, func(p *v1.Pod) { p.Status.Phase = phase })
	}
	const again = "; correct the annotation and the pod is tried again"
	tests := []struct {
		name    string
		objects []any
		ref     Ref
		want    string
	}{
		{"no member", nil, l, "no gang, waits: no member exists"},
		{"in order", []any{labelled("w-10", "g", "3"), labelled("w-2", "g", "3"), bound(labelled("w-1", "g", "3"))}, l, "3 of [w-1 w-2 w-10]"},
		{"more than needed", []any{labelled("a", "g", "1"), labelled("b", "g", "1")}, l, "1 of [a b]"},
		{"too few", []any{labelled("a", "g", "3"), bound(labelled("b", "g", "3"))}, l, "3 of [a b], waits: 2 of 3 members exist"},
		{"members of other gangs", []any{labelled("a", "g", "2"), labelled("b", "h", "2"), pod("c")}, l, "2 of [a], waits: 1 of 2 members exist"},
		{"another namespace", []any{labelled("a", "g", "2"), with(labelled("b", "g", "2"), func(p *v1.Pod) { p.Namespace = "other" })}, l,
			"2 of [a], waits: 1 of 2 members exist"},
		{"one that leaves is a member and does not count", []any{labelled("a", "g", "2"), leaving(labelled("b", "g", "2"))}, l,
			"2 of [a b], waits: 1 of 2 members exist"},
		{"one with a gate does not count", []any{labelled("a", "g", "2"), gated(labelled("b", "g", "2"))}, l,
			"2 of [a b], waits: 1 of 2 members are without scheduling gates: it waits until the gate example.com/quota of pod b is removed"},
		{"one more has a gate", []any{labelled("a", "g", "2"), gated(labelled("b", "g", "2")), labelled("c", "g", "2")}, l, "2 of [a b c]"},
		{"one with a gate, and one is missing", []any{labelled("a", "g", "3"), gated(labelled("b", "g", "3"))}, l, "3 of [a b], waits: 2 of 3 members exist"},
		{"one that leaves may differ", []any{labelled("a", "g", "1"), leaving(labelled("b", "g", "2"))}, l, "1 of [a b]"},
		{"all leave", []any{leaving(labelled("a", "g", "1")), leaving(labelled("b", "g", "1"))}, l, "1 of [a b], waits: 0 of 1 members exist"},
		{"one that ended is none", []any{labelled("a", "g", "1"), ended(labelled("b", "g", "2"), v1.PodSucceeded), ended(labelled("c", "g", "2"), v1.PodFailed),
			ended(labelled("d", "g", "1"), v1.PodRunning)}, l, "1 of [a d]"},
		{"levels", []any{labelled("a", "g", "1", required, "zone", preferred, "nvlink, rack")}, l, "1 of [a] within [zone] near [nvlink rack]"},
		{"no number", []any{pod("a", gangLabel, "g")}, l, "0 of [a], wrong: pod a: metadata.annotations[tandem-gpu.io/min-members]: it is missing: " +
			"it must be a whole number from 1 to 10000, the least number of members that may run" + again},
		{"wrong levels", []any{labelled("a", "g", "1", required, "nvlink", preferred, "rack")}, l, "1 of [a], wrong: pod a: " +
			`metadata.annotations[tandem-gpu.io/preferred-topology]: "rack" is not legal, it must not list rack: nvlink is required, and nothing is closer` + again},
		{"replicas of a LeaderWorkerSet", []any{labelled("a", "g", "1", replica, "0"), labelled("b", "g", "1", replica, "1")}, l,
			`1 of [a b], wrong: pod a: the members are of several replicas of a LeaderWorkerSet: label leaderworkerset.sigs.k8s.io/group-index is "0" of pod a and "1" of pod b, ` +
				"and 1 of the 2 members may run without the others; a gang of groups, each of them whole or absent, is not supported: " +
				"make a LeaderWorkerSet with one replica and a gang of its own for each, or have the least number of members be that of all pods"},
		{"a replica, and a pod of none", []any{labelled("a", "g", "1"), labelled("b", "g", "1", replica, "1")}, l,
			`1 of [a b], wrong: pod a: the members are of several replicas of a LeaderWorkerSet: label leaderworkerset.sigs.k8s.io/group-index is none of pod a and "1" of pod b, ` +
				"and 1 of the 2 members may run without the others; a gang of groups, each of them whole or absent, is not supported: " +
				"make a LeaderWorkerSet with one replica and a gang of its own for each, or have the least number of members be that of all pods"},
		{"one replica", []any{labelled("a", "g", "1", replica, "1"), labelled("b", "g", "1", replica, "1")}, l, "1 of [a b]"},
		{"all pods of replicas", []any{labelled("a", "g", "2", replica, "0"), labelled("b", "g", "2", replica, "1")}, l, "2 of [a b]"},
		{"no name", []any{pod("a", minMembers, "2"), pod("b", gangLabel, "")}, Ref{Source: Label, Namespace: "ns", Name: ""}, "0 of [a b], wrong: " + membership.NamelessGang().Error()},
		{"unlike numbers", []any{labelled("a", "g", "2"), labelled("b", "g", "2"), labelled("c", "g", "3")}, l,
			`0 of [a b c], wrong: the members differ in metadata.annotations[tandem-gpu.io/min-members]: "2" of pod a, "3" of pod c; it must be the same for all members of a gang`},
		{"unlike priority", []any{labelled("a", "g", "2"), with(labelled("b", "g", "2"), func(p *v1.Pod) { p.Spec.Priority = new(int32(7)) })}, l,
			`0 of [a b], wrong: the members differ in spec.priority: 0 of pod a, 7 of pod b; it must be the same for all members of a gang`},
		{"unlike schedulers", []any{labelled("a", "g", "2"), with(labelled("b", "g", "2"), func(p *v1.Pod) { p.Spec.SchedulerName = "default-scheduler" })}, l,
			`0 of [a b], wrong: the members differ in spec.schedulerName: tandem-scheduler of pod a, default-scheduler of pod b; it must be the same for all members of a gang`},
		{"unlike preemption", []any{labelled("a", "g", "2"), with(labelled("b", "g", "2"), func(p *v1.Pod) { p.Spec.PreemptionPolicy = new(v1.PreemptNever) })}, l,
			`0 of [a b], wrong: the members differ in spec.preemptionPolicy: PreemptLowerPriority of pod a, Never of pod b; it must be the same for all members of a gang`},
		{"unlike levels", []any{labelled("a", "g", "2", required, "zone"), labelled("b", "g", "2")}, l,
			`0 of [a b], wrong: the members differ in metadata.annotations[tandem-gpu.io/required-topology]: "zone" of pod a, none of pod b; it must be the same for all members of a gang`},
		{"PodGroup of Kubernetes", []any{inGroup("a", "g"), inGroup("b", "g", minMembers, "9"), nativeGang("g", 2)}, n, "2 of [a b]"},
		{"basic policy", []any{inGroup("a", "g"), podGroup(Native, "g", map[string]any{"schedulingPolicy": map[string]any{"basic": map[string]any{}}}, nil)}, n, "1 of [a]"},
		{"part of a composite group", []any{inGroup("a", "g"), podGroup(Native, "g", map[string]any{
			"parentCompositePodGroupName": "c", "schedulingPolicy": map[string]any{"basic": map[string]any{}},
		}, nil)}, n, "0 of [a], wrong: PodGroup ns/g: spec.parentCompositePodGroupName: \"c\" is not legal, CompositePodGroups are not supported yet, " +
			"and its members are not scheduled without the groups beside it: make the PodGroup anew without a parent; correct it and the pods are tried again"},
		{"no policy", []any{inGroup("a", "g"), podGroup(Native, "g", map[string]any{}, nil)}, n,
			"0 of [a], wrong: PodGroup ns/g: spec.schedulingPolicy: it must be gang or basic; correct it and the pods are tried again"},
		{"a number that is none", []any{inGroup("a", "g"), nativeGang("g", 0)}, n,
			`0 of [a], wrong: PodGroup ns/g: spec.schedulingPolicy.gang.minCount: "0" is not legal, it must be 1 or more; correct it and the pods are tried again`},
		{"constraints", []any{inGroup("a", "g", preferred, "nvlink"), podGroup(Native, "g", map[string]any{
			"schedulingPolicy":      map[string]any{"basic": map[string]any{}},
			"schedulingConstraints": map[string]any{"topology": []any{map[string]any{"key": "rack"}, map[string]any{"key": "rack"}}},
		}, map[string]string{required: "zone,rack"})}, n, "1 of [a] within [rack zone] near [nvlink]"},
		{"a constraint that is preferred too", []any{inGroup("a", "g", preferred, "rack"), podGroup(Native, "g", map[string]any{
			"schedulingPolicy":      map[string]any{"basic": map[string]any{}},
			"schedulingConstraints": map[string]any{"topology": []any{map[string]any{"key": "rack"}}},
		}, nil)}, n, "1 of [a], wrong: pod a and its PodGroup: " +
			`metadata.annotations[tandem-gpu.io/preferred-topology]: "rack" is not legal, it must not list rack: the level is required` + again},
		{"no PodGroup of Kubernetes", []any{inGroup("a", "g"), xk8sGang("g", 1)}, n, "0 of [a], waits: PodGroup ns/g of scheduling.k8s.io does not exist: create it"},
		{"no PodGroup of the scheduler plugins", []any{pod("a", groupLabel, "g"), nativeGang("g", 1)}, x, "0 of [a], waits: PodGroup ns/g of scheduling.x-k8s.io does not exist: " +
			"create it, or remove the label scheduling.x-k8s.io/pod-group from the pods"},
		{"PodGroup of the scheduler plugins", []any{pod("a", groupLabel, "g"), xk8sGang("g", 2)}, x, "2 of [a], waits: 1 of 2 members exist"},
		{"no least number", []any{pod("a", groupLabel, "g"), podGroup(XK8s, "g", map[string]any{}, nil)}, x, "0 of [a], wrong: PodGroup ns/g: spec.minMember: it is missing: " +
			"it must be a whole number from 1 to 10000, the least number of members that may run; correct it and the pods are tried again"},
		{"a least number of 0", []any{pod("a", groupLabel, "g"), xk8sGang("g", 0)}, x, `0 of [a], wrong: PodGroup ns/g: spec.minMember: "0" is not legal, ` +
			"it must be a whole number from 1 to 10000, the least number of members that may run; correct it and the pods are tried again"},
		{"a least number that is text", []any{pod("a", groupLabel, "g"), podGroup(XK8s, "g", map[string]any{"minMember": "two"}, nil)}, x,
			`0 of [a], wrong: PodGroup ns/g: spec.minMember: "two" is not legal, ` +
				"it must be a whole number from 1 to 10000, the least number of members that may run; correct it and the pods are tried again"},
		{"the PodGroup's levels win", []any{
			pod("a", groupLabel, "g", required, "zone", preferred, "nvlink"), pod("b", groupLabel, "g", required, "rack", preferred, "nvlink"),
			podGroup(XK8s, "g", map[string]any{"minMember": int64(2)}, map[string]string{required: "row"}),
		}, x, "2 of [a b] within [row] near [nvlink]"},
		{"what the PodGroup leaves open must be alike", []any{
			pod("a", groupLabel, "g", preferred, "nvlink"), pod("b", groupLabel, "g"), podGroup(XK8s, "g", map[string]any{"minMember": int64(2)}, map[string]string{required: "row"}),
		}, x, `0 of [a b], wrong: the members differ in metadata.annotations[tandem-gpu.io/preferred-topology]: "nvlink" of pod a, none of pod b; it must be the same for all members of a gang`},
		{"two names", []any{inGroup("a", "g", groupLabel, "g"), inGroup("b", "g", gangLabel, "h"), nativeGang("g", 2)}, n,
			"0 of [a b], wrong: pod b names two gangs, g by spec.schedulingGroup.podGroupName and h by the label tandem-gpu.io/gang: name one, or both alike"},
		{"two names by labels", []any{pod("a", groupLabel, "g", gangLabel, "h"), xk8sGang("g", 1)}, x,
			"0 of [a], wrong: pod a names two gangs, g by the label scheduling.x-k8s.io/pod-group and h by the label tandem-gpu.io/gang: name one, or both alike"},
		{"one name in all sources", []any{inGroup("a", "g", groupLabel, "g", gangLabel, "g", minMembers, "5"), nativeGang("g", 1), xk8sGang("g", 3)}, n, "1 of [a]"},
		{"one name in several sources by several pods", []any{inGroup("a", "g"), pod("b", groupLabel, "g"), labelled("c", "g", "1"), nativeGang("g", 1), xk8sGang("g", 2)}, x,
			"2 of [b], waits: 1 of 2 members exist"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			// In whatever order the events come.
			for range 2 {
				w := newWorld(both)
				w.put(t, test.objects...)
				if got := said(w, test.ref); got != test.want {
					t.Errorf("got  %s\nwant %s", got, test.want)
				}
				slices.Reverse(test.objects)
			}
		})
	}
}

// An unserved source does not make two names of one.
func TestConflictWithWhatIsNotServed(t *testing.T) {
	w := newWorld(Served{})
	w.put(t, inGroup("a", "x", groupLabel, "y", gangLabel, "g", minMembers, "1"))
	if got := said(w, Ref{Source: Label, Namespace: "ns", Name: "g"}); got != "1 of [a]" {
		t.Error(got)
	}
}

func TestObjectAndCreated(t *testing.T) {
	at := func(p *v1.Pod, seconds int64) *v1.Pod {
		return with(p, func(p *v1.Pod) { p.CreationTimestamp = metav1.Unix(seconds, 0) })
	}
	w := newWorld(both)
	w.put(t, at(labelled("a", "g", "1"), 300), at(labelled("b", "g", "1"), 100), at(labelled("c", "g", "1"), 200), at(inGroup("d", "g"), 50), nativeGang("g", 1))
	byLabel, err := w.Gang(Ref{Source: Label, Namespace: "ns", Name: "g"})
	if err != nil || !byLabel.Created.Equal(time.Unix(100, 0)) || byLabel.Object != nil {
		t.Errorf("gang by label: %+v, %v", byLabel, err)
	}
	byGroup, err := w.Gang(Ref{Source: Native, Namespace: "ns", Name: "g"})
	if err != nil || !byGroup.Created.Equal(time.Unix(1000, 0)) {
		t.Errorf("gang with a PodGroup: %+v, %v", byGroup, err)
	}
	want := &v1.ObjectReference{APIVersion: "scheduling.k8s.io/v1beta1", Kind: "PodGroup", Namespace: "ns", Name: "g", UID: "uid-of-g"}
	if diff := cmp.Diff(want, byGroup.Object); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
}

// A gang that Gang returned once does not change under its caller.
func TestGangIsNotChanged(t *testing.T) {
	w, ref := newWorld(both), Ref{Source: Label, Namespace: "ns", Name: "g"}
	w.put(t, labelled("b", "g", "1"), labelled("d", "g", "1"))
	before, _ := w.Gang(ref)
	if again, _ := w.Gang(ref); again != before {
		t.Error("a gang of which nothing changed is made anew")
	}
	w.put(t, labelled("a", "g", "1"), labelled("c", "g", "1"))
	w.drop(t, labelled("b", "g", "1"))
	if got := []string{before.Members[0].Name, before.Members[1].Name}; len(before.Members) != 2 || !slices.Equal(got, []string{"b", "d"}) {
		t.Errorf("the gang of before has %v", got)
	}
	if got := said(w, ref); got != "1 of [a c d]" {
		t.Error(got)
	}
}
