package gpushare

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/throttle"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// offer sets the slots that the kubelet of a node offers.
func (d *desk) offer(node string, slots int64) {
	n := d.byName[node].Node().DeepCopy()
	n.Status.Allocatable[v1alpha1.ResourceVGPU] = *resource.NewQuantity(slots, resource.DecimalSI)
	d.byName[node].SetNode(n)
}

// A node whose kubelet offers fewer slots than its healthy GPUs have takes nothing; the slots of a sick GPU do not count.
func TestKubeletOffersTooFew(t *testing.T) {
	sick := gpuNode("n1", 2)
	sick.Status.Devices[0].Health = v1alpha1.Unhealthy
	cases := []struct {
		name  string
		node  *v1alpha1.GPUNode
		slots int64
		want  string
	}{
		{name: "all", node: gpuNode("n1", 2), slots: 20},
		{name: "more, while the GPUNode is ahead", node: sick, slots: 20},
		{name: "those of the healthy GPU, while pods on the sick one keep theirs", node: sick, slots: 10},
		{name: "one too few", node: gpuNode("n1", 2), slots: 19, want: tooFewOffered},
		{name: "none, for the agent has crashed", node: gpuNode("n1", 2), want: tooFewOffered},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, c.node)
			old := pod("old", 10)
			d.add(bound(t, old, share(old, "n1", c.node.Status.Devices[0].ID, 10)), "n1")
			d.offer("n1", c.slots)
			p := pod("new", 3)
			expect(t, "the node", d.filter(d.preFilter(p), p, d.nodes[0]), c.want)
			if takes := d.takes(p); takes != (c.want == "") {
				t.Errorf("gangs and preemption may use the node: %v", takes)
			}
		})
	}
}

// The offer is looked at anew when the Node changes and nothing else does.
func TestOfferChanges(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	p := pod("a", 3)
	for _, step := range []struct {
		slots int64
		want  string
	}{{10, ""}, {0, tooFewOffered}, {10, ""}} {
		d.offer("n1", step.slots)
		expect(t, "the node", d.filter(d.preFilter(p), p, d.nodes[0]), step.want)
	}
}

func TestPodsAreTriedWhenMoreIsOffered(t *testing.T) {
	offers := func(slots string) *v1.Node {
		n := &v1.Node{}
		n.Status.Allocatable = v1.ResourceList{v1alpha1.ResourceVGPU: resource.MustParse(slots)}
		return n
	}
	for _, c := range []struct {
		before, after *v1.Node
		want          fwk.QueueingHint
	}{
		{offers("0"), offers("10"), fwk.Queue}, {&v1.Node{}, offers("10"), fwk.Queue},
		{offers("10"), offers("10"), fwk.QueueSkip}, {offers("10"), offers("0"), fwk.QueueSkip},
	} {
		if got, err := afterOffer(klog.Background(), nil, c.before, c.after); got != c.want || err != nil {
			t.Errorf("from %v to %v: %v, %v, want %v", c.before.Status.Allocatable, c.after.Status.Allocatable, got, err, c.want)
		}
	}
}

func TestNodePause(t *testing.T) {
	for refusals, want := range map[int]time.Duration{
		1: 30 * time.Second, 2: time.Minute, 5: 8 * time.Minute, 6: 10 * time.Minute, 100: 10 * time.Minute,
	} {
		if got := nodePause(refusals); got != want {
			t.Errorf("the pause after %d refusals is %v, want %v", refusals, got, want)
		}
	}
}

// place binds a pod to n1, whose devices it reserved before, and shows it to the plugin.
func (d *desk) place(p *v1.Pod) *v1.Pod {
	d.t.Helper()
	cs := d.preFilter(p)
	if got := d.reserve(cs, p, "n1"); got[0] == '(' {
		d.t.Fatalf("pod %s finds no room on n1: %s", p.Name, got)
	}
	a, _ := d.plugin.state.reservation(kube.UIDOf(p), "n1")
	out := bound(d.t, p, a)
	d.tell(event{p, out})
	return out
}

// end has a bound pod end as told, as the informer and the API server show it.
func (d *desk) end(p *v1.Pod, phase v1.PodPhase, reason string) {
	ended := p.DeepCopy()
	ended.Status.Phase, ended.Status.Reason = phase, reason
	d.plugin.requests = throttle.Unlimited(fake.NewClientset(ended))
	d.tell(event{p, nil})
	synctest.Wait()
}

// answer returns what Filter says of n1 to a pod of one slot.
func (d *desk) answer(name string) string {
	p := pod(name, 1)
	return d.filter(d.preFilter(p), p, d.nodes[0])
}

// wait lets time pass, and the plugin look at its pauses.
func (d *desk) wait(by time.Duration) {
	d.later += by
	d.plugin.endPauses(d.t.Context())
}

// A kubelet that refuses a pod gets no other for a pause, and one at a time after that: each refusal doubles the pause.
func TestRefusedByTheKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, gpuNode("n1", 2))
		first, second := d.place(pod("first", 1)), d.place(pod("second", 1))
		d.end(first, v1.PodFailed, "UnexpectedAdmissionError")
		expect(t, "after the first refusal", d.answer("a"), paused)
		d.end(second, v1.PodFailed, "OutOfpods") // was on its way when the first was refused
		d.wait(firstNodePause - time.Second)
		expect(t, "a second before the end of the pause", d.answer("b"), paused)
		d.wait(time.Second)
		expect(t, "after the pause", d.answer("c"), "")

		third := d.place(pod("third", 1))
		expect(t, "while one pod is tried", d.answer("d"), tried)
		d.end(third, v1.PodFailed, "UnexpectedAdmissionError")
		d.wait(2*firstNodePause - time.Second)
		expect(t, "a second before the end of the second pause", d.answer("e"), paused)
		d.wait(time.Second)

		fourth := d.place(pod("fourth", 1))
		running := fourth.DeepCopy()
		running.Status.Phase = v1.PodRunning
		d.tell(event{fourth, running})
		expect(t, "after a pod was taken", d.answer("f"), "")
		fifth := d.place(pod("fifth", 1))
		expect(t, "while nothing is in doubt", d.answer("g"), "")
		d.end(fifth, v1.PodFailed, "UnexpectedAdmissionError")
		d.wait(firstNodePause)
		expect(t, "after a first pause again", d.answer("h"), "")
		if got := d.plugin.state.pauses(); got != 0 {
			t.Errorf("%d nodes are paused, want none", got)
		}
	})
}

// An end that says nothing of the node keeps no pod from it.
func TestNoRefusal(t *testing.T) {
	byHand := func(p *v1.Pod) { p.Annotations = nil }
	leaving := func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	running := func(p *v1.Pod) { p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main"}} }
	cases := []struct {
		name   string
		change func(*v1.Pod) // of the pod that the informer had
		phase  v1.PodPhase
		reason string
		want   string
	}{
		{name: "refused", phase: v1.PodFailed, reason: "UnexpectedAdmissionError", want: paused},
		{name: "out of slots", phase: v1.PodFailed, reason: "OutOftandem-gpu.io/vgpu", want: paused},
		{name: "put there by hand", change: byHand, phase: v1.PodFailed, reason: "UnexpectedAdmissionError"},
		{name: "its own fields", phase: v1.PodFailed, reason: "SysctlForbidden"},
		{name: "its program failed at once", phase: v1.PodFailed},
		{name: "it ended at once", phase: v1.PodSucceeded},
		{name: "it had begun", change: running, phase: v1.PodFailed, reason: "UnexpectedAdmissionError"},
		{name: "deleted", change: leaving, phase: v1.PodFailed, reason: "UnexpectedAdmissionError"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, gpuNode("n1", 1))
				p := d.place(pod("a", 1))
				if c.change != nil {
					c.change(p)
				}
				d.end(p, c.phase, c.reason)
				expect(t, "the node", d.answer("b"), c.want)
			})
		})
	}
}

// A trial of which nothing is heard ends with its pod, and the next pod is tried.
func TestTrialWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, gpuNode("n1", 1))
		d.end(d.place(pod("first", 1)), v1.PodFailed, "UnexpectedAdmissionError")
		d.wait(firstNodePause)

		deleted := d.place(pod("deleted", 1))
		expect(t, "while a pod is tried", d.answer("a"), tried)
		d.plugin.requests = throttle.Unlimited(fake.NewClientset())
		d.tell(event{deleted, nil})
		synctest.Wait()
		expect(t, "after it was deleted", d.answer("b"), "")

		p := pod("unbound", 1)
		cs := d.preFilter(p)
		d.reserve(cs, p, "n1")
		expect(t, "while a pod is bound", d.answer("c"), tried)
		d.unreserve(cs, p, "n1")
		expect(t, "after its bind failed", d.answer("d"), "")

		p = pod("unbound and deleted", 1)
		cs = d.preFilter(p)
		d.reserve(cs, p, "n1")
		expect(t, "while a pod waits for its bind", d.answer("f"), tried)
		d.tell(event{p, nil})
		d.unreserve(cs, p, "n1")
		expect(t, "after it was deleted before its bind", d.answer("g"), "")

		again := d.place(pod("again", 1))
		d.end(again, v1.PodFailed, "UnexpectedAdmissionError")
		d.wait(2*firstNodePause - time.Second)
		expect(t, "the second pause", d.answer("e"), paused)
	})
}

// The members of a gang are tried together: their plan would fall apart if only one of them might go.
func TestGangOnTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, gpuNode("n1", 1))
		d.end(d.place(pod("first", 1)), v1.PodFailed, "UnexpectedAdmissionError")
		if takes := d.takes(pod("look", 1)); takes {
			t.Error("gangs and preemption may use a node that is paused")
		}
		d.wait(firstNodePause)
		if takes := d.takes(pod("look", 1)); !takes {
			t.Error("gangs and preemption may not use a node after its pause")
		}
		members := []*v1.Pod{pod("m-0", 2), pod("m-1", 2)}
		d.plugin.Plans(func(p *v1.Pod) bool { return p.Name[:2] == "m-" })
		for _, m := range members {
			h := vgpu.Hold{Assignment: share(m, "n1", "GPU-n1-0", 2)}
			must.OK(t, d.plugin.Hold(h))
		}
		d.place(members[0])
		if takes := d.takes(pod("look", 1)); takes {
			t.Error("gangs and preemption may use a node on trial")
		}
		expect(t, "the other member", d.filter(d.preFilter(members[1]), members[1], d.nodes[0]), "")
		expect(t, "a pod of its own", d.answer("a"), tried)
		d.place(members[1])
	})
}

// takes reports whether plugins that place several pods may use n1.
func (d *desk) takes(p *v1.Pod) bool {
	d.t.Helper()
	ledgers, err := d.plugin.Ledgers(d.t.Context(), p, d.nodes, func(string) bool { return false })
	must.OK(d.t, err)
	free := vgpu.Slots(0)
	for i := range ledgers[0].Devices() {
		if ledgers[0].Devices()[i].Healthy {
			free += ledgers[0].FreeFor(i, &vgpu.Request{}).Slots
		}
	}
	return free > 0
}
