// Package consumption says who uses how much of what they hold, from a snapshot.
//
// It is a function of the snapshot alone. A value that nobody has measured is unknown, and never 0.
package consumption

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Row is what one pod holds and uses, or those of one namespace, node or device together. Amounts of GPU are in thousandths of a device.
type Row struct {
	// Name is the pod's or the namespace's, "namespace/name" for pods, or that of a node, or "node/g0" for a device. UID is the pod's, or the ID
	// of the device.
	Name string   `json:"name"`
	UID  vgpu.UID `json:"uid,omitempty"`
	// Node of a pod or a device.
	Node string `json:"node,omitempty"`
	// Pods counts the pods of the row that hold shares, Unmeasured those of which nobody has measured the use.
	Pods       int `json:"pods"`
	Unmeasured int `json:"unmeasured,omitempty"`
	// OfMilli is the size of a node's devices, or of a device; absent for pods and namespaces.
	OfMilli int64 `json:"ofMilliGPU,omitempty"`
	// HeldMilli is what the pods hold of devices, UsedMilli the part of the devices' time in which their kernels run, and WasteMilli what they hold
	// and do not use: of each pod and device at least 0. Both are sums over the measured pods, and absent where none is.
	HeldMilli  int64  `json:"heldMilliGPU"`
	UsedMilli  *int64 `json:"usedMilliGPU,omitempty"`
	WasteMilli *int64 `json:"wasteMilliGPU,omitempty"`
	// HeldBytes is the device memory that the pods hold, UsedBytes what they use of it, absent where nobody has measured it.
	HeldBytes vgpu.Bytes  `json:"heldBytes"`
	UsedBytes *vgpu.Bytes `json:"usedBytes,omitempty"`
	// SlowdownMilli is the longest predicted time beside neighbours, in thousandths of the time alone; absent where nothing is predicted.
	SlowdownMilli int64 `json:"slowdownMilli,omitempty"`
	// RateMicro is the rate that the pod reports of itself, in millionths of its own unit; absent where it reports none, and for several pods.
	RateMicro *int64 `json:"rateMicro,omitempty"`
	// Overbooked are the pods of the row whose shares do not fit on their devices. They are in no number above.
	Overbooked []Overbooked `json:"overbooked,omitempty"`
}

// Overbooked is a pod whose share does not fit: its devices by name, and its slots of these.
type Overbooked struct {
	Pod     string     `json:"pod"`
	Devices []string   `json:"devices"`
	Slots   vgpu.Slots `json:"slots"`
}

// Groups are what rows may be of.
const (
	ByPod       = "pod"
	ByNamespace = "namespace"
	ByNode      = "node"
	ByDevice    = "device"
)

// Groups returns the names of groups.
func Groups() []string { return []string{ByPod, ByNamespace, ByNode, ByDevice} }

// part is what one pod has of one device.
type part struct {
	pod    *snapshot.Pod
	node   string
	device *vgpu.MapDevice
	held   int64
	bytes  vgpu.Bytes
	on     *snapshot.On
}

// Rows returns the rows of a group, in no order that matters. Room that the scheduler keeps for pods that are not there yet is in none of them.
func Rows(s *snapshot.Snapshot, by string) ([]Row, error) {
	if !slices.Contains(Groups(), by) {
		return nil, fmt.Errorf("group %q, legal are %v", by, Groups())
	}
	m, err := s.Map()
	if err != nil {
		return nil, fmt.Errorf("read shares: %w", err)
	}
	g := &grouped{at: map[string]int{}, seen: map[seen]bool{}}
	for i := range m.Nodes {
		parts := partsOf(&s.Nodes[i], &m.Nodes[i])
		for k := range parts {
			g.add(&parts[k], by)
		}
		for k := range s.Nodes[i].Overbooked {
			g.overbook(&s.Nodes[i].Overbooked[k], &m.Nodes[i], by)
		}
		if by == ByNode || by == ByDevice {
			g.capacity(&m.Nodes[i], by)
		}
	}
	return g.rows, nil
}

// partsOf returns what each pod of a node has of each device.
func partsOf(n *snapshot.Node, drawn *vgpu.MapNode) (parts []part) {
	pods := map[vgpu.UID]*snapshot.Pod{}
	for i := range n.Pods {
		pods[n.Pods[i].UID] = &n.Pods[i]
	}
	for i := range drawn.Devices {
		d := &drawn.Devices[i]
		for _, x := range d.Slices {
			p := pods[x.UID]
			if x.Held || p == nil {
				continue
			}
			found := part{pod: p, node: n.Name, device: d, held: milli(x.To-x.From, d.Slots), bytes: x.Memory}
			if at := slices.IndexFunc(p.On, func(o snapshot.On) bool { return o.Device == d.ID }); at >= 0 {
				found.on = &p.On[at]
			}
			parts = append(parts, found)
		}
	}
	return parts
}

// milli returns slots in thousandths of a device.
func milli(slots, of vgpu.Slots) int64 { return int64(slots) * 1000 / int64(max(1, of)) }

// grouped is rows that are being added up.
type grouped struct {
	rows []Row
	at   map[string]int
	seen map[seen]bool
}

// seen is a pod that a row counts, or counts as not measured.
type seen struct {
	key        string
	uid        vgpu.UID
	unmeasured bool
}

// row returns the row of a key.
func (g *grouped) row(key string, first Row) *Row {
	at, known := g.at[key]
	if !known {
		at = len(g.rows)
		g.at[key] = at
		g.rows = append(g.rows, first)
	}
	return &g.rows[at]
}

// first reports whether a row sees something of a pod for the first time.
func (g *grouped) first(x seen) int {
	if g.seen[x] {
		return 0
	}
	g.seen[x] = true
	return 1
}

func (g *grouped) add(p *part, by string) {
	key, first := string(p.pod.UID), Row{Name: p.pod.Path(), UID: p.pod.UID, Node: p.node}
	switch by {
	case ByNamespace:
		key, first = p.pod.Namespace, Row{Name: p.pod.Namespace}
	case ByNode:
		key, first = p.node, Row{Name: p.node}
	case ByDevice:
		key, first = string(p.device.ID), ofDevice(p.node, p.device)
	}
	r := g.row(key, first)
	r.Pods += g.first(seen{key, p.pod.UID, false})
	r.HeldMilli += p.held
	r.HeldBytes += p.bytes
	if p.on == nil || p.on.SMPercent == nil {
		r.Unmeasured += g.first(seen{key, p.pod.UID, true})
	} else {
		used := int64(*p.on.SMPercent) * 10
		r.UsedMilli = plus(r.UsedMilli, used)
		r.WasteMilli = plus(r.WasteMilli, max(0, p.held-used))
	}
	if p.on == nil {
		return
	}
	if p.on.MemoryUsedBytes != nil {
		r.UsedBytes = plus(r.UsedBytes, *p.on.MemoryUsedBytes)
	}
	r.SlowdownMilli = max(r.SlowdownMilli, p.on.SlowdownMilli)
	if by == ByPod && p.on.RateMicro != nil && (r.RateMicro == nil || *r.RateMicro < *p.on.RateMicro) {
		r.RateMicro = p.on.RateMicro
	}
}

// overbook adds a pod whose share does not fit.
func (g *grouped) overbook(o *snapshot.Overbooked, on *vgpu.MapNode, by string) {
	one := Overbooked{Pod: o.Path(), Slots: o.Slots}
	var devices []*vgpu.MapDevice
	for _, id := range o.Devices {
		name := string(id) // of a device that the node no longer has
		if at := slices.IndexFunc(on.Devices, func(d vgpu.MapDevice) bool { return d.ID == id }); at >= 0 {
			name, devices = on.Devices[at].Name, append(devices, &on.Devices[at])
		}
		one.Devices = append(one.Devices, name)
	}
	add := func(key string, first Row) {
		r := g.row(key, first)
		r.Overbooked = append(r.Overbooked, one)
	}
	switch by {
	case ByPod:
		add(string(o.UID), Row{Name: o.Path(), UID: o.UID, Node: on.Name})
	case ByNamespace:
		add(o.Namespace, Row{Name: o.Namespace})
	case ByNode:
		add(on.Name, Row{Name: on.Name})
	case ByDevice:
		for _, d := range devices {
			add(string(d.ID), ofDevice(on.Name, d))
		}
	}
}

func plus[T ~int64](sum *T, x T) *T {
	if sum != nil {
		x += *sum
	}
	return &x
}

func ofDevice(node string, d *vgpu.MapDevice) Row {
	return Row{Name: node + "/" + d.Name, UID: vgpu.UID(d.ID), Node: node}
}

// capacity adds the size of a node or of its devices, and rows for those without pods.
func (g *grouped) capacity(n *vgpu.MapNode, by string) {
	for i := range n.Devices {
		key, first := n.Name, Row{Name: n.Name}
		if by == ByDevice {
			key, first = string(n.Devices[i].ID), ofDevice(n.Name, &n.Devices[i])
		}
		g.row(key, first).OfMilli += 1000
	}
}

// Orders are what rows may be sorted by.
const (
	Waste    = "waste"
	Use      = "use"
	Slowdown = "slowdown"
	Memory   = "memory"
	Held     = "held"
	Name     = "name"
)

// Orders returns the names of orders.
func Orders() []string { return []string{Waste, Use, Slowdown, Memory, Held, Name} }

// Sort sorts rows: the largest amount first, those of which it is unknown last; equal ones by name, then UID.
func Sort(rows []Row, order string) {
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(amount(&b, order), amount(&a, order)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
}

// amount is what an order goes by, -1 for unknown.
func amount(r *Row, order string) int64 {
	known := func(x *int64) int64 {
		if x == nil {
			return -1
		}
		return *x
	}
	switch order {
	case Waste:
		return known(r.WasteMilli)
	case Use:
		return known(r.UsedMilli)
	case Slowdown:
		return r.SlowdownMilli
	case Memory:
		return known((*int64)(r.UsedBytes))
	case Held:
		return r.HeldMilli
	}
	return 0
}

// Of returns the rows of a namespace, all for "". Rows of nodes and devices are of no namespace, and all stay.
func Of(rows []Row, by, namespace string) []Row {
	if namespace == "" || by == ByNode || by == ByDevice {
		return rows
	}
	return slices.DeleteFunc(rows, func(r Row) bool {
		if by == ByPod {
			return snapshot.NameOf(r.Name, "").Namespace != namespace
		}
		return r.Name != namespace
	})
}
