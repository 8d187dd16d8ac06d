package gang

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Kept is room that is kept for a gang while pods end: the places and the blockers of a plan by Drain.
type Kept struct {
	Places   []vgpu.Assignment
	Blockers []Blocker
}

// Stand says how the room stands, by the names of its nodes: taken are those with a pod that it waits for, or others on its
// devices; short are those of the rest whose hosts have too little CPU or memory for the members, of which it may know some only.
// Where none is taken and the gang has no place all the same, the room is kept in vain.
func (k *Kept) Stand(c *Cluster, members []Member) (taken, short []string) {
	asks, waits := map[vgpu.UID]vgpu.Room{}, map[vgpu.UID]bool{}
	for i := range members {
		asks[members[i].Request.UID] = members[i].Request.Host
	}
	for _, l := range k.Blockers {
		waits[l.UID] = true
	}
	for _, n := range c.Nodes {
		switch mine, free, room := k.on(n, asks); {
		case !mine:
		case !free || awaits(n, waits):
			taken = append(taken, n.Name())
		case !room:
			short = append(short, n.Name())
		}
	}
	return taken, short
}

// on reports whether there are places on a node, whether their devices are free for them, and whether the host has room.
func (k *Kept) on(n *vgpu.Node, asks map[vgpu.UID]vgpu.Room) (mine, free, room bool) {
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

// awaits reports whether a node has one of the pods.
func awaits(n *vgpu.Node, pods map[vgpu.UID]bool) (some bool) {
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
