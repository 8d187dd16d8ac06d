package gpushare

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// The cluster of BenchmarkScale.
const (
	scaleNodes   = 20_000
	scalePods    = 100_000
	scaleKinds   = 1000
	scaleKnown   = 200 // workloads with a profile
	scaleModels  = 5
	scaleHosts   = 10 // shapes of hosts for each model
	scaleDecides = 200
)

// BenchmarkScale measures the plugin's part of one decision on 20,000 nodes of 8 GPUs with 100,000 running pods: PreFilter
// over all nodes, Filter and Score of the shortlist, NormalizeScore and Reserve. The nodes have 50 shapes, and pods of
// 1,000 kinds run there at random, so that hardly two nodes are in the same state. The pods of the decisions are of the
// same kinds in random order. After each decision its pod runs, and the pod of an earlier one leaves.
//
// "p50-ms" and "p99-ms" are the processor time of the thread that decides, of 200 decisions: the time on one core without
// other load. "heap-MiB" is the live heap that goes with the plugin, the heap of the framework's snapshot left out.
//
//	usual kinds    the kinds that usually arrive, after some hundred decisions
//	new kind       each pod asks for something that no pod asked for before
//	new mix        before each decision, the usual requests change
//	new workload   each pod is of a workload whose profile its owner has just declared
//	new promise    each pod has a max-slowdown that no pod had before
func BenchmarkScale(b *testing.B) {
	for _, known := range []bool{false, true} {
		f := newScaleFleet(b, known)
		cases := []scaleCase{{"usual kinds", f.usualPod}, {"new kind", f.newKind}, {"new mix", f.newMix}}
		if known {
			cases = append(cases, scaleCase{"new workload", f.newWorkload}, scaleCase{"new promise", f.newPromise})
		}
		for _, c := range cases {
			b.Run(fmt.Sprintf("known=%t/%s", known, c.name), func(b *testing.B) { f.decide(b, c.next) })
		}
		if !f.met {
			continue
		}
		b.Run(fmt.Sprintf("known=%t/heap", known), f.heap)
	}
}

// scaleCase makes the pods of the decisions of one case.
type scaleCase struct {
	name string
	next func() *v1.Pod
}

// scaleFleet is the fleet of BenchmarkScale.
type scaleFleet struct {
	*fleet
	random *rand.Rand
	kinds  []fragmentation.Kind
	known  bool
	made   int
	met    bool // a case ran
}

func newScaleFleet(b *testing.B, known bool) *scaleFleet {
	f := &scaleFleet{random: rand.New(rand.NewPCG(1, 2)), known: known}
	gpuNodes := make([]*v1alpha1.GPUNode, scaleNodes)
	for i := range gpuNodes {
		gpuNodes[i] = gpuNode(fmt.Sprintf("node-%05d", i), 8)
		model := i % scaleModels
		for k := range gpuNodes[i].Status.Devices {
			d := &gpuNodes[i].Status.Devices[k]
			d.Model, d.Memory = fmt.Sprintf("GPU%d", model), resource.MustParse(fmt.Sprintf("%dGi", 20+20*model))
		}
	}
	f.fleet = &fleet{desk: newDesk(b, gpuNodes...), running: make([]placed, 16)}
	for i, n := range f.nodes {
		host := n.Node().DeepCopy()
		shape := int64(i / scaleModels % scaleHosts)
		host.Status.Allocatable[v1.ResourceCPU] = *resource.NewQuantity(48+16*shape, resource.DecimalSI)
		host.Status.Allocatable[v1.ResourceMemory] = *resource.NewQuantity((256+128*(shape*7%scaleHosts))<<30, resource.BinarySI)
		f.byName[host.Name].SetNode(host)
	}
	f.makeKinds()
	if known {
		f.plugin.crowding.always = true
		for w := range scaleKnown {
			f.declare(declared(fmt.Sprintf("w%d", w), int32(5+w%90), int32(5+w*7%60)))
		}
	}
	f.populate(b)
	f.follow("tandem")
	f.usual(f.kinds...)
	return f
}

// makeKinds draws the usual kinds: most ask for parts of a GPU, few for several, and a kind's weight falls with its rank.
func (f *scaleFleet) makeKinds() {
	for rank := range scaleKinds {
		slots := vgpu.Slots(1 + f.random.IntN(10))
		if f.random.IntN(5) == 0 {
			slots = 10 << f.random.IntN(4)
		}
		f.kinds = append(f.kinds, f.kindOf(slots, int64(1+100*scaleKinds/(rank+10))))
	}
}

// kindOf draws the CPU and memory of a kind: in proportion to its GPUs, within a factor of four.
func (f *scaleFleet) kindOf(slots vgpu.Slots, weight int64) fragmentation.Kind {
	return fragmentation.Kind{
		Slots: slots, Weight: weight, MilliCPU: int64(slots) * (400 + 50*f.random.Int64N(25)),
		Memory: vgpu.Bytes(slots) * (1 + vgpu.Bytes(f.random.Int64N(4))) * vgpu.GiB,
	}
}

// populate lets pods of random kinds run on random nodes.
func (f *scaleFleet) populate(b *testing.B) {
	free := make([][8]vgpu.Slots, scaleNodes)
	room := make([]vgpu.Room, scaleNodes)
	for i := range free {
		free[i] = [8]vgpu.Slots{10, 10, 10, 10, 10, 10, 10, 10}
		room[i] = roomOf(f.nodes[i])
	}
	for count := 0; count < scalePods; {
		k := &f.kinds[min(f.random.IntN(scaleKinds), f.random.IntN(scaleKinds))]
		i, each := f.random.IntN(scaleNodes), min(10, k.Slots)
		host := vgpu.Room{MilliCPU: k.MilliCPU, Memory: k.Memory}
		var on []int
		for _, d := range f.random.Perm(8) {
			if vgpu.Slots(len(on)) < k.Slots/each && free[i][d] >= each {
				on = append(on, d)
			}
		}
		if vgpu.Slots(len(on)) < k.Slots/each || !host.Within(room[i]) || k.Slots > 10 && f.random.IntN(4) > 0 {
			continue
		}
		for _, d := range on {
			free[i][d] -= each
		}
		room[i] = room[i].Minus(host)
		f.run(b, k, i, on)
		count++
	}
}

// run lets a pod of a kind run on devices of a node.
func (f *scaleFleet) run(b *testing.B, k *fragmentation.Kind, i int, on []int) {
	node := f.nodes[i].Node().Name
	p := f.podOf(k)
	a := share(p, node, "", min(10, k.Slots))
	c := &a.Containers[0]
	c.Devices = nil
	for _, d := range on {
		c.Devices = append(c.Devices, f.plugin.state.nodes[node].empty.Devices()[d].ID)
	}
	slices.Sort(c.Devices)
	memory := f.plugin.state.nodes[node].empty.Devices()[0].Memory
	c.Share.Devices, c.Share.Memory = len(on), vgpu.MemoryOf(memory, c.Share.Slots, 10)
	c.Share.MemoryLimit = c.Share.Memory
	running := bound(b, p, a)
	if f.known {
		named(running, f.random.IntN(scaleKnown), f.random.IntN(10))
		f.plugin.state.learner.Pod(running)
	}
	f.add(running, node)
}

// podOf returns a new pod of a kind.
func (f *scaleFleet) podOf(k *fragmentation.Kind) *v1.Pod {
	f.made++
	return with(pod(fmt.Sprintf("pod-%d", f.made), int(k.Slots)), func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{
			v1.ResourceCPU:    *resource.NewMilliQuantity(k.MilliCPU, resource.DecimalSI),
			v1.ResourceMemory: *resource.NewQuantity(int64(k.Memory), resource.BinarySI),
		}
	})
}

// usualPod is a pod of a usual kind, in the fleet of known workloads of one that the kind always has.
func (f *scaleFleet) usualPod() *v1.Pod {
	k := f.random.IntN(scaleKinds)
	p := f.podOf(&f.kinds[k])
	if f.known {
		named(p, k%scaleKnown, k)
	}
	return p
}

// newKind is a pod of a kind that no pod had before.
func (f *scaleFleet) newKind() *v1.Pod {
	k := f.kinds[f.random.IntN(scaleKinds)]
	k.MilliCPU += int64(f.made%40 + 1)
	p := f.podOf(&k)
	if f.known {
		named(p, f.random.IntN(scaleKnown), 1)
	}
	return p
}

// newMix is a usual pod after the usual requests have changed.
func (f *scaleFleet) newMix() *v1.Pod {
	f.kinds[f.random.IntN(scaleKinds)].Weight++
	f.usual(f.kinds...)
	return f.usualPod()
}

// newWorkload is a pod whose workload is new.
func (f *scaleFleet) newWorkload() *v1.Pod {
	p := f.usualPod()
	f.declare(declared(fmt.Sprintf("new%d", f.made), int32(5+f.made%90), int32(5+f.made%60)))
	p.Labels[v1alpha1.LabelProfile] = fmt.Sprintf("new%d", f.made)
	return p
}

// newPromise is a usual pod with a max-slowdown of its own.
func (f *scaleFleet) newPromise() *v1.Pod {
	p := f.usualPod()
	p.Annotations[v1alpha1.AnnotationMaxSlowdown] = f.another()
	return p
}

// decide measures decisions.
func (f *scaleFleet) decide(b *testing.B, next func() *v1.Pod) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f.met = true
	for range 50 {
		p := next()
		f.turnOver(p, f.cycle(b, p))
	}
	b.ReportAllocs()
	var took []time.Duration
	for b.Loop() {
		for range scaleDecides {
			b.StopTimer()
			p := next()
			before := threadTime(b)
			b.StartTimer()
			node := f.cycle(b, p)
			b.StopTimer()
			took = append(took, threadTime(b)-before)
			f.turnOver(p, node)
			b.StartTimer()
		}
	}
	slices.Sort(took)
	b.ReportMetric(milliseconds(took[len(took)/2]), "p50-ms")
	b.ReportMetric(milliseconds(took[len(took)*99/100]), "p99-ms")
}

// heap measures the live heap that goes with the plugin, and fails above 1 GiB. The fleet is of no use afterwards.
func (f *scaleFleet) heap(b *testing.B) {
	with := liveHeap()
	f.plugin, f.running = nil, nil
	without := liveHeap()
	for b.Loop() { // what is left is not worth measuring
	}
	b.ReportMetric(float64(with-without)/(1<<20), "heap-MiB")
	if with-without > 1<<30 {
		b.Errorf("%d MiB of the heap go with the plugin, at most 1,024 are allowed", (with-without)>>20)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// threadTime is the processor time of this thread.
func threadTime(b *testing.B) time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var used syscall.Rusage
	if err := syscall.Getrusage(thread, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
