package gang

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Kept is the room that the scheduler keeps for a gang while pods end: the places and the blockers of a plan by Drain.
type Kept struct {
	Places   []vgpu.Assignment
	Blockers []Blocker
}

// Stand returns the nodes on which the room is not ready, by name. On the taken nodes a blocker still runs, or other
// pods use the devices. The short nodes are other ones, and their hosts have too little CPU or memory for the members;
// members may list only some of the gang. If no node is taken and the gang still has no place, keeping the room is in
// vain.
func (k *Kept) Stand(c *Cluster, members []Member) (taken, short []string) {
	asks, waits := map[vgpu.UID]vgpu.Room{}, map[vgpu.UID]bool{}
	for i := range members {
		asks[members[i].Request.UID] = members[i].Request.Host
	}
	for _, l := range k.Blockers {
		waits[l.UID] = true
	}
	for _, n := range c.Nodes {
		switch mine, free, room := k.standOn(n, asks); {
		case !mine:
		case !free || hasAny(n, waits):
			taken = append(taken, n.Name())
		case !room:
			short = append(short, n.Name())
		}
	}
	return taken, short
}

// standOn reports whether there are places on a node, whether their devices are free for them, and whether the host has
// enough CPU and memory.
func (k *Kept) standOn(n *vgpu.Node, asks map[vgpu.UID]vgpu.Room) (mine, free, room bool) {
	want, free := vgpu.Room{}, true
	var left *vgpu.Node
	for i := range k.Places {
		a := &k.Places[i]
		if a.Node != n.Name() {
			continue
		}
		if left == nil {
			left = n.Clone()
		}
		want = want.Plus(asks[a.UID])
		free = free && (len(a.Containers) == 0 || left.Add(*a) == nil)
	}
	return left != nil, free, want.Within(n.Room())
}

// hasAny reports whether a node has one of the pods.
func hasAny(n *vgpu.Node, pods map[vgpu.UID]bool) (some bool) {
	n.Each(func(a *vgpu.Assignment) { some = some || pods[a.UID] })
	return some
}

// Nodes returns the names of the nodes of the places, each once, in order.
func (k *Kept) Nodes() []string {
	var names []string
	for i := range k.Places {
		if k.Places[i].Node != "" {
			names = append(names, k.Places[i].Node)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
