package gpushare

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// fleet is a desk with nodes of eight devices, half of every device taken by bound pods.
type fleet struct {
	*desk
	feasible []fwk.NodeInfo
	scores   fwk.NodeScoreList
	// running holds the last pods that were placed: the oldest leaves when a new one comes.
	running []placed
	next    int
	seen    int
}

type placed struct {
	pod  *v1.Pod
	node string
}

func newFleet(tb testing.TB, nodes int) *fleet {
	gpuNodes := make([]*v1alpha1.GPUNode, nodes)
	for i := range gpuNodes {
		gpuNodes[i] = gpuNode(fmt.Sprintf("node-%05d", i), 8)
	}
	f := &fleet{desk: newDesk(tb, gpuNodes...), running: make([]placed, 16)}
	for _, g := range gpuNodes {
		for i, d := range g.Status.Devices {
			p := pod(fmt.Sprintf("%s-%d", g.Name, i), 5)
			f.add(bound(tb, p, share(p, g.Name, d.ID, 5)), g.Name)
		}
	}
	f.feasible = make([]fwk.NodeInfo, 0, nodes)
	f.scores = make(fwk.NodeScoreList, 0, nodes)
	return f
}

// cycle does what one scheduling cycle of a pod asks of the plugin, and returns the node.
func (f *fleet) cycle(tb testing.TB, p *v1.Pod) string {
	ctx := tb.Context()
	cs := framework.NewCycleState()
	result, status := f.plugin.PreFilter(ctx, cs, p, f.nodes)
	if !status.IsSuccess() {
		tb.Fatal(status)
	}
	f.feasible, f.scores = f.feasible[:0], f.scores[:0]
	for _, n := range f.given(result) {
		if f.plugin.Filter(ctx, cs, p, n).IsSuccess() {
			f.feasible = append(f.feasible, n)
		}
	}
	for _, n := range f.feasible {
		score, _ := f.plugin.Score(ctx, cs, p, n)
		f.scores = append(f.scores, fwk.NodeScore{Name: n.Node().Name, Score: score})
	}
	f.plugin.NormalizeScore(ctx, cs, p, f.scores)
	for _, s := range f.scores {
		if s.Score == fwk.MaxScore {
			if status := f.plugin.Reserve(ctx, cs, p, s.Name); !status.IsSuccess() {
				tb.Fatal(status)
			}
			return s.Name
		}
	}
	tb.Fatal("no node is the best")
	return ""
}

// given returns the nodes that the framework goes on with.
func (f *fleet) given(result *fwk.PreFilterResult) []fwk.NodeInfo {
	if result.AllNodes() {
		return f.nodes
	}
	nodes := make([]fwk.NodeInfo, 0, len(result.NodeNames))
	for name := range result.NodeNames {
		nodes = append(nodes, f.byName[name])
	}
	return nodes
}

// turnOver makes the last placement real: the pod is on its node now, and the oldest of the running ones leaves.
func (f *fleet) turnOver(p *v1.Pod, node string) {
	if old := f.running[f.next]; old.pod != nil {
		f.plugin.Unreserve(f.t.Context(), nil, old.pod, old.node)
		f.remove(old.pod, old.node)
	}
	f.running[f.next] = placed{f.assume(p, node), node}
	f.next = (f.next + 1) % len(f.running)
}

// usualKinds is a mix as the openb trace has it: 60 kinds by slots and CPU, and pods without GPUs.
func usualKinds() []fragmentation.Kind {
	kinds := []fragmentation.Kind{{Weight: 13}}
	for k := range int64(10) {
		for cores := range int64(6) {
			kinds = append(kinds, fragmentation.Kind{MilliCPU: 2000 << cores, Slots: vgpu.Slots(k + 1), Weight: k + 1})
		}
	}
	return kinds
}

// newcomers are pods of 20 kinds: 1 to 5 slots and 1, 2, 4 or 8 cores.
func newcomers() []*v1.Pod {
	pods := make([]*v1.Pod, 1020)
	for i := range pods {
		pods[i] = asking(pod(fmt.Sprintf("new-%d", i), i%5+1), strconv.Itoa(1<<(i/5%4)))
	}
	return pods
}

// BenchmarkOnePod measures PreFilter over all nodes, Filter and Score of the shortlist, NormalizeScore and Reserve for one pod on one
// core, with two nodes changed since the cycle before: one pod came, one left. The target is 2 ms at 500 nodes and 10 ms at 5,000.
func BenchmarkOnePod(b *testing.B) {
	for _, policy := range []string{"packed", "fgd", "tandem"} {
		for _, nodes := range []int{500, 5000} {
			b.Run(fmt.Sprintf("policy=%s/nodes=%d", policy, nodes), func(b *testing.B) {
				f := newFleet(b, nodes)
				f.follow(policy)
				f.usual(usualKinds()...)
				f.turns(b, newcomers(), func() {})
			})
		}
	}
}

// BenchmarkPodsBeside is BenchmarkOnePod with 100 nodes changed by pods without vGPUs since the cycle before.
func BenchmarkPodsBeside(b *testing.B) {
	f := newFleet(b, 5000)
	f.follow("fgd")
	f.usual(usualKinds()...)
	next := 0
	f.turns(b, newcomers(), func() {
		for range 100 {
			node := f.nodes[next%len(f.nodes)].Node().Name
			p := asking(pod("beside-"+node, 0), "1")
			p.Spec.NodeName = node
			if next/len(f.nodes)%2 == 0 {
				f.add(p, node)
			} else {
				f.remove(p, node)
			}
			next++
		}
	})
}

// BenchmarkUnlikeNodes is BenchmarkOnePod where no two nodes have the same devices and cores free, so that nothing is known
// of one from another; "new mix" has no scores to remember either.
func BenchmarkUnlikeNodes(b *testing.B) {
	for name, between := range map[string]func(*fleet){
		"usual mix": func(*fleet) {},
		"new mix":   func(f *fleet) { f.usual(usualKinds()...) },
	} {
		for _, nodes := range []int{500, 5000} {
			b.Run(fmt.Sprintf("%s/nodes=%d", name, nodes), func(b *testing.B) {
				f := newFleet(b, nodes)
				random := rand.New(rand.NewPCG(1, 2))
				for i, n := range f.nodes {
					node := n.Node().Name
					for k, d := range f.plugin.state.nodes[node].empty.Devices() {
						if s := random.IntN(6); s > 0 {
							p := pod(fmt.Sprintf("%s-%d-more", node, k), s)
							f.add(bound(b, p, share(p, node, string(d.ID), vgpu.Slots(s))), node)
						}
					}
					f.on(node, "beside-"+node, 0, fmt.Sprintf("%dm", i*10), "0")
				}
				f.follow("tandem")
				f.usual(usualKinds()...)
				f.turns(b, newcomers(), func() { between(f) })
			})
		}
	}
}

// BenchmarkKnownPods is BenchmarkOnePod where something is known of the workload of every pod: 20 workloads, of which each
// asks for the same thing every time, and a tenth of the pods was promised something. "new rule" is what a change of
// the rule costs: of what is known, or of scarcity. "new workload" is a pod of a workload that is seen for the first time.
func BenchmarkKnownPods(b *testing.B) {
	for name, between := range map[string]func(*fleet, *v1.Pod){
		"same rule":    func(*fleet, *v1.Pod) {},
		"new rule":     func(f *fleet, _ *v1.Pod) { f.usual(usualKinds()...) },
		"new workload": func(f *fleet, p *v1.Pod) { p.Annotations[v1alpha1.AnnotationMaxSlowdown] = f.another() },
	} {
		for _, nodes := range []int{500, 5000} {
			b.Run(fmt.Sprintf("%s/nodes=%d", name, nodes), func(b *testing.B) {
				f := newKnownFleet(b, nodes)
				pods := newcomers()
				for i, p := range pods {
					named(p, i%20, i)
				}
				next := 20
				f.turns(b, pods, func() {
					between(f, pods[next%len(pods)])
					next++
				})
			})
		}
	}
}

// another returns a max-slowdown that no pod had yet: a kind of request of which no score is remembered.
func (f *fleet) another() string {
	f.seen++
	return fmt.Sprintf("%d.%03d", 2+f.seen/1000, f.seen%1000)
}

// named makes a pod one of a workload, and every tenth one that was promised something.
func named(p *v1.Pod, workload, i int) {
	p.Labels = map[string]string{v1alpha1.LabelProfile: fmt.Sprintf("w%d", workload)}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	if i%10 == 0 {
		p.Annotations[v1alpha1.AnnotationMaxSlowdown] = "3"
	}
}

// newKnownFleet is a fleet on whose devices pods of 20 workloads run, one to three on each.
func newKnownFleet(b *testing.B, nodes int) *fleet {
	gpuNodes := make([]*v1alpha1.GPUNode, nodes)
	for i := range gpuNodes {
		gpuNodes[i] = gpuNode(fmt.Sprintf("node-%05d", i), 8)
	}
	f := &fleet{desk: newDesk(b, gpuNodes...), running: make([]placed, 16)}
	f.plugin.crowding.always = true
	for w := range int32(20) {
		f.declare(declared(fmt.Sprintf("w%d", w), 5*w+5, 3*w+5))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, g := range gpuNodes {
		for i, d := range g.Status.Devices {
			for k := range 1 + random.IntN(3) {
				p := pod(fmt.Sprintf("%s-%d-%d", g.Name, i, k), 2)
				on := bound(b, p, share(p, g.Name, d.ID, 2))
				named(on, random.IntN(20), random.IntN(10))
				f.plugin.state.learner.Pod(on)
				f.add(on, g.Name)
			}
		}
	}
	f.follow("tandem")
	f.usual(usualKinds()...)
	return f
}

// turns measures cycles, one after the other, with what is done between them left out.
func (f *fleet) turns(b *testing.B, pods []*v1.Pod, between func()) {
	for _, p := range pods[:20] { // each kind once
		f.turnOver(p, f.cycle(b, p))
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	for i := range b.N {
		b.StopTimer()
		between()
		p := pods[(20+i)%len(pods)]
		b.StartTimer()
		node := f.cycle(b, p)
		b.StopTimer()
		f.turnOver(p, node)
		b.StartTimer()
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// cpuTime is the processor time of this process: on a machine that does other work too, it says more than the clock.
// It includes what turnOver takes between the cycles.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// An unchanged node costs no allocation: five times the nodes, as many allocations.
func TestUnchangedNodesCostNoAllocation(t *testing.T) {
	for _, policy := range []string{"packed", "fgd", "tandem"} {
		t.Run(policy, func(t *testing.T) { unchangedNodesCostNoAllocation(t, policy) })
	}
}

func unchangedNodesCostNoAllocation(t *testing.T, policy string) {
	allocations := func(nodes int) float64 {
		f := newFleet(t, nodes)
		f.follow(policy)
		f.usual(usualKinds()...)
		p := pod("new", 3)
		turn := func() {
			node := f.cycle(t, p)
			f.plugin.Unreserve(t.Context(), nil, p, node)
		}
		turn()
		least := testing.AllocsPerRun(20, turn)
		for range 4 { // the library's pools drop what they hold now and then, under the race detector by chance
			least = min(least, testing.AllocsPerRun(20, turn))
		}
		return least
	}
	few, many := allocations(200), allocations(1000)
	if few < 1 || many-few > 800*.01 { // one for each node would be 800; what the pools drop is a few
		t.Errorf("a cycle allocates %v times with 200 nodes and %v times with 1000", few, many)
	}
	t.Logf("a cycle allocates %v times with 200 nodes and %v times with 1000", few, many)
}
