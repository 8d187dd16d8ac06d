package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// The made-up cluster: GPUs of one model on nodes of eight (of four in a small cluster), with NVLink between all of a node.
const (
	slots   = 10
	memory  = vgpu.Bytes(80 << 30)
	moments = 13
	step    = 5 * time.Minute
)

// end is the time of the last moment.
var end = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

var namespaces = []string{"nlp", "vision", "research", "serving", "notebooks"}

// made is a cluster that changes over an hour: the page's source in these tests.
type made struct{ gpus int }

func (m made) Moments(context.Context) (gpumap.Moments, error) {
	out := gpumap.Moments{Title: fmt.Sprintf("made-up cluster of %d GPUs", m.gpus)}
	for i := range moments {
		out.Seconds = append(out.Seconds, end.Add(time.Duration(i-moments+1)*step).Unix())
	}
	return out, nil
}

func (m made) At(_ context.Context, second int64) (*snapshot.Snapshot, error) {
	all, _ := m.Moments(context.Background())
	at := slices.Index(all.Seconds, second)
	if at < 0 {
		return nil, gpumap.ErrNoMoment
	}
	return m.snapshot(at), nil
}

// snapshot makes the cluster at a moment. Its pods come one after the other: fewer are there at earlier moments.
func (m made) snapshot(moment int) *snapshot.Snapshot {
	at := end.Add(time.Duration(moment-moments+1) * step)
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: at}
	perNode := 8
	if m.gpus < 16 {
		perNode = 4
	}
	random := rand.New(rand.NewPCG(1, uint64(m.gpus)))
	for left := m.gpus; left > 0; left -= perNode {
		b := builder{random: random, moment: moment, at: at}
		s.Nodes = append(s.Nodes, b.node(fmt.Sprintf("gpu-%03d", len(s.Nodes)+1), min(perNode, left)))
		m.locate(s)
	}
	m.wait(s)
	s.Sort()
	return s
}

// locate says where the last node is, in clusters of several racks: 16 nodes are a rack, four racks a zone. The last node of all has no labels.
func (m made) locate(s *snapshot.Snapshot) {
	at := len(s.Nodes) - 1
	if m.gpus > 100 && 8*len(s.Nodes) < m.gpus {
		s.Nodes[at].Topology = map[string]string{
			"topology.kubernetes.io/zone": fmt.Sprintf("zone-%c", 'a'+at/64), "topology.example.com/rack": fmt.Sprintf("rack-%02d", at/16+1),
		}
	}
}

// wait adds a gang and two pods that have no place, and a gang for which room is kept.
func (m made) wait(s *snapshot.Snapshot) {
	gang := snapshot.GangName{Source: "label", Namespace: "nlp", Name: "pretrain-7"}
	free := emptyNodes(s)
	members := max(2, free+1)
	s.Gangs = append(s.Gangs, snapshot.Gang{
		GangName: gang, MinCount: members, Members: members, Phase: "Unplaced", Need: "Refused", Reason: "NoRoom", WaitsSince: s.At.Add(-50 * time.Minute),
		Message: fmt.Sprintf("all %d members must run, each asks for 8 whole GPUs, and the number of nodes that have these is %d", members, free),
	})
	add := func(name snapshot.Name, gang *snapshot.GangName, since time.Duration, slots vgpu.Slots, refused *snapshot.Refused) {
		request := &snapshot.Request{Containers: []snapshot.ContainerRequest{{Name: "main", Kind: "app", Slots: slots}}}
		s.Pending = append(s.Pending, snapshot.Pending{Name: name, Gang: gang, Since: s.At.Add(-since), Request: request, Refused: refused})
	}
	for i := range members {
		name := snapshot.Name{Namespace: "nlp", Name: fmt.Sprintf("pretrain-7-%d", i), UID: vgpu.UID(fmt.Sprintf("wait-gang-%d", i))}
		add(name, &gang, 50*time.Minute, 80, nil)
	}
	nodes := len(s.Nodes)
	add(snapshot.Name{Namespace: "vision", Name: "detector-a", UID: "wait-1"}, nil, 12*time.Minute, 5, &snapshot.Refused{
		Message: fmt.Sprintf("0/%d nodes are available: its max-slowdown 1.10 would break on all of them", nodes),
		Nodes:   []snapshot.RefusedNodes{{Reason: "PromiseBroken", Nodes: nodes}},
	})
	add(snapshot.Name{Namespace: "notebooks", Name: "nb-eve", UID: "wait-2"}, nil, 3*time.Minute, 2, &snapshot.Refused{
		Message: fmt.Sprintf("0/%d nodes are available: the model H100 is on no node", nodes),
		Nodes:   []snapshot.RefusedNodes{{Reason: "NoAllowedModel", Nodes: nodes}},
	})
}

// emptyNodes counts the nodes with eight healthy GPUs and no pods.
func emptyNodes(s *snapshot.Snapshot) int {
	empty := 0
	for i := range s.Nodes {
		n := &s.Nodes[i]
		sick := slices.ContainsFunc(n.Devices, func(d snapshot.Device) bool { return !d.Healthy })
		if len(n.Devices) == 8 && len(n.Pods)+len(n.Holds) == 0 && !sick {
			empty++
		}
	}
	return empty
}

// builder makes one node.
type builder struct {
	random *rand.Rand
	moment int
	at     time.Time
	out    snapshot.Node
}

func (b *builder) node(name string, gpus int) snapshot.Node {
	b.out = snapshot.Node{Name: name, FreeMilliCPU: 16000, FreeMemoryBytes: 256 << 30, Pods: []snapshot.Pod{}, Holds: []snapshot.Hold{}}
	for i := range gpus {
		b.out.Devices = append(b.out.Devices, snapshot.Device{
			ID: vgpu.DeviceID(fmt.Sprintf("GPU-%s-%d", name, i)), Index: i, Model: "NVIDIA-A100-SXM4-80GB", Slots: slots, MemoryBytes: memory, Healthy: true,
		})
		for k := range i {
			b.out.Links = append(b.out.Links, snapshot.Link{Between: [2]int{k, i}, Class: "NVLink", Lanes: 12})
		}
	}
	sick := b.random.IntN(60)
	if name == "gpu-001" {
		sick = 2
	}
	switch kind := b.random.IntN(10); {
	case kind < 4 && name != "gpu-001": // one training on all GPUs, which a sick one would not run
		b.pod(b.devices(), slots, "training", 0)
		sick = gpus
	case kind < 5 && name != "gpu-001": // free
	default:
		for i := range gpus {
			b.shares(i)
		}
	}
	if sick < gpus {
		b.out.Devices[sick].Healthy, b.out.Devices[sick].Reason = false, "UncorrectableECC"
	}
	for i := range b.out.Devices {
		b.measure(&b.out.Devices[i])
	}
	slices.SortFunc(b.out.Links, func(x, y snapshot.Link) int { return slices.Compare(x.Between[:], y.Between[:]) })
	return b.out
}

func (b *builder) devices() []vgpu.DeviceID {
	all := make([]vgpu.DeviceID, 0, len(b.out.Devices))
	for i := range b.out.Devices {
		all = append(all, b.out.Devices[i].ID)
	}
	return all
}

// shares fills a device with pods, wholly or in part.
func (b *builder) shares(i int) {
	free, tenants := slots, 1+b.random.IntN(4)
	if b.random.IntN(8) == 0 {
		tenants = 0
	}
	for t := range tenants {
		size := min(free, 1+b.random.IntN(5))
		if size == 0 {
			return
		}
		free -= size
		slow := int64(1000 + b.random.IntN(400))
		if tenants == 1 || t == 0 || b.random.IntN(3) > 0 {
			slow = vgpu.NoSlowdown
		}
		b.pod([]vgpu.DeviceID{b.out.Devices[i].ID}, size, []string{"serve", "batch", "nb", "tune"}[b.random.IntN(4)], slow)
	}
}

// pod adds a pod with so many slots on each of the devices, from its moment on.
func (b *builder) pod(on []vgpu.DeviceID, size int, what string, slow int64) {
	number := len(b.out.Pods) + len(b.out.Holds)
	namespace := namespaces[b.random.IntN(len(namespaces))]
	used, kept, from := 5+b.random.IntN(95), b.random.IntN(25) == 0, b.random.IntN(2*moments)-moments
	if b.random.IntN(20) == 0 {
		used = 0
	}
	p := snapshot.Pod{
		Name: snapshot.Name{
			Namespace: namespace, Name: fmt.Sprintf("%s-%s-%d", what, b.out.Name[4:], number), UID: vgpu.UID(fmt.Sprintf("uid-%s-%03d", b.out.Name, number)),
		},
		Workload: what, Since: b.at.Add(-time.Duration(number) * time.Minute),
	}
	share := memory / slots * vgpu.Bytes(size)
	p.Containers = []snapshot.Container{{
		Name: "main", Kind: "app", Devices: on, Slots: vgpu.Slots(size), MemoryBytes: share,
		ComputeLimit: vgpu.MilliGPU(size * int(vgpu.WholeGPU) / slots), MemoryLimitBytes: share,
	}}
	switch {
	case from > b.moment:
	case kept:
		b.out.Holds = append(b.out.Holds, snapshot.Hold{Pod: p})
	default:
		for _, id := range on {
			taken := share / 100 * vgpu.Bytes(20+used*3/4)
			p.On = append(p.On, snapshot.On{Device: id, SlowdownMilli: slow, SMPercent: &used, MemoryUsedBytes: &taken})
		}
		b.out.Pods = append(b.out.Pods, p)
	}
}

// measure adds the use of a device by its pods.
func (b *builder) measure(d *snapshot.Device) {
	use := snapshot.DeviceUse{}
	for i := range b.out.Pods {
		for _, on := range b.out.Pods[i].On {
			if on.Device == d.ID {
				use.SMPercent = min(100, use.SMPercent+*on.SMPercent)
				use.MemoryBytes += *on.MemoryUsedBytes
				use.Contexts++
			}
		}
	}
	d.Use = &use
}
