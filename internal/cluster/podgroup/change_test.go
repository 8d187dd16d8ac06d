package podgroup

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/test/must"
)

func TestOnChange(t *testing.T) {
	w := newWorld(both)
	var notified []string
	w.OnChange(func(ref Ref) { notified = append(notified, fmt.Sprintf("%s %s", ref.Source, ref)) })
	w.OnChange(func(ref Ref) { notified = append(notified, said(w, ref)) })
	a := labelled("a", "g", "1")
	step := func(name string, do func(), want ...string) {
		t.Helper()
		notified = nil
		do()
		if diff := cmp.Diff(want, notified); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	const g = "label ns/g"
	step("a member comes", func() { w.put(t, a) }, g, "1 of [a]")
	step("the same again", func() { w.put(t, a, a.DeepCopy()) })
	step("its status changes", func() { w.put(t, with(a, func(p *v1.Pod) { p.Status.Phase = v1.PodRunning })) })
	step("it is bound", func() { w.put(t, with(a, func(p *v1.Pod) { p.Spec.NodeName = "n" })) }, g, "1 of [a]")
	step("it is not, after all", func() { w.put(t, a) }, g, "1 of [a]")
	step("an annotation changes", func() { w.put(t, labelled("a", "g", "2")) }, g, "2 of [a], waits: 1 of 2 members exist")
	step("a label changes", func() { w.put(t, labelled("a", "g", "2", "label x", "y")) }, g, "2 of [a], waits: 1 of 2 members exist")
	step("it goes to another gang", func() { w.put(t, labelled("a", "h", "1")) },
		g, "no gang, waits: no member exists", "label ns/h", "1 of [a]")
	step("it leaves every gang", func() { w.put(t, pod("a")) }, "label ns/h", "no gang, waits: no member exists")
	step("a pod of no gang", func() { w.put(t, pod("a", "x", "y")); w.drop(t, pod("a")) })
	w.put(t, a)
	step("it gets a gate", func() {
		w.put(t, with(a, func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "x"}} }))
	}, g, "1 of [a], waits: 0 of 1 members are without scheduling gates: it waits until the gate x of pod a is removed")
	w.put(t, a)
	step("it is made anew", func() { w.put(t, with(a, func(p *v1.Pod) { p.UID = "other" })) }, g, "1 of [a]")
	step("it begins to leave", func() {
		w.put(t, with(a, func(p *v1.Pod) { p.UID, p.DeletionTimestamp = "other", new(metav1.Unix(1, 0)) }))
	},
		g, "1 of [a], waits: 0 of 1 members exist")
	step("it ends", func() { w.put(t, with(a, func(p *v1.Pod) { p.Status.Phase = v1.PodFailed })) }, g, "no gang, waits: no member exists")
	step("it is deleted", func() { w.drop(t, a) })

	const x = "scheduling.x-k8s.io ns/g"
	group := xk8sGang("g", 1)
	step("a PodGroup without members", func() { w.put(t, group); w.drop(t, group) })
	w.put(t, pod("b", groupLabel, "g"))
	step("a PodGroup comes", func() { w.put(t, group) }, x, "1 of [b]")
	moved := group.DeepCopy()
	moved.SetResourceVersion("7")
	moved.Object["status"] = map[string]any{"phase": "Running"}
	step("its status changes", func() { w.put(t, moved) })
	step("its spec changes", func() { w.put(t, xk8sGang("g", 2)) }, x, "2 of [b], waits: 1 of 2 members exist")
	wrong := func(value string) string {
		return `0 of [b], wrong: PodGroup ns/g: spec.minMember: "` + value + `" is not legal, it must be a whole number from 1 to 10000, ` +
			"the least number of members that may run; correct it and the pods are tried again"
	}
	const missing = "0 of [b], waits: PodGroup ns/g of scheduling.x-k8s.io does not exist: create it, or remove the label scheduling.x-k8s.io/pod-group from the pods"
	step("it becomes wrong", func() { w.put(t, xk8sGang("g", -1)) }, x, wrong("-1"))
	step("it is wrong in another way", func() { w.put(t, xk8sGang("g", -2)) }, x, wrong("-2"))
	step("it goes", func() { w.drop(t, group) }, x, missing)
	step("all are told", w.notifyAll, x, missing)
}

func TestSee(t *testing.T) {
	w, ref := newWorld(both), Ref{Source: Label, Namespace: "ns", Name: "g"}
	var notified []Ref
	w.OnChange(func(ref Ref) { notified = append(notified, ref) })
	a, b := labelled("a", "g", "2"), labelled("b", "g", "2")
	w.put(t, a)
	w.See(b)
	if got := said(w, ref); got != "2 of [a], waits: 1 of 2 members exist" {
		t.Errorf("the store does not have the second: %s", got)
	}
	must.OK(t, w.pods.Add(b))
	notified = nil
	w.See(b)
	if got := said(w, ref); got != "2 of [a b]" || len(notified) != 0 {
		t.Errorf("seen: %s, told %v", got, notified)
	}
	w.podChanged(b)
	if !slices.Equal(notified, []Ref{ref}) {
		t.Errorf("its event told %v", notified)
	}
	notified = nil
	if w.put(t, b.DeepCopy()); len(notified) > 0 {
		t.Errorf("an event of no change told %v", notified)
	}
	// Made anew under the same name, and in another gang.
	c := labelled("b", "h", "1")
	c.UID = "other"
	must.OK(t, w.pods.Update(c))
	notified = nil
	w.See(c)
	if got := said(w, ref) + "; " + said(w, Ref{Source: Label, Namespace: "ns", Name: "h"}); got != "2 of [a], waits: 1 of 2 members exist; 1 of [b]" || len(notified) != 0 {
		t.Errorf("seen anew: %s, told %v", got, notified)
	}
	w.podChanged(c)
	if !slices.Equal(notified, []Ref{ref, {Source: Label, Namespace: "ns", Name: "h"}}) {
		t.Errorf("its event told %v", notified)
	}
	// Its status has changed before its first event comes.
	e := labelled("e", "e", "1")
	must.OK(t, w.pods.Add(e))
	w.See(e)
	must.OK(t, w.pods.Update(with(e, func(p *v1.Pod) { p.Status.Phase = v1.PodPending })))
	notified = nil
	w.podChanged(e)
	if !slices.Equal(notified, []Ref{{Source: Label, Namespace: "ns", Name: "e"}}) {
		t.Errorf("its event after a change of status told %v", notified)
	}
	// Gone before its event came.
	d := labelled("d", "g", "2")
	must.OK(t, w.pods.Add(d))
	w.See(d)
	must.OK(t, w.pods.Delete(d))
	notified = nil
	w.podChanged(d)
	w.podChanged(cache.DeletedFinalStateUnknown{Key: "ns/d", Obj: d})
	w.See(d)
	if got := said(w, ref); got != "2 of [a], waits: 1 of 2 members exist" || !slices.Equal(notified, []Ref{ref}) {
		t.Errorf("gone: %s, told %v", got, notified)
	}
}

// history is a world that changes at random. Events come in order, some time after the store has changed.
type history struct {
	*world
	events []func()
	// notified is what Gang returned when a gang was told last.
	notified map[Ref]string
	uids     int
}

var (
	podNames  = []string{"w-1", "w-2", "w-10", "x"}
	gangNames = []string{"g", "h"}
)

// change changes one pod or PodGroup.
func (h *history) change(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "kind") == 0 {
		h.changeGroup(t)
		return
	}
	p := h.draw(t)
	before, exists, _ := h.pods.Get(p)
	switch op := rapid.SampledFrom([]string{"set", "set", "touch", "delete", "lose", "end"}).Draw(t, "op"); {
	case op == "touch" && exists:
		p = before.(*v1.Pod).DeepCopy()
		p.Status.Message = fmt.Sprint(h.uids)
		_ = h.pods.Update(p)
		h.events = append(h.events, func() { h.podChanged(p) })
	case op == "end" && exists:
		p = before.(*v1.Pod).DeepCopy()
		p.Status.Phase = v1.PodSucceeded
		fallthrough
	case op == "set" || op == "touch" || op == "end":
		if exists && rapid.Bool().Draw(t, "same pod") {
			p.UID = before.(*v1.Pod).UID
		}
		_ = h.pods.Update(p)
		h.events = append(h.events, func() { h.podChanged(p) })
	case !exists:
	case op == "delete":
		_ = h.pods.Delete(p)
		h.events = append(h.events, func() { h.podChanged(before) })
	default: // the watch broke: the last state is an older one
		_ = h.pods.Delete(p)
		h.events = append(h.events, func() { h.podChanged(cache.DeletedFinalStateUnknown{Key: "ns/" + p.Name, Obj: p}) })
	}
}

// draw draws a pod, of any gangs or none.
func (h *history) draw(t *rapid.T) *v1.Pod {
	p := pod(rapid.SampledFrom(podNames).Draw(t, "name"))
	h.uids++
	p.UID = types.UID(fmt.Sprint(h.uids))
	maybe := func(what string, set func(string)) {
		if rapid.IntRange(0, 2).Draw(t, what) > 0 {
			set(rapid.SampledFrom(gangNames).Draw(t, what+" name"))
		}
	}
	maybe("native", func(name string) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name} })
	maybe("x-k8s", func(name string) { p.Labels["scheduling.x-k8s.io/pod-group"] = name })
	maybe("label", func(name string) { p.Labels["tandem-gpu.io/gang"] = name })
	p.Annotations[minMembers] = rapid.SampledFrom([]string{"1", "2", "2", "2", "x"}).Draw(t, "members")
	if rapid.IntRange(0, 9).Draw(t, "leaves") == 0 {
		p.DeletionTimestamp = new(metav1.Unix(1, 0))
	}
	if rapid.Bool().Draw(t, "bound") {
		p.Spec.NodeName = "n"
	}
	if rapid.IntRange(0, 5).Draw(t, "indexed") == 0 {
		p.Labels["apps.kubernetes.io/pod-index"] = "3"
	}
	return p
}

func (h *history) changeGroup(t *rapid.T) {
	name := rapid.SampledFrom(gangNames).Draw(t, "group")
	group := xk8sGang(name, rapid.Int64Range(0, 3).Draw(t, "min"))
	if rapid.Bool().Draw(t, "native") {
		group = nativeGang(name, rapid.Int64Range(0, 3).Draw(t, "min"))
	}
	source, store := h.of(group)
	old, exists, _ := store.Get(group)
	if exists && rapid.Bool().Draw(t, "delete") {
		_ = store.Delete(group)
		h.events = append(h.events, func() { h.groupChanged(source, nil, old) })
		return
	}
	now, _ := condense(group)
	_ = store.Update(now)
	h.events = append(h.events, func() { h.groupChanged(source, old, now) })
}

// TestSetProperty: after any sequence of events a Set is the same as one that hears of all objects for the first time, has
// the members that the pods say, and has told every gang since it changed last.
func TestSetProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		served := Served{Native: rapid.SampledFrom([]string{"", "v1beta1", "v1"}).Draw(t, "native"), XK8s: rapid.Bool().Draw(t, "x-k8s")}
		h := &history{world: newWorld(served), notified: map[Ref]string{}}
		h.OnChange(func(ref Ref) { h.notified[ref] = h.detail(ref) })
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				h.See(h.draw(t))
			case 1:
				h.seeStored(t)
			case 2, 3:
				if len(h.events) > 0 {
					h.events[0]()
					h.events = h.events[1:]
				}
			default:
				h.change(t)
			}
		}
		for _, event := range h.events {
			event()
		}
		h.check(t)
	})
}

// seeStored sees what the store has, as PreEnqueue does.
func (h *history) seeStored(t *rapid.T) {
	for _, object := range h.pods.List() {
		if p := object.(*v1.Pod); rapid.Bool().Draw(t, "see "+p.Name) {
			h.See(p)
		}
	}
}

// detail describes what Gang returns, with all that is told of members.
func (h *history) detail(ref Ref) string {
	text := said(h.world, ref)
	if g, _ := h.Gang(ref); g != nil {
		for _, p := range g.Members {
			text += fmt.Sprintf(" %s/%s/%v", p.UID, p.Spec.NodeName, p.DeletionTimestamp != nil)
		}
	}
	return text
}

func (h *history) check(t *rapid.T) {
	fresh := &history{world: newWorld(h.served)}
	fresh.groups = h.groups
	want := map[Ref][]*v1.Pod{}
	for _, object := range h.pods.List() {
		p := object.(*v1.Pod)
		_ = fresh.pods.Add(p)
		fresh.podChanged(p)
		if ref, ok := h.Of(p); ok && p.Status.Phase != v1.PodSucceeded {
			want[ref] = append(want[ref], p)
		}
	}
	for _, name := range append(slices.Clone(gangNames), "") {
		for _, source := range []Source{Native, XK8s, Label} {
			ref := Ref{Source: source, Namespace: "ns", Name: name}
			if a, b := h.detail(ref), fresh.detail(ref); a != b {
				t.Fatalf("%s %s: %s; notified for the first time: %s", source, ref, a, b)
			}
			if notified, ok := h.notified[ref]; ok && notified != h.detail(ref) || !ok && len(want[ref]) > 0 {
				t.Fatalf("%s %s: told %q, now %q", source, ref, notified, h.detail(ref))
			}
			slices.SortFunc(want[ref], func(a, b *v1.Pod) int {
				if Less(a, b) {
					return -1
				}
				return 1
			})
			var members []*v1.Pod
			if g, _ := h.Gang(ref); g != nil {
				members = g.Members
			}
			if !slices.Equal(members, want[ref]) {
				t.Fatalf("%s %s has %v, the pods say %v", source, ref, uids(members), uids(want[ref]))
			}
		}
	}
	if len(h.gangs) != len(want) || len(h.known) != len(fresh.known) {
		t.Fatalf("%d gangs and %d pods are kept, there are %d and %d", len(h.gangs), len(h.known), len(want), len(fresh.known))
	}
}

func uids(pods []*v1.Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Name+":"+string(p.UID))
	}
	return strings.Join(all, " ")
}
