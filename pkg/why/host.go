package why

import (
	"cmp"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// hostMiss returns what the host of a node lacks for the first pod.
func (q *question) hostMiss(n *vgpu.Node) *HostMiss {
	want, free := q.requests[0].Host, n.Room()
	return &HostMiss{Node: n.Name(), WantMilliCPU: want.MilliCPU, FreeMilliCPU: free.MilliCPU, WantMemoryBytes: want.Memory, FreeMemoryBytes: free.Memory}
}

// nearerHost returns the miss that has the larger part of what is scarcer there, the first of equal ones.
func nearerHost(a, b *HostMiss) *HostMiss {
	if a == nil || cmp.Compare(b.part(), a.part()) > 0 {
		return b
	}
	return a
}

// part is the part of the request that the host has, of CPU or of memory, whichever is less.
func (m *HostMiss) part() float64 {
	return min(covered(m.FreeMilliCPU, m.WantMilliCPU), covered(int64(m.FreeMemoryBytes), int64(m.WantMemoryBytes)))
}

func covered(free, want int64) float64 {
	if want <= 0 || free >= want {
		return 1
	}
	return float64(free) / float64(want)
}

// lessHost finds the most CPU of the hosts that fits and, with that, the most memory. Less of either fits wherever more does.
func (q *question) lessHost() (*Change, error) {
	var want vgpu.Room
	for i := range q.requests {
		want = vgpu.Room{MilliCPU: max(want.MilliCPU, q.requests[i].Host.MilliCPU), Memory: max(want.Memory, q.requests[i].Host.Memory)}
	}
	if want.MilliCPU <= 0 && want.Memory <= 0 {
		return nil, nil
	}
	most := vgpu.Room{MilliCPU: min(1, want.MilliCPU), Memory: min(1, want.Memory)}
	found, err := q.withHost(most)
	if err != nil || found == nil {
		return nil, err
	}
	if most.MilliCPU, err = mostThatFits(want.MilliCPU, func(amount int64) (bool, error) {
		return q.fitsHost(vgpu.Room{MilliCPU: amount, Memory: most.Memory}, &found)
	}); err != nil {
		return nil, err
	}
	memory, err := mostThatFits(int64(want.Memory), func(amount int64) (bool, error) {
		return q.fitsHost(vgpu.Room{MilliCPU: most.MilliCPU, Memory: vgpu.Bytes(amount)}, &found)
	})
	if most.MilliCPU < want.MilliCPU {
		found.MilliCPU = most.MilliCPU
	}
	if vgpu.Bytes(memory) < want.Memory {
		found.HostMemory = vgpu.Bytes(memory)
	}
	if found.HostMemory > vgpu.MiB { // people write no odd bytes
		found.HostMemory -= found.HostMemory % vgpu.MiB
	}
	return found, err
}

// mostThatFits returns the largest amount up to one that fits. The amount of 1 does.
func mostThatFits(want int64, fits func(amount int64) (bool, error)) (int64, error) {
	least := min(1, want)
	for most := want; least < most; {
		amount := most - (most-least)/2
		ok, err := fits(amount)
		if err != nil {
			return 0, err
		}
		if ok {
			least = amount
		} else {
			most = amount - 1
		}
	}
	return least, nil
}

// fitsHost tries the pods with less of their hosts, and keeps the change where they fit.
func (q *question) fitsHost(room vgpu.Room, found **Change) (bool, error) {
	c, err := q.withHost(room)
	if c != nil {
		*found = c
	}
	return c != nil, err
}

// withHost tries the pods with an amount of CPU and memory of their hosts at most.
func (q *question) withHost(room vgpu.Room) (*Change, error) {
	return q.attempt(LessHost, with(q.requests, func(r *vgpu.Request) {
		r.Host = vgpu.Room{MilliCPU: min(r.Host.MilliCPU, room.MilliCPU), Memory: min(r.Host.Memory, room.Memory)}
	}))
}
