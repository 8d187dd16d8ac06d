package gpumap

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// usualOf returns the requests that count as usual: the slots that the pods of the snapshot have, are kept, or wait for. A pod counts once,
// and no namespace more than all others together, as the scheduler counts arrivals. CPU and memory of the hosts do not count, nor the models
// that a pod may use: a snapshot has these of waiting pods alone.
func usualOf(s *snapshot.Snapshot) (*fragmentation.Mix, error) {
	var counter fragmentation.Counter
	seen := map[vgpu.UID]bool{}
	observe := func(uid vgpu.UID, namespace string, slots vgpu.Slots) {
		if slots > 0 && !seen[uid] {
			seen[uid] = true
			counter.Observe(namespace, fragmentation.Kind{Slots: slots}, 0)
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for k := range n.Pods {
			observe(n.Pods[k].UID, n.Pods[k].Namespace, heldBy(&n.Pods[k]))
		}
		for k := range n.Holds {
			observe(n.Holds[k].UID, n.Holds[k].Namespace, heldBy(&n.Holds[k].Pod))
		}
	}
	for i := range s.Pending {
		observe(s.Pending[i].UID, s.Pending[i].Namespace, slotsOf(&s.Pending[i]))
	}
	m, err := counter.Mix(0)
	if err != nil {
		return nil, fmt.Errorf("find usual requests: %w", err)
	}
	return m, nil
}

// heldBy returns the slots of a pod at most at one time.
func heldBy(p *snapshot.Pod) vgpu.Slots {
	var peak vgpu.Peak
	for i := range p.Containers {
		c := &p.Containers[i]
		peak.Add(kindOf(c.Kind), vgpu.Use{Slots: c.Slots * vgpu.Slots(len(c.Devices))})
	}
	return peak.Use().Slots
}

// lose adds what a pod of priority 0 may take of each device, and what of it the usual requests cannot use. A node that takes no pods has
// neither.
func (n *Node) lose(ledger *vgpu.Node, usual *fragmentation.Mix) {
	if n.Problem != "" {
		return
	}
	free := make([]vgpu.Use, len(n.Devices))
	for i := range free {
		free[i] = ledger.FreeFor(i, &vgpu.Request{})
	}
	lost := usual.ByDevice(ledger, free, vgpu.Room{})
	for i := range n.Devices {
		d := &n.Devices[i]
		d.FreeMilliGPU = vgpu.MilliGPU(int64(free[i].Slots) * int64(vgpu.WholeGPU) / int64(d.Slots))
		if usual.Weight() > 0 {
			part := vgpu.MilliGPU(lost[i] / usual.Weight())
			d.LostMilliGPU = &part
		}
	}
}
