package gpushare

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/bubble"
	"github.com/tandem-gpu/tandem/test/must"
)

// waitingPods has n1 with 3 of 10 slots free and n2 full, and pods that wait: those named for devices lack them alone.
func waitingPods(t *testing.T) *desk {
	d := newDesk(t, gpuNode("n1", 1), gpuNode("n2", 1))
	for node, slots := range map[string]int{"n1": 7, "n2": 10} {
		p := pod("runs-"+node, slots)
		seen := bound(t, p, share(p, node, "GPU-"+node+"-0", vgpu.Slots(slots)))
		d.add(seen, node)
		d.store(seen)
	}
	d.preFilter(pod("any", 1))
	for _, w := range []struct {
		pod       *v1.Pod
		onDevices bool
	}{
		{pod("devices-3", 3), true}, {pod("devices-4", 4), true}, {pod("anywhere-4", 4), false}, {pod("held-4", 4), true},
		{tenant("corrected", "before", 4), true},
	} {
		d.store(w.pod)
		d.plugin.pending.add(w.pod)
		d.plugin.pending.note(w.pod, nil, &attempt{onDevices: w.onDevices})
	}
	d.store(pod("plain", 0))
	untried := pod("untried-4", 4)
	d.store(untried)
	d.plugin.pending.add(untried)
	return d
}

func (d *desk) store(p *v1.Pod) {
	d.t.Helper()
	must.OK(d.t, d.indexer.Update(p))
}

func namesOf(r fwk.PreQueueingHintResult) []string {
	if r.AllPods {
		return []string{"all"}
	}
	var all []string
	for _, p := range r.Pods {
		all = append(all, p.Name)
	}
	slices.Sort(all)
	return all
}

// The framework asks about the pods that a departure may help, and passes over all others.
func TestWhoMayGain(t *testing.T) {
	d := waitingPods(t)
	must.OK(t, d.plugin.Hold(vgpu.Hold{Assignment: share(pod("held-4", 4), "n2", "GPU-n2-0", 4)}))
	d.plugin.Plans(func(p *v1.Pod) bool { return p.Labels[inGang] != "" })
	on := func(node string, slots int) *v1.Pod {
		return with(pod("former", slots), func(p *v1.Pod) { p.Spec.NodeName = node })
	}
	for _, c := range []struct {
		what string
		old  any
		want []string
	}{
		{"a pod with vGPUs left n1", on("n1", 1), []string{"anywhere-4", "devices-3", "held-4", "plain", "untried-4"}},
		{"a pod without vGPUs left n1", on("n1", 0), []string{"anywhere-4", "held-4", "plain", "untried-4"}},
		{"a pod with vGPUs left n2", on("n2", 1), []string{"anywhere-4", "held-4", "plain", "untried-4"}},
		{"a member of a gang left", with(on("n2", 1), func(p *v1.Pod) { p.Labels = map[string]string{inGang: "yes"} }), []string{"all"}},
		{"a pod left that had no node", pod("former", 1), []string{"all"}},
		{"nobody knows what left", nil, []string{"all"}},
	} {
		got, err := d.plugin.whoMayGain(d.logger(), c.old, nil)
		must.OK(t, err)
		if diff := cmp.Diff(c.want, namesOf(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
	got, _ := d.plugin.whoMayJoin(d.logger(), nil, on("n1", 1))
	if diff := cmp.Diff([]string{"anywhere-4", "plain", "untried-4"}, namesOf(got)); diff != "" {
		t.Errorf("a pod came (-want +got):\n%s", diff)
	}
}

// The note of a pod holds until its next attempt, or until its user changes it.
func TestWhoMayGainNext(t *testing.T) {
	d := waitingPods(t)
	left := with(pod("former", 1), func(p *v1.Pod) { p.Spec.NodeName = "n1" })
	named := func(name string) bool {
		got, err := d.plugin.whoMayGain(d.logger(), left.DeepCopy(), nil)
		must.OK(t, err)
		return slices.Contains(namesOf(got), name)
	}
	if named("devices-4") || named("corrected") {
		t.Fatal("pods of 4 slots are named, 3 are free")
	}
	d.plugin.PreEnqueue(t.Context(), pod("devices-4", 4))
	if !named("devices-4") {
		t.Error("a pod is not named while the scheduler tries it")
	}
	d.plugin.pending.note(pod("devices-4", 4), nil, &attempt{onDevices: true})
	if named("devices-4") {
		t.Error("a pod is named after its attempt")
	}
	d.plugin.pending.add(tenant("corrected", "before", 3))
	if !named("corrected") {
		t.Error("a pod that was corrected to 3 slots is not named")
	}
	d.plugin.pending.add(tenant("corrected", "before", 4))
	d.plugin.pending.add(tenant("corrected", "after", 4))
	if !named("corrected") {
		t.Error("a pod with other labels is not named, and may be a member of a gang")
	}
	for _, gone := range []*v1.Pod{pod("devices-3", 3), pod("anywhere-4", 4)} {
		d.plugin.pending.remove(gone)
		if named(gone.Name) {
			t.Errorf("pod %s is named after its end", gone.Name)
		}
	}
}

// A pod lacks devices alone where no node with devices refused it for what the departure of any pod may change.
func TestLacksDevices(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1), gpuNode("n2", 1), gpuNode("no-devices", 1))
	if _, err := d.plugin.state.setInventory("no-devices", nil, noGPUs); err != nil {
		t.Fatal(err)
	}
	d.plugin.Plans(func(p *v1.Pod) bool { return p.Labels[inGang] != "" })
	member := with(pod("member", 10), func(p *v1.Pod) { p.Labels = map[string]string{inGang: "yes"} })
	for _, c := range []struct {
		pod  *v1.Pod
		by   [3]string
		want bool
	}{
		{pod("p", 10), [3]string{Name, Name, Name}, true},
		{pod("p", 10), [3]string{Name, names.TaintToleration, names.NodeAffinity}, true},
		{pod("p", 10), [3]string{Name, Name, names.NodeResourcesFit}, true},
		{pod("p", 10), [3]string{Name, names.NodeResourcesFit, Name}, false},
		{pod("p", 10), [3]string{Name, Name, names.InterPodAffinity}, false},
		{pod("p", 10), [3]string{Name, "Foreign", Name}, false},
		{pod("p", 10), [3]string{Name, "", Name}, false},
		{member, [3]string{Name, Name, Name}, false},
	} {
		d.store(c.pod)
		d.plugin.pending.add(c.pod)
		cs := d.preFilter(c.pod)
		statuses := framework.NewDefaultNodeToStatus()
		for i, by := range c.by {
			statuses.Set(d.nodes[i].Node().Name, fwk.NewStatus(fwk.Unschedulable).WithPlugin(by))
		}
		d.plugin.PostFilter(t.Context(), cs, c.pod, statuses)
		if got := d.plugin.pending.pods[c.pod.UID].onDevices; got != c.want {
			t.Errorf("pod %s refused by %q lacks devices alone: %v, want %v", c.pod.Name, c.by, got, c.want)
		}
	}
}

// A pod that lacks CPU on a full node is tried again when the CPU is free, and again when the devices are.
func TestLacksOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 1))
		cpu := func(p *v1.Pod, amount string) *v1.Pod {
			p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(amount)
			return p
		}
		c.createPod(cpu(pod("computes", 0), "9000"))
		c.await("computes", "it is bound", isBound)
		c.createPod(pod("full", 10))
		c.awaitBound("full")
		c.createPod(cpu(pod("wants-both", 2), "5000"))
		c.awaitPending("wants-both", "Insufficient cpu")
		bubble.Rest()
		c.deletePod("computes")
		c.awaitPending("wants-both", "largest free share is 0 of 10 slots")
		bubble.Rest()
		c.deletePod("full")
		c.awaitBound("wants-both")
	})
}

// Pods that wait for other things than devices are tried again as before: the framework passes over none that an event may help.
func TestOthersAreAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 1))
		label := []byte(`{"metadata":{"labels":{"kubernetes.io/hostname":"n1"}}}`)
		if _, err := c.client.CoreV1().Nodes().Patch(t.Context(), "n1", types.StrategicMergePatchType, label, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		placed := func(name string) { c.await(name, "it is bound", isBound) }
		cpu := func(p *v1.Pod, amount string) *v1.Pod {
			p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(amount)
			return p
		}
		near := func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
				{TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "friend"}}},
			}}}
		}
		c.createPod(cpu(pod("busy", 2), "9000"))
		placed("busy")
		c.createPod(cpu(pod("plain", 0), "2000"))
		c.createPod(with(pod("lonely", 1), near))
		c.createPod(pod("large", 9))
		for _, name := range []string{"plain", "lonely", "large"} {
			c.awaitPending(name, "0/1 nodes are available")
		}
		bubble.Rest()
		c.createPod(with(pod("friend", 0), func(p *v1.Pod) { p.Labels = map[string]string{"app": "friend"} }))
		placed("friend")
		placed("lonely")
		c.deletePod("busy")
		placed("plain")
		placed("large")
	})
}
