package gpushare

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Each event has the scheduler try the pods again that it may help.
func TestActivatedPods(t *testing.T) {
	d := newDesk(t)
	w := d.plugin.pending
	pods := map[string]*v1.Pod{}
	for name, refusals := range map[string][]vgpu.Refusal{
		"promised": {{Reason: vgpu.NoShareFits, Helps: vgpu.EvictionHelps}, {Reason: vgpu.PromiseBroken, Helps: vgpu.EvictionHelps}},
		"short":    {{Reason: vgpu.NoShareFits, Helps: vgpu.EvictionHelps}},
		"sick":     {{Reason: vgpu.NoShareFits, Helps: vgpu.RecoveryHelps}},
	} {
		pods[name] = tenant(name, "of-"+name, 1)
		w.add(pods[name])
		w.note(pods[name], refusals, nil)
	}
	asked := func(ask func()) []string {
		ask()
		return slices.Sorted(maps.Keys(w.takeRequested()))
	}
	for _, c := range []struct {
		what string
		ask  func()
		want []string
	}{
		{"nothing", func() {}, nil},
		{"a GPUNode", w.activate, []string{"default/promised", "default/short", "default/sick"}},
		{"once", func() {}, nil},
		{"a promise", w.activatePromised, []string{"default/promised"}},
		{"a profile", func() { w.activateFor("default/of-sick") }, []string{"default/promised", "default/sick"}},
		{"a profile of another namespace", func() { w.activateFor("other/of-sick") }, []string{"default/promised"}},
		{"the next attempt was refused otherwise", func() { w.note(pods["promised"], nil, nil); w.activatePromised() }, nil},
	} {
		if diff := cmp.Diff(c.want, asked(c.ask)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

// A pod waits for room from its refusal until it is placed, gone, or refused for another reason.
func TestPodsThatWaitForRoom(t *testing.T) {
	d := newDesk(t)
	w := d.plugin.pending
	room := []vgpu.Refusal{{Reason: vgpu.NoShareFits, Helps: vgpu.EvictionHelps}}
	p, bound := pod("p", 1), with(pod("p", 1), func(p *v1.Pod) { p.Spec.NodeName = "n1" })
	check := func(what string, want bool) {
		t.Helper()
		if got := w.waits(); got != want {
			t.Errorf("%s: a pod waits %v, want %v", what, got, want)
		}
	}
	w.note(p, room, nil)
	check("the informer has not shown it", false)
	if err := d.indexer.Add(p); err != nil {
		t.Fatal(err)
	}
	w.note(p, room, nil)
	w.note(p, room, nil)
	check("refused twice", true)
	w.add(p)
	check("seen again", true)
	w.note(p, nil, nil)
	check("refused for another reason", false)
	w.note(p, []vgpu.Refusal{{Reason: vgpu.NoShareFits, Helps: vgpu.RecoveryHelps}}, nil)
	check("only sick devices could take it", false)
	w.note(p, room, nil)
	d.tell(event{p, bound})
	check("placed", false)
	w.add(p)
	w.note(p, room, nil)
	d.tell(event{p, nil})
	check("gone", false)
}

// A running pod that tolerates more lets those in that wait for it.
func TestRunningPodToleratesMore(t *testing.T) {
	d := newDesk(t)
	waits := tenant("waits", "", 1)
	d.plugin.pending.add(waits)
	d.plugin.pending.note(waits, []vgpu.Refusal{{Reason: vgpu.PromiseBroken, Helps: vgpu.EvictionHelps}}, nil)
	before := tolerating("1.1", tenant("runs", "", 1))
	before.Spec.NodeName = "n1"
	d.tell(event{before, before})
	if got := d.plugin.pending.takeRequested(); len(got) != 0 {
		t.Errorf("nothing changed and %v are tried again", got)
	}
	d.tell(event{before, with(before.DeepCopy(), func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationMaxSlowdown] = "2" })})
	if got := d.plugin.pending.takeRequested(); len(got) != 1 || got["default/waits"] != waits {
		t.Errorf("%v are tried again, want %v", got, klog.KObj(waits))
	}
}
