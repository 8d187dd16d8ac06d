package outlook

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// typicalPercent is the part of the usual requests that the measure of fragmentation is about, as in the scheduler's metric.
const typicalPercent = 95

// Figures sum up a cluster at one moment. Nodes that take no pods, and unhealthy devices, have nothing free.
type Figures struct {
	GPUs int `json:"gpus"`
	// GPUsInUse have a pod.
	GPUsInUse       int        `json:"gpusInUse"`
	Slots           vgpu.Slots `json:"slots"`
	FreeSlots       vgpu.Slots `json:"freeSlots"`
	MemoryBytes     vgpu.Bytes `json:"memoryBytes"`
	FreeMemoryBytes vgpu.Bytes `json:"freeMemoryBytes"`
	// FragmentationMilliGPU is the free compute that the usual requests of the snapshot cannot use.
	FragmentationMilliGPU vgpu.MilliGPU `json:"fragmentationMilliGPU"`
	// LargestGang is the largest number of members of one whole GPU each that would get a place, LargestOnNode that on one node. They
	// count devices, not the CPU and memory of hosts.
	LargestGang   int `json:"largestGang"`
	LargestOnNode int `json:"largestOnNode"`
	// SlowdownMilli is the mean of the predicted slowdowns of the shares of which it is known, in thousandths, 0 where it is known of
	// none. It is known of a share alone on its device, and of one that the snapshot has a prediction for and that has the same
	// neighbours. UnknownSlowdowns are the other shares.
	SlowdownMilli    int64 `json:"slowdownMilli"`
	UnknownSlowdowns int   `json:"unknownSlowdowns"`
}

// measure returns the part of the usual requests that fragmentation is measured against.
func (w *world) measure() *fragmentation.Mix {
	return w.usual().WithoutMemory().Typical(typicalPercent)
}

// figures sums up the cluster of a snapshot: that of the world, or what becomes of it.
func (w *world) figures(s *snapshot.Snapshot, usual *fragmentation.Mix) (Figures, error) {
	c, err := closed(s).Cluster()
	if err != nil {
		return Figures{}, err
	}
	var f Figures
	for _, n := range c.Nodes() {
		f.add(n, usual)
	}
	if usual.Weight() > 0 {
		f.FragmentationMilliGPU /= vgpu.MilliGPU(usual.Weight())
	}
	w.slowdowns(&f, s)
	return f, nil
}

// whole is a pod that may use all that is free.
var whole = vgpu.Request{UID: "whole", Pod: "whole"}

// add adds a node. Fragmentation is then still multiplied by the weight of the usual requests.
func (f *Figures) add(n *vgpu.Node, usual *fragmentation.Mix) {
	idle := 0
	for i := range n.Devices() {
		d := &n.Devices()[i]
		f.GPUs++
		f.Slots, f.MemoryBytes = f.Slots+d.Slots, f.MemoryBytes+d.Memory
		used := n.Used(i)
		if used.Slots > 0 || used.Memory > 0 {
			f.GPUsInUse++
		}
		free := n.FreeFor(i, &whole)
		f.FreeSlots, f.FreeMemoryBytes = f.FreeSlots+free.Slots, f.FreeMemoryBytes+free.Memory
		if free.Slots == d.Slots && free.Memory == d.Memory {
			idle++
		}
	}
	f.LargestGang, f.LargestOnNode = f.LargestGang+idle, max(f.LargestOnNode, idle)
	if usual.Weight() > 0 {
		f.FragmentationMilliGPU += vgpu.MilliGPU(usual.Lost(n))
	}
}

// share is one pod on one device.
type share struct {
	pod    vgpu.UID
	device vgpu.DeviceID
}

// slowdowns adds what is known of slowdowns.
func (w *world) slowdowns(f *Figures, s *snapshot.Snapshot) {
	predicted := map[share]int64{}
	for i := range w.s.Nodes {
		for k := range w.s.Nodes[i].Pods {
			p := &w.s.Nodes[i].Pods[k]
			for _, on := range p.On {
				predicted[share{p.UID, on.Device}] = on.SlowdownMilli
			}
		}
	}
	before, sum, known := neighbours(w.s), int64(0), int64(0)
	for device, pods := range neighbours(s) {
		for _, uid := range pods {
			milli := predicted[share{uid, device}]
			switch {
			case len(pods) == 1:
				milli = vgpu.NoSlowdown
			case milli == 0 || !slices.Equal(pods, before[device]):
				f.UnknownSlowdowns++
				continue
			}
			sum, known = sum+milli, known+1
		}
	}
	if known > 0 {
		f.SlowdownMilli = sum / known
	}
}

// neighbours returns the pods of each device, in the order of their UIDs.
func neighbours(s *snapshot.Snapshot) map[vgpu.DeviceID][]vgpu.UID {
	all := map[vgpu.DeviceID][]vgpu.UID{}
	for i := range s.Nodes {
		for k := range s.Nodes[i].Pods {
			p := &s.Nodes[i].Pods[k]
			for _, c := range p.Containers {
				for _, d := range c.Devices {
					if pods := all[d]; len(pods) == 0 || pods[len(pods)-1] != p.UID {
						all[d] = append(pods, p.UID)
					}
				}
			}
		}
	}
	return all
}
