package gpushare

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// queue is a desk with a scheduling queue in small: pods wait there after an attempt in vain until a hint or the plugin wakes them.
type queue struct {
	*desk
	rt *rapid.T
	// asleep are the pods that wait for an event, awake those that the scheduler tries again some time.
	asleep, awake map[string]*v1.Pod
	// assumed pods have a reservation, running ones are bound.
	assumed, running map[string]*v1.Pod
	made             int
}

// inGang is the label of pods of the queue that belong to a gang.
const inGang = "in-gang"

// No pod sleeps that could be placed, whatever comes and goes: the hints and the plugin's own activations wake each pod for which room
// became free, by the devices that a fresh look at the whole cluster finds free or evictable. At the end Filter refuses each pod that
// sleeps on each node.
func TestNoPodSleepsBesideRoom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q := &queue{
			desk: newDesk(t, gpuNode("n1", 2), gpuNode("n2", 2)), rt: rt, asleep: map[string]*v1.Pod{}, awake: map[string]*v1.Pod{},
			assumed: map[string]*v1.Pod{}, running: map[string]*v1.Pod{},
		}
		q.plugin.Plans(func(p *v1.Pod) bool { return p.Labels[inGang] != "" })
		rt.Repeat(map[string]func(*rapid.T){
			"a pod arrives":  func(*rapid.T) { q.arrive() },
			"a try":          func(*rapid.T) { q.one(q.awake, q.try) },
			"a bind":         func(*rapid.T) { q.one(q.assumed, q.bind) },
			"a bind fails":   func(*rapid.T) { q.one(q.assumed, q.fail) },
			"a pod leaves":   func(*rapid.T) { q.one(q.running, q.leave) },
			"a hold":         func(*rapid.T) { q.one(q.asleep, q.keep) },
			"a waiting goes": func(*rapid.T) { q.one(q.asleep, q.goes) },
			"a wake":         func(*rapid.T) { q.wake() },
			"":               func(*rapid.T) { q.check() },
		})
		q.wake()
		q.checkFilter()
	})
}

func (q *queue) one(of map[string]*v1.Pod, do func(*v1.Pod)) {
	if len(of) > 0 {
		do(of[rapid.SampledFrom(slices.Sorted(maps.Keys(of))).Draw(q.rt, "pod")])
	}
}

func (q *queue) store(p *v1.Pod) {
	must.OK(q.rt, q.indexer.Update(p))
}

func (q *queue) arrive() {
	q.made++
	p := pod(fmt.Sprintf("p%d", q.made), rapid.SampledFrom([]int{1, 2, 3, 5, 7, 10, 20}).Draw(q.rt, "slots"))
	priority := rapid.Int32Range(0, 1).Draw(q.rt, "priority")
	p.Spec.Priority = &priority
	if rapid.IntRange(0, 4).Draw(q.rt, "of a gang") == 0 {
		p.Labels = map[string]string{inGang: "yes"}
	}
	if rapid.Bool().Draw(q.rt, "spares all") {
		never := v1.PreemptNever
		p.Spec.PreemptionPolicy = &never
	}
	q.store(p)
	q.tell(event{nil, p})
	q.awake[p.Name] = p
	q.try(p)
}

// try is a scheduling cycle: the pod is assumed on a node, or sleeps.
func (q *queue) try(p *v1.Pod) {
	delete(q.awake, p.Name)
	q.plugin.pending.noteUnsure(p.UID)
	cs := q.preFilter(p)
	for _, info := range q.nodes {
		name := info.Node().Name
		if q.filter(cs, p, info) == "" && q.reserve(cs, p, name)[0] != '(' {
			q.assumed[p.Name] = q.assume(p, name)
			return
		}
	}
	lacksDevices := rapid.IntRange(0, 3).Draw(q.rt, "lacks devices alone") > 0
	q.plugin.pending.note(p, nil, &attempt{onDevices: lacksDevices && !q.plugin.isMember(p)})
	if q.roomFor(p) != "" {
		q.awake[p.Name] = p // evictions follow, and another try
		return
	}
	q.asleep[p.Name] = p
}

func (q *queue) bind(assumed *v1.Pod) {
	node := assumed.Spec.NodeName
	a, ok := q.plugin.state.reservation(kube.UIDOf(assumed), node)
	if !ok {
		q.rt.Fatalf("pod %s has no reservation", assumed.Name)
	}
	delete(q.assumed, assumed.Name)
	seen := bound(q.t, assumed, a)
	q.remove(assumed, node)
	q.add(seen, node)
	before := q.pod(assumed.Name)
	q.store(seen)
	q.tell(event{before, seen})
	q.running[seen.Name] = seen
}

func (q *queue) fail(assumed *v1.Pod) {
	delete(q.assumed, assumed.Name)
	q.plugin.Unreserve(q.t.Context(), nil, assumed, assumed.Spec.NodeName)
	q.remove(assumed, assumed.Spec.NodeName)
	q.awake[assumed.Name] = q.pod(assumed.Name)
	q.hint(assumed)
}

// leave has a running pod leave. The framework and the plugin learn of it in any order. Members of gangs wake after each departure, and
// all pods after the departure of a member.
func (q *queue) leave(p *v1.Pod) {
	delete(q.running, p.Name)
	q.remove(p, p.Spec.NodeName)
	must.OK(q.rt, q.indexer.Delete(p))
	if rapid.Bool().Draw(q.rt, "the framework first") {
		q.hint(p)
		q.plugin.gone(p)
	} else {
		q.plugin.gone(p)
		q.hint(p)
	}
	for _, asleep := range q.asleep {
		if asleep.Labels[inGang] != "" || p.Labels[inGang] != "" {
			q.rt.Fatalf("pod %s sleeps on after pod %s left, and one is of a gang", asleep.Name, p.Name)
		}
	}
}

// keep keeps room for a pod that waits, as preemption does.
func (q *queue) keep(p *v1.Pod) {
	r, err := readRequest(p)
	must.OK(q.rt, err)
	node := q.plugin.state.nodes[rapid.SampledFrom([]string{"n1", "n2"}).Draw(q.rt, "node")]
	if a, refusal := placement.Assign(node.empty.Clone(), &r, q.plugin.policy); refusal == nil {
		must.OK(q.rt, q.plugin.Hold(vgpu.Hold{Assignment: a, Priority: r.Priority}))
		delete(q.asleep, p.Name) // whoever keeps room for a pod has it tried again
		q.awake[p.Name] = p
	}
}

func (q *queue) goes(p *v1.Pod) {
	delete(q.asleep, p.Name)
	must.OK(q.rt, q.indexer.Delete(p))
	q.plugin.gone(p)
}

// hint asks about the pods that sleep, as the framework does after the departure of a pod, with the feature gate or without.
func (q *queue) hint(left *v1.Pod) {
	named := concerned{}
	first, err := q.plugin.whoMayGain(q.logger(), left, nil)
	must.OK(q.rt, err)
	for _, name := range first.Pods {
		named[name] = sets.Empty{}
	}
	askAll := first.AllPods || rapid.Bool().Draw(q.rt, "without the feature gate")
	for name, p := range q.asleep {
		if !askAll && !named.has(p) {
			continue
		}
		hint, err := q.plugin.afterPodLeft(q.logger(), p, left, nil)
		must.OK(q.rt, err)
		if hint == fwk.Queue {
			delete(q.asleep, name)
			q.awake[name] = p
		}
	}
}

// wake does what the plugin asks for.
func (q *queue) wake() {
	for name := range q.woken() {
		delete(q.asleep, name)
		q.awake[name] = q.pod(name)
	}
}

// woken returns the pods of those that sleep that the plugin has tried again, by name, and ends its requests.
func (q *queue) woken() map[string]bool {
	pods := q.plugin.pending.takeRequested()
	maps.Copy(pods, q.plugin.pending.takeFreed(q.plugin.mayHaveRoom))
	names := map[string]bool{}
	for _, p := range pods {
		names[p.Name] = q.asleep[p.Name] != nil
	}
	maps.DeleteFunc(names, func(_ string, asleep bool) bool { return !asleep })
	return names
}

// check fails where a pod sleeps beside room, and the plugin is not about to wake it.
func (q *queue) check() {
	w := q.plugin.pending
	all, freed := w.all, maps.Clone(w.freed)
	woken := q.woken()
	w.all, w.freed = all, freed
	for _, p := range q.asleep {
		if node := q.roomFor(p); node != "" && !woken[p.Name] {
			q.rt.Fatalf("pod %s sleeps, and has room on node %s", p.Name, node)
		}
	}
}

// checkFilter fails where Filter lets a pod that sleeps pass.
func (q *queue) checkFilter() {
	for _, p := range q.asleep {
		cs := q.preFilter(p)
		for _, info := range q.nodes {
			if q.filter(cs, p, info) == "" {
				q.rt.Fatalf("pod %s sleeps, and passes on node %s", p.Name, info.Node().Name)
			}
		}
	}
}

// pod returns a pod as the informer has it.
func (q *queue) pod(name string) *v1.Pod {
	p, err := q.plugin.state.pods.Pods("default").Get(name)
	must.OK(q.rt, err)
	return p
}

// roomFor returns a node where the pod fits now, or could by evictions, "" for none. It looks at all nodes, without the plugin's memory.
func (q *queue) roomFor(p *v1.Pod) string {
	r, err := readRequest(p)
	must.OK(q.rt, err)
	for _, info := range q.nodes {
		ledger := q.plugin.state.occupancyOf(info).ledger.Clone()
		for _, at := range info.GetPods() {
			if *at.GetPod().Spec.Priority < r.Priority && p.Spec.PreemptionPolicy == nil {
				ledger.Remove(kube.UIDOf(at.GetPod()))
			}
		}
		if placement.Fit(ledger, &r) == nil {
			return info.Node().Name
		}
	}
	return ""
}

// A departure wakes only the pods for which its node may have room, and those about which the node alone says nothing.
func TestDepartureWakesWhoFits(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1), gpuNode("n2", 1))
	runs := map[string]*v1.Pod{}
	for _, node := range []string{"n1", "n2"} {
		for i := range 2 {
			p := pod(fmt.Sprintf("%s-%d", node, i), 5)
			runs[p.Name] = d.add(bound(t, p, share(p, node, "GPU-"+node+"-0", 5)), node)
			must.OK(t, d.indexer.Add(runs[p.Name]))
		}
	}
	wait := func(p *v1.Pod) *v1.Pod {
		d.preFilter(p)
		d.plugin.pending.add(p)
		d.plugin.pending.note(p, nil, nil)
		return p
	}
	left := runs["n1-0"]
	d.remove(left, "n1")
	must.OK(t, d.indexer.Delete(left))
	high := int32(1)
	kept := pod("kept", 10)
	must.OK(t, d.plugin.Hold(vgpu.Hold{Assignment: share(kept, "n2", "GPU-n2-0", 10)}))
	unnoted := pod("unnoted", 10)
	for _, c := range []struct {
		what string
		pod  *v1.Pod
		want fwk.QueueingHint
	}{
		{"as large as what left", wait(pod("five", 5)), fwk.Queue},
		{"larger", wait(pod("six", 6)), fwk.QueueSkip},
		{"larger, and has a hold", wait(kept), fwk.Queue},
		{"larger, and evicts others", wait(with(pod("high", 10), func(p *v1.Pod) { p.Spec.Priority = &high })), fwk.Queue},
		{"larger, of a group", wait(with(pod("grouped", 10), func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{} })), fwk.Queue},
		{"larger, and nothing is known of its last attempt", unnoted, fwk.Queue},
	} {
		if got, err := d.plugin.afterPodLeft(d.logger(), c.pod, left, nil); got != c.want || err != nil {
			t.Errorf("a pod that is %s: %v, %v, want %v", c.what, got, err, c.want)
		}
	}
	member := with(left.DeepCopy(), func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{} })
	if got, _ := d.plugin.afterPodLeft(d.logger(), wait(pod("eight", 8)), member, nil); got != fwk.Queue {
		t.Errorf("after a member of a group left, whose other members may be evictable now: %v", got)
	}
	d.plugin.Release(kube.UIDOf(kept))
	next := pod("next", 3)
	must.OK(t, d.indexer.Add(next))
	five := wait(pod("five more", 5))
	if place := d.reserve(d.preFilter(next), next, "n1"); place != "n1/GPU-n1-0" {
		t.Fatalf("the next pod is on %s", place)
	}
	for _, c := range []struct {
		pod  *v1.Pod
		want fwk.QueueingHint
	}{{five, fwk.QueueSkip}, {wait(pod("two", 2)), fwk.Queue}} {
		if got, _ := d.plugin.afterPodLeft(d.logger(), c.pod, left.DeepCopy(), nil); got != c.want {
			t.Errorf("after another pod took 3 of the 5 slots, pod %s: %v, want %v", c.pod.Name, got, c.want)
		}
	}
	whole := wait(pod("whole", 10))
	other := with(runs["n2-0"].DeepCopy(), func(p *v1.Pod) { p.UID = "of another" })
	must.OK(t, d.indexer.Update(other))
	if got, _ := d.plugin.afterPodLeft(d.logger(), whole, runs["n2-1"], nil); got != fwk.Queue {
		t.Errorf("after one pod of n2 left and another pod has the name of the other: %v", got)
	}
	if got, _ := d.plugin.afterPodLeft(d.logger(), wait(pod("seven", 7)), pod("without", 0), nil); got != fwk.QueueSkip {
		t.Errorf("after a pod without GPUs left: %v", got)
	}
}

// A pod that Reserve refused after Filter is tried again after each departure: no node refused it.
func TestRefusedByReserve(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1), gpuNode("n2", 1))
	first, second, left := pod("first", 10), pod("second", 10), pod("left", 1)
	for _, p := range []*v1.Pod{first, second} {
		must.OK(t, d.indexer.Add(p))
	}
	d.plugin.pending.add(second)
	d.plugin.pending.note(second, nil, nil)
	cs := d.preFilter(second)
	d.reserve(d.preFilter(first), first, "n1") // the NodeInfo has no pod yet
	left.Spec.NodeName = "n1"
	if got, _ := d.plugin.afterPodLeft(d.logger(), second, left, nil); got != fwk.QueueSkip {
		t.Fatalf("the node is full: %v", got)
	}
	if place := d.reserve(cs, second, "n1"); place[0] != '(' {
		t.Fatalf("the second pod is on %s", place)
	}
	if got, _ := d.plugin.afterPodLeft(d.logger(), second, left, nil); got != fwk.Queue {
		t.Errorf("Reserve refused the pod: %v", got)
	}
}

// Room that was kept for a pod, and is kept no longer, wakes those that may use it, although no pod left.
func TestEndOfKeptRoomWakes(t *testing.T) {
	keeper := pod("keeper", 10)
	on := func(node string) vgpu.Hold {
		return vgpu.Hold{Assignment: share(keeper, node, "GPU-"+node+"-0", 10)}
	}
	for what, end := range map[string]func(*desk) error{
		"the pod is gone":              func(d *desk) error { d.plugin.gone(keeper); return nil },
		"the pod is on another node":   func(d *desk) error { d.plugin.state.noteBound(kube.UIDOf(keeper), "n1"); return nil },
		"the hold is on another node":  func(d *desk) error { return d.plugin.Hold(on("n1")) },
		"the hold stays, nothing ends": func(d *desk) error { return d.plugin.Hold(on("n2")) },
		"an attempt began since": func(d *desk) error {
			d.plugin.gone(keeper)
			d.preFilter(pod("fits", 10))
			return nil
		},
		"the bind went elsewhere": func(d *desk) error {
			d.plugin.Release(kube.UIDOf(keeper))
			d.plugin.state.suspend(on("n2").Assignment, d.plugin.now())
			d.plugin.state.noteBound(kube.UIDOf(keeper), "n1")
			return nil
		},
	} {
		d := newDesk(t, gpuNode("n1", 1), gpuNode("n2", 1))
		must.OK(t, d.plugin.Hold(on("n2")))
		for _, p := range []*v1.Pod{pod("fits", 10), pod("large", 20)} {
			d.preFilter(keeper)
			d.plugin.pending.add(p)
			must.OK(t, d.indexer.Add(p))
			d.plugin.pending.note(p, nil, nil)
		}
		must.OK(t, end(d))
		want := []string{"default/fits"}
		if what == "the hold stays, nothing ends" || what == "an attempt began since" {
			want = nil
		}
		got := slices.Sorted(maps.Keys(d.plugin.pending.takeFreed(d.plugin.mayHaveRoom)))
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v are tried again, want %v", what, got, want)
		}
	}
}
