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
	var found *Change
	room := vgpu.Room{MilliCPU: min(1, want.MilliCPU), Memory: min(1, want.Memory)}
	if want.MilliCPU > 0 {
		c, amount, err := q.most(LessHost, want.MilliCPU, func(k int64) []vgpu.Request { return q.withHost(vgpu.Room{MilliCPU: k, Memory: room.Memory}) })
		if c == nil {
			return nil, err
		}
		found, room.MilliCPU = c, amount
	}
	if want.Memory > 0 {
		c, amount, err := q.most(LessHost, int64(want.Memory), func(k int64) []vgpu.Request {
			return q.withHost(vgpu.Room{MilliCPU: room.MilliCPU, Memory: vgpu.Bytes(k)})
		})
		if c == nil {
			return nil, err
		}
		found, room.Memory = c, vgpu.Bytes(amount)
	}
	if room.MilliCPU < want.MilliCPU {
		found.MilliCPU = room.MilliCPU
	}
	if room.Memory < want.Memory {
		found.HostMemory = room.Memory
		if room.Memory > vgpu.MiB { // people write no odd bytes
			found.HostMemory -= room.Memory % vgpu.MiB
		}
	}
	return found, nil
}

// withHost returns the requests with an amount of CPU and memory of their hosts at most.
func (q *question) withHost(room vgpu.Room) []vgpu.Request {
	return with(q.requests, func(r *vgpu.Request) {
		r.Host = vgpu.Room{MilliCPU: min(r.Host.MilliCPU, room.MilliCPU), Memory: min(r.Host.Memory, room.Memory)}
	})
}
