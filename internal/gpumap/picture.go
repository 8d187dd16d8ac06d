package gpumap

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Picture is what the page shows of a cluster at one moment. Lists that are not sorted by what is said have the order of the
// snapshot.
type Picture struct {
	At       time.Time `json:"at"`
	Source   string    `json:"source"`
	Redacted bool      `json:"redacted"`
	// Owners are the namespaces of the pods with shares, those with the most compute first.
	Owners []Owner `json:"owners"`
	// Models of the devices, sorted.
	Models []string `json:"models"`
	// Nodes by place, those without one last, then by name.
	Nodes []Node `json:"nodes"`
	// Waiting are gangs and pods without a place, those that wait longest first. WaitingLeftOut counts pods that the snapshot does not list.
	Waiting        []Waiting `json:"waiting"`
	WaitingLeftOut int       `json:"waitingLeftOut"`
	// Answers to the questions that people bring, in a fixed order.
	Answers []Answer `json:"answers"`
}

// Owner is a namespace with pods that have shares.
type Owner struct {
	Namespace string `json:"namespace"`
	// MilliGPU of its shares, those that are kept for it included.
	MilliGPU vgpu.MilliGPU `json:"milliGPU"`
}

// Node is a row of the map.
type Node struct {
	Name    string `json:"name"`
	Problem string `json:"problem,omitempty"`
	// Place is where the node is by its topology labels, the widest level first: "eu-1 / rack-7"; absent where no label says it.
	Place string `json:"place,omitempty"`
	// WholeGPUs is the largest number of whole GPUs that one pod of priority 0 could get here, by placement's own answer. CPU and memory of the
	// host do not count.
	WholeGPUs int      `json:"wholeGPUs"`
	Devices   []Device `json:"devices"`
}

// Device is a tile of the map.
type Device struct {
	// Name is unique on the node except for MIG instances of one GPU: "g0".
	Name        string        `json:"name"`
	ID          vgpu.DeviceID `json:"id"`
	Model       string        `json:"model"`
	Slots       vgpu.Slots    `json:"slots"`
	MemoryBytes vgpu.Bytes    `json:"memoryBytes"`
	Healthy     bool          `json:"healthy"`
	Reason      string        `json:"reason,omitempty"`
	// Island is the number of its NVLink island on the node, from 1; 0 for a device without NVLink.
	Island int `json:"island,omitempty"`
	// SMPercent and MemoryUsedBytes are absent where nothing was measured.
	SMPercent       *int        `json:"smPercent,omitempty"`
	MemoryUsedBytes *vgpu.Bytes `json:"memoryUsedBytes,omitempty"`
	// FreeMilliGPU is what a pod of priority 0 may take, and LostMilliGPU what of it the usual requests cannot use, by the measure of package
	// fragmentation, rounded down. LostMilliGPU is absent where no pod says what is usual, and on nodes that take no pods.
	FreeMilliGPU vgpu.MilliGPU  `json:"freeMilliGPU"`
	LostMilliGPU *vgpu.MilliGPU `json:"lostMilliGPU,omitempty"`
	// Slices side by side, the lowest first; the rest of Slots is free.
	Slices []Slice `json:"slices"`
}

// Slice is the share of one pod on a device: the slots From up to and without To.
type Slice struct {
	From        vgpu.Slots `json:"from"`
	To          vgpu.Slots `json:"to"`
	MemoryBytes vgpu.Bytes `json:"memoryBytes"`
	// Owner is the position of the pod's namespace in Picture.Owners.
	Owner    int    `json:"owner"`
	Pod      string `json:"pod"`
	Gang     string `json:"gang,omitempty"`
	Workload string `json:"workload,omitempty"`
	Priority int32  `json:"priority,omitempty"`
	// Held says that the scheduler keeps the slice for a pod which is not there yet.
	Held bool `json:"held,omitempty"`
	// SlowdownMilli is predicted, 0 where nothing is. SMPercent and MemoryUsedBytes are measured, absent where they were not.
	SlowdownMilli    int64       `json:"slowdownMilli,omitempty"`
	MaxSlowdownMilli int64       `json:"maxSlowdownMilli,omitempty"`
	SMPercent        *int        `json:"smPercent,omitempty"`
	MemoryUsedBytes  *vgpu.Bytes `json:"memoryUsedBytes,omitempty"`
	// Idle says that the pod did not use the device when it was last measured.
	Idle bool `json:"idle,omitempty"`
}

// Of returns the picture of a snapshot. It returns an error for a snapshot that is broken: its Check says the same.
func Of(s *snapshot.Snapshot) (*Picture, error) {
	c, err := s.Cluster()
	if err != nil {
		return nil, fmt.Errorf("draw snapshot: %w", err)
	}
	ledgers := map[string]*vgpu.Node{}
	for _, n := range c.Nodes() {
		ledgers[n.Name()] = n
	}
	owners := ownersOf(s)
	p := &Picture{At: s.At, Source: s.Source, Redacted: s.Redacted, Owners: owners, Models: []string{}, Nodes: make([]Node, 0, len(s.Nodes))}
	places := map[string]int{}
	for i, o := range owners {
		places[o.Namespace] = i
	}
	usual, err := usualOf(s)
	if err != nil {
		return nil, fmt.Errorf("draw snapshot: %w", err)
	}
	levels := levelsOf(s.Nodes)
	for i := range s.Nodes {
		ledger := ledgers[s.Nodes[i].Name]
		n := nodeOf(&s.Nodes[i], ledger, places)
		n.Place = placeOf(&s.Nodes[i], levels)
		n.lose(ledger, usual)
		for k := range n.Devices {
			p.Models = append(p.Models, n.Devices[k].Model)
		}
		p.Nodes = append(p.Nodes, n)
	}
	byPlace(p.Nodes)
	slices.Sort(p.Models)
	p.Models = slices.Compact(p.Models)
	p.Waiting, p.WaitingLeftOut = waitingOf(s), s.PendingLeftOut
	p.Answers = p.answers()
	return p, nil
}

// nodeOf returns the row of a node.
func nodeOf(n *snapshot.Node, ledger *vgpu.Node, owners map[string]int) Node {
	out := Node{Name: n.Name, Problem: n.Problem, Devices: make([]Device, 0, len(n.Devices))}
	if n.Problem == "" {
		out.WholeGPUs = wholeGPUs(ledger, n.StraySlots)
	}
	drawn := vgpu.MapOf([]*vgpu.Node{ledger}).Nodes[0]
	islands := islandsOf(n)
	pods, holds := map[vgpu.UID]*snapshot.Pod{}, map[vgpu.UID]*snapshot.Pod{}
	for i := range n.Pods {
		pods[n.Pods[i].UID] = &n.Pods[i]
	}
	for i := range n.Holds {
		holds[n.Holds[i].UID] = &n.Holds[i].Pod
	}
	for i := range n.Devices {
		d := &n.Devices[i]
		tile := Device{
			Name: drawn.Devices[i].Name, ID: d.ID, Model: d.Model, Slots: d.Slots, MemoryBytes: d.MemoryBytes, Healthy: d.Healthy, Reason: n.Ails(i),
			Island: islands[i], Slices: make([]Slice, 0, len(drawn.Devices[i].Slices)),
		}
		if d.Use != nil {
			tile.SMPercent, tile.MemoryUsedBytes = &d.Use.SMPercent, &d.Use.MemoryBytes
		}
		for _, part := range drawn.Devices[i].Slices {
			of := pods
			if part.Held {
				of = holds
			}
			slice := sliceOf(of[part.UID], d.ID, &part)
			slice.Owner = owners[of[part.UID].Namespace]
			tile.Slices = append(tile.Slices, slice)
		}
		out.Devices = append(out.Devices, tile)
	}
	return out
}

// sliceOf returns the share of a pod on a device.
func sliceOf(p *snapshot.Pod, device vgpu.DeviceID, part *vgpu.MapSlice) Slice {
	out := Slice{
		From: part.From, To: part.To, MemoryBytes: part.Memory, Pod: p.Path(), Workload: p.Workload, Priority: p.Priority, Held: part.Held,
		MaxSlowdownMilli: p.MaxSlowdownMilli,
	}
	if p.Gang != nil {
		out.Gang = gangPath(*p.Gang)
	}
	for i := range p.On {
		if on := &p.On[i]; on.Device == device {
			out.SlowdownMilli, out.SMPercent, out.MemoryUsedBytes = on.SlowdownMilli, on.SMPercent, on.MemoryUsedBytes
			out.Idle = on.SMPercent != nil && *on.SMPercent == 0
		}
	}
	return out
}

// gangPath returns "namespace/name", as snapshot.Name.Path does.
func gangPath(g snapshot.GangName) string {
	return (&snapshot.Name{Namespace: g.Namespace, Name: g.Name}).Path()
}

// ownersOf returns the namespaces with shares, those with the most compute first.
func ownersOf(s *snapshot.Snapshot) []Owner {
	sums := map[string]vgpu.MilliGPU{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		slots := map[vgpu.DeviceID]vgpu.Slots{}
		for k := range n.Devices {
			slots[n.Devices[k].ID] = n.Devices[k].Slots
		}
		add := func(p *snapshot.Pod) {
			for _, c := range p.Containers {
				for _, id := range c.Devices {
					sums[p.Namespace] += vgpu.MilliGPU(int64(c.Slots) * int64(vgpu.WholeGPU) / int64(max(slots[id], 1)))
				}
			}
		}
		for k := range n.Pods {
			add(&n.Pods[k])
		}
		for k := range n.Holds {
			add(&n.Holds[k].Pod)
		}
	}
	all := make([]Owner, 0, len(sums))
	for namespace, sum := range sums {
		all = append(all, Owner{namespace, sum})
	}
	slices.SortFunc(all, func(a, b Owner) int {
		return cmp.Or(cmp.Compare(b.MilliGPU, a.MilliGPU), cmp.Compare(a.Namespace, b.Namespace))
	})
	return all
}

// islandsOf numbers the devices that NVLink joins, directly or through each other, from 1; a device without NVLink has 0.
func islandsOf(n *snapshot.Node) []int {
	first := make([]int, len(n.Devices)) // the lowest device of the island
	for i := range first {
		first[i] = i
	}
	for changed := true; changed; {
		changed = false
		for _, l := range n.Links {
			a, b := l.Between[0], l.Between[1]
			if low := min(first[a], first[b]); l.Class == "NVLink" && first[a] != first[b] {
				first[a], first[b], changed = low, low, true
			}
		}
	}
	islands, numbers := make([]int, len(first)), map[int]int{}
	for _, l := range n.Links {
		if l.Class == "NVLink" {
			numbers[first[l.Between[0]]] = 0
		}
	}
	next := 0
	for i, low := range first {
		if _, joined := numbers[low]; joined && numbers[low] == 0 {
			next++
			numbers[low] = next
		}
		islands[i] = numbers[low]
	}
	return islands
}

// wholeGPUs returns the largest number of whole devices that placement would give one pod on the node, beside stray slots.
func wholeGPUs(n *vgpu.Node, stray vgpu.Slots) int {
	most, tried := 0, map[vgpu.Slots]bool{}
	for i := range n.Devices() {
		slots := n.Devices()[i].Slots
		if tried[slots] {
			continue
		}
		tried[slots] = true
		for k := len(n.Devices()); k > most; k-- {
			r := &vgpu.Request{UID: "whole", Pod: "whole", Containers: []vgpu.ContainerRequest{{Name: "main", Slots: vgpu.Slots(k) * slots}}}
			if placement.Fit(n, r) == nil && n.RoomBeside(stray, r) {
				most = k
			}
		}
	}
	return most
}
