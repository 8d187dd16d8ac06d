package gang

import (
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// waitTimes holds how long the gang waits for each device.
type waitTimes struct {
	now *snapshot
	// isOther reports whether a pod does not belong to the gang.
	isOther func(vgpu.UID) bool
	// endsKnown says that the ends of all pods of others are known: devices are then ordered by time, else by slots.
	endsKnown bool
	// ofDevice is the wait for each device of each node, in seconds or slots: 0 for free ones. Devices that share a pod
	// have the same wait.
	ofDevice [][]int64
	// requests holds the request of each member.
	requests map[vgpu.UID]*vgpu.Request
}

// unknownEnd is the end of a pod whose end is unknown: it is later than any other.
const unknownEnd = math.MaxInt64

func newWaitTimes(snap *snapshot) *waitTimes {
	w := &waitTimes{now: snap, isOther: snap.members.isOther(), endsKnown: true, requests: make(map[vgpu.UID]*vgpu.Request, len(snap.members.g.Members))}
	for i := range snap.members.g.Members {
		r := &snap.members.g.Members[i].Request
		w.requests[r.UID] = r
	}
	for _, n := range snap.nodes {
		n.Each(func(a *vgpu.Assignment) {
			w.endsKnown = w.endsKnown && (!w.mayEnd(a) || w.endOf(a) < unknownEnd)
		})
	}
	for _, n := range snap.nodes {
		w.ofDevice = append(w.ofDevice, w.deviceTimes(n))
	}
	return w
}

// endOf returns when a pod ends.
func (w *waitTimes) endOf(a *vgpu.Assignment) int64 {
	if w.now.c.Ends == nil {
		return unknownEnd
	}
	if at := w.now.c.Ends(a.UID, a.Pod); at > 0 {
		return at
	}
	return unknownEnd
}

// mayEnd reports whether a pod is one of others that may end, on a node that is not avoided.
func (w *waitTimes) mayEnd(a *vgpu.Assignment) bool {
	c := w.now.c
	return w.isOther(a.UID) && (c.Ends == nil || c.Ends(a.UID, a.Pod) != Never) && (c.Avoids == nil || !c.Avoids(a.Node))
}

// hostRoomOf returns the CPU and memory that a pod gives back to its host.
func (w *waitTimes) hostRoomOf(a *vgpu.Assignment) vgpu.Room {
	if w.now.c.Host == nil {
		return vgpu.Room{}
	}
	return w.now.c.Host(a.UID, a.Pod)
}

// deviceTimes returns the wait for each device of a node.
func (w *waitTimes) deviceTimes(n *vgpu.Node) []int64 {
	long := make([]int64, len(n.Devices()))
	var pods [][]int
	n.Each(func(a *vgpu.Assignment) {
		if !w.mayEnd(a) {
			return
		}
		devices := devicesOf(n, a)
		pods = append(pods, devices)
		for _, d := range devices {
			if w.endsKnown {
				long[d] = max(long[d], w.endOf(a))
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

// emptied returns the snapshot after all pods have ended that may end. Their hosts have the requests of these pods
// back. Pods that stay keep their part, pods without devices among them.
func (w *waitTimes) emptied() *snapshot {
	return w.now.withNodes(func(_ int, n *vgpu.Node) *vgpu.Node {
		leave, room := false, n.Room()
		n.Each(func(a *vgpu.Assignment) {
			if w.mayEnd(a) {
				leave, room = true, room.Plus(w.hostRoomOf(a))
			}
		})
		if !leave {
			return n
		}
		n = n.Without(func(h *vgpu.Hold, held bool) bool { return !held && w.mayEnd(&h.Assignment) })
		n.SetRoom(room)
		return n
	})
}
