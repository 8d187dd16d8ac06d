package sim

import (
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// typicalPercent is the part of the pods whose kinds count in the measure of fragmentation, by CPU and not by memory,
// as in Weng et al. (USENIX ATC 2023). More would count rarities for which no scheduler keeps room.
const typicalPercent = 95

// measure keeps the cluster's fragmentation: the sum over the nodes, each computed anew only when it changed.
type measure struct {
	cluster *vgpu.Cluster
	offers  []vgpu.Offer
	usual   *fragmentation.Mix
	nodes   []int64 // per node, weight × milli-GPU
	sum     int64
}

func newMeasure(c *vgpu.Cluster) *measure {
	return &measure{cluster: c, offers: vgpu.Offers(c.Nodes()), nodes: make([]int64, len(c.Nodes()))}
}

// use measures against the usual requests from now on, all of them.
func (m *measure) use(all *fragmentation.Mix) {
	m.usual, m.sum = all.WithoutMemory().Typical(typicalPercent), 0
	for i, n := range m.cluster.Nodes() {
		m.nodes[i] = m.usual.Lost(n)
		m.sum += m.nodes[i]
	}
}

// changed notes that pods came to or left node i.
func (m *measure) changed(i int) {
	lost := m.usual.Lost(m.cluster.Nodes()[i])
	m.sum += lost - m.nodes[i]
	m.nodes[i] = lost
}

// lost returns the cluster's fragmentation, rounded down.
func (m *measure) lost() vgpu.MilliGPU {
	if m.usual.Weight() == 0 {
		return 0
	}
	return vgpu.MilliGPU(m.sum / m.usual.Weight())
}

// asked returns the compute of a request; see Outcome.Asked.
func (m *measure) asked(r *vgpu.Request) vgpu.MilliGPU {
	for i := range m.offers {
		d := &m.offers[i].Device
		if slots, legal := slotsOn(r, d); legal {
			return milliOf(slots, d.Slots)
		}
	}
	if len(m.offers) == 0 {
		return 0
	}
	return milliOf(r.PeakSlots(), m.offers[0].Device.Slots)
}

// least returns the least compute of a request on any device on which it is legal.
func (m *measure) least(r *vgpu.Request) vgpu.MilliGPU {
	least, some := vgpu.MilliGPU(0), false
	for i := range m.offers {
		d := &m.offers[i].Device
		if slots, legal := slotsOn(r, d); legal && (!some || milliOf(slots, d.Slots) < least) {
			least, some = milliOf(slots, d.Slots), true
		}
	}
	return least
}

// slotsOn returns the slots that the pod takes of devices such as d at most at one time, and whether it may.
func slotsOn(r *vgpu.Request, d *vgpu.Device) (vgpu.Slots, bool) {
	var peak vgpu.Peak
	for c := range r.Containers {
		s, legal := r.ShareOn(c, d)
		if !legal {
			return 0, false
		}
		peak.Add(r.Containers[c].Kind, vgpu.Use{Slots: s.Slots * vgpu.Slots(s.Devices)})
	}
	return peak.Use().Slots, true
}

// milliOf returns the compute of k slots of devices of n, rounded down.
func milliOf(k, n vgpu.Slots) vgpu.MilliGPU {
	return vgpu.MilliGPU(int64(k) * int64(vgpu.WholeGPU) / int64(n))
}

// Capacity returns the compute of all devices of the nodes, unhealthy ones included.
func Capacity(nodes []*vgpu.Node) vgpu.MilliGPU {
	sum := vgpu.MilliGPU(0)
	for _, n := range nodes {
		sum += vgpu.MilliGPU(len(n.Devices())) * vgpu.WholeGPU
	}
	return sum
}

// allocatedOn returns the compute that assignments take of the nodes, rounded down for each device.
func allocatedOn(nodes ...*vgpu.Node) vgpu.MilliGPU {
	sum := vgpu.MilliGPU(0)
	for _, n := range nodes {
		for i := range n.Devices() {
			sum += milliOf(n.Used(i).Slots, n.Devices()[i].Slots)
		}
	}
	return sum
}
