package gang

import (
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// wait tells what has to end before devices are free for the gang.
type wait struct {
	now *ground
	// others reports whether a pod is none of the gang's.
	others func(vgpu.UID) bool
	// known says that the ends of all pods of others are: devices are then ordered by time, else by slots.
	known bool
	// long is how long each device of each node is waited for, in seconds or slots: 0 for free ones. A device that shares
	// a pod with others is waited for as long as they are.
	long [][]int64
	// asks is what each member asks for.
	asks map[vgpu.UID]*vgpu.Request
}

// unknownEnd is the end of a pod that nobody knows: later than any.
const unknownEnd = math.MaxInt64

func newWait(f *ground) *wait {
	w := &wait{now: f, others: f.crew.others(), known: true, asks: make(map[vgpu.UID]*vgpu.Request, len(f.crew.g.Members))}
	for i := range f.crew.g.Members {
		r := &f.crew.g.Members[i].Request
		w.asks[r.UID] = r
	}
	for _, n := range f.nodes {
		n.Each(func(a *vgpu.Assignment) {
			w.known = w.known && (!w.leaves(a) || w.end(a) < unknownEnd)
		})
	}
	for _, n := range f.nodes {
		w.long = append(w.long, w.measure(n))
	}
	return w
}

// end returns when a pod ends.
func (w *wait) end(a *vgpu.Assignment) int64 {
	if w.now.c.Ends == nil {
		return unknownEnd
	}
	if at := w.now.c.Ends(a.UID, a.Pod); at > 0 {
		return at
	}
	return unknownEnd
}

// leaves reports whether a pod is one of others that ends some time, on a node that is not avoided.
func (w *wait) leaves(a *vgpu.Assignment) bool {
	c := w.now.c
	return w.others(a.UID) && (c.Ends == nil || c.Ends(a.UID, a.Pod) != Never) && (c.Avoids == nil || !c.Avoids(a.Node))
}

// host returns what a pod gives back of its host.
func (w *wait) host(a *vgpu.Assignment) vgpu.Room {
	if w.now.c.Host == nil {
		return vgpu.Room{}
	}
	return w.now.c.Host(a.UID, a.Pod)
}

// measure returns how long each device of a node is waited for.
func (w *wait) measure(n *vgpu.Node) []int64 {
	long := make([]int64, len(n.Devices()))
	var pods [][]int
	n.Each(func(a *vgpu.Assignment) {
		if !w.leaves(a) {
			return
		}
		devices := devicesOf(n, a)
		pods = append(pods, devices)
		for _, d := range devices {
			if w.known {
				long[d] = max(long[d], w.end(a))
			} else {
				long[d] += int64(useOn(a, n.Devices()[d].ID).Slots)
			}
		}
	})
	for again := true; again; {
		again = false
		for _, devices := range pods {
			most := int64(0)
			for _, d := range devices {
				most = max(most, long[d])
			}
			for _, d := range devices {
				again = again || long[d] < most
				long[d] = most
			}
		}
	}
	return long
}

// devicesOf returns the devices of an assignment by index, each once.
func devicesOf(n *vgpu.Node, a *vgpu.Assignment) []int {
	var list []int
	for c := range a.Containers {
		for _, id := range a.Containers[c].Devices {
			list = append(list, n.Index(id))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// emptied returns the ground once all pods that leave are gone. Hosts have back what these ask of them; pods that stay, those
// without devices among them, keep theirs.
func (w *wait) emptied() *ground {
	return w.now.on(func(_ int, n *vgpu.Node) *vgpu.Node {
		leave, room := false, n.Room()
		n.Each(func(a *vgpu.Assignment) {
			if w.leaves(a) {
				leave, room = true, room.Plus(w.host(a))
			}
		})
		if !leave {
			return n
		}
		n = n.Without(func(h *vgpu.Hold, held bool) bool { return !held && w.leaves(&h.Assignment) })
		n.SetRoom(room)
		return n
	})
}
