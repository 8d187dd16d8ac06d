package gpushare

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
)

// addPlain adds a node without GPUs, with 64 cores.
func (d *desk) addPlain(name string) {
	info := framework.NewNodeInfo()
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("64"), v1.ResourcePods: resource.MustParse("110")}
	info.SetNode(n)
	d.nodes = append(d.nodes, info)
	d.byName[name] = info
}

// ranks returns what the pod's node scores are after NormalizeScore, by node; nil where the plugin skips the pod.
func (d *desk) ranks(p *v1.Pod) map[string]int64 {
	d.t.Helper()
	cs := framework.NewCycleState()
	result, status := d.plugin.PreFilter(d.t.Context(), cs, p, d.nodes)
	if status.IsSkip() {
		return nil
	}
	if !status.IsSuccess() {
		d.t.Fatalf("PreFilter(%s) = %v", p.Name, status)
	}
	if status := d.plugin.PreScore(d.t.Context(), cs, p, d.nodes); status.IsSkip() {
		return nil
	}
	var scores fwk.NodeScoreList
	for _, n := range d.nodes {
		if !result.AllNodes() && !result.NodeNames.Has(n.Node().Name) {
			continue
		}
		if got := d.filter(cs, p, n); got != "" {
			d.t.Errorf("pod %s: Filter refuses node %s: %s", p.Name, n.Node().Name, got)
		}
		score, _ := d.plugin.Score(d.t.Context(), cs, p, n)
		scores = append(scores, fwk.NodeScore{Name: n.Node().Name, Score: score})
	}
	d.plugin.NormalizeScore(d.t.Context(), cs, p, scores)
	byName := map[string]int64{}
	for _, s := range scores {
		byName[s.Name] = s.Score
	}
	return byName
}

// A usual request takes 5 slots and 32 cores. A pod of 40 cores strands the two devices of n1 and the one of n2, but
// nothing of n3, which has no slot free; n4 and n5 have no GPUs. n6's agent is not ready: its devices will come back.
func TestPodsWithoutVGPUsAvoidFreeGPUs(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 2), gpuNode("n2", 1), gpuNode("n3", 1), gpuNode("n6", 1))
	d.addPlain("n4")
	d.addPlain("n5")
	d.on("n3", "full", 10, "1", "1Gi")
	d.plugin.state.replace("n6", d.plugin.state.nodes["n6"].empty, notReady)
	d.follow("fgd")
	d.usual(fragmentation.Kind{MilliCPU: 32000, Slots: 5, Weight: 1})
	plain := asking(pod("plain", 0), "40")
	if got := d.ranks(plain); got != nil {
		t.Errorf("podsWithoutGPUs is Skip, and nodes are ranked: %v", got)
	}
	d.plugin.scoresAll = true
	want := map[string]int64{"n4": 100, "n5": 100, "n3": 99, "n2": 98, "n6": 97, "n1": 96}
	if diff := cmp.Diff(want, d.ranks(plain)); diff != "" {
		t.Errorf("ranks (-want +got):\n%s", diff)
	}
	// Only devices are reserved and bound: the pod stays the framework's.
	cs := d.preFilter(plain)
	expect(t, "Reserve", d.plugin.Reserve(t.Context(), cs, plain, "n1").Message(), "")
	if got := d.plugin.state.kept()["reserved"]; got != 0 {
		t.Errorf("%d reservations for a pod without vGPUs", got)
	}
	expect(t, "Bind", d.plugin.Bind(t.Context(), cs, plain, "n1").Code().String(), fwk.Skip.String())
	d.plugin.state.why = "the GPUNodes are not read yet"
	if got := d.ranks(plain); got != nil {
		t.Errorf("before the GPUNodes are read, nodes are ranked: %v", got)
	}
}

func TestSignature(t *testing.T) {
	d := newDesk(t)
	signs := func(p *v1.Pod) bool {
		_, status := d.plugin.SignPod(t.Context(), p)
		return status.IsSuccess()
	}
	if signs(pod("gpu", 1)) || !signs(pod("plain", 0)) {
		t.Error("a pod with vGPUs is signed, or one without is not")
	}
	d.plugin.scoresAll = true
	if signs(pod("gpu", 1)) || signs(pod("plain", 0)) {
		t.Error("a pod is signed although its place changes the scores of the next")
	}
}

// Nodes without GPUs that could take the pod are the whole shortlist, a hundred at a time and all of them in turn. If
// there are none left, the best nodes with GPUs are.
func TestShortlistOfPodsWithoutVGPUs(t *testing.T) {
	var gpuNodes []*v1alpha1.GPUNode
	for i := range 300 {
		gpuNodes = append(gpuNodes, gpuNode(fmt.Sprintf("gpu-%03d", i), 1))
	}
	d := newDesk(t, gpuNodes...)
	d.follow("fgd")
	d.usual(fragmentation.Kind{MilliCPU: 32000, Slots: 5, Weight: 1})
	d.plugin.scoresAll = true
	for i := range 250 {
		d.addPlain(fmt.Sprintf("plain-%03d", i))
	}
	for i := range 10 { // without a slot: the best of the nodes with GPUs
		d.on(fmt.Sprintf("gpu-%03d", 290+i), fmt.Sprintf("full-%d", i), 10, "1", "0")
	}
	p := asking(pod("new", 0), "40")
	seen := sets.Set[string]{}
	for range 3 {
		got := shortlistOf(d, framework.NewCycleState(), p)
		if got.Len() != shortlistSize {
			t.Errorf("the shortlist has %d nodes", got.Len())
		}
		seen = seen.Union(got)
	}
	for name := range seen {
		if d.plugin.state.nodes[name] != nil {
			t.Errorf("node %s has GPUs", name)
		}
	}
	if seen.Len() != 250 {
		t.Errorf("three shortlists name %d nodes of 250", seen.Len())
	}
	for i := range 250 {
		d.on(fmt.Sprintf("plain-%03d", i), fmt.Sprintf("hog-%d", i), 0, "30", "0")
	}
	got := shortlistOf(d, framework.NewCycleState(), p)
	if got.Len() != shortlistSize || !got.Has("gpu-290") || !got.Has("gpu-299") || !got.Has("gpu-000") || got.Has("gpu-090") {
		t.Errorf("the shortlist has %d nodes: %v", got.Len(), sets.List(got))
	}
}

// Pods without vGPUs through the whole scheduler: the cores of the free device are kept for the usual request.
func TestPodsWithoutVGPUsArePlacedByGPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 1), gpuNode("n2", 1))
		c.stop()
		c.configure = func(args *config.GPUShareArgs) {
			args.Policy, args.PodsWithoutGPUs = "fgd", config.ScorePods
			args.TypicalRequests = []config.TypicalRequest{{CPU: resource.MustParse("9000"), VGPU: 5, Weight: 1}} // of 10,000
		}
		c.start()
		c.createPod(pod("whole", 10))
		taken := c.awaitBound("whole")
		for i := range 4 {
			name := fmt.Sprintf("plain-%d", i)
			c.createPod(asking(pod(name, 0), "1500"))
			p := c.await(name, "it is bound", isBound)
			expect(t, "node of "+name, p.Spec.NodeName, taken[:2])
			if len(p.Annotations) != 0 {
				t.Errorf("pod %s carries %v", name, p.Annotations)
			}
		}
	})
}

// A usual request needs 8 cores beside its 5 slots. n2 has 4 cores left, so that its free slots are lost whatever comes:
// a pod of 5 slots goes there, and none of what n1 has for the usual request is spent.
func TestPolicySeesTheRoom(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1), gpuNode("n2", 1))
	d.follow("fgd")
	d.usual(fragmentation.Kind{MilliCPU: 8000, Slots: 5, Weight: 1})
	d.on("n2", "beside", 0, "60", "0")
	best := func(p *v1.Pod) string {
		cs := d.preFilter(p)
		name, top := "", int64(-1)
		for _, n := range d.nodes {
			if score, _ := d.plugin.Score(t.Context(), cs, p, n); score > top {
				name, top = n.Node().Name, score
			}
		}
		return name
	}
	expect(t, "node of a pod of 5 slots and 1 core", best(asking(pod("a", 5), "1")), "n2")
	// With both short of cores nothing more can be lost, and the first by name is as good.
	d.on("n1", "beside-too", 0, "60", "0")
	expect(t, "node where both are short of cores", best(asking(pod("b", 5), "1")), "n1")
}
