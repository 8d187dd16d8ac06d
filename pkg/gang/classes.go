package gang

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// crew is the members that want a place, in the order of their ranks and by what they ask for.
type crew struct {
	g *Group
	// order lists members by rank, classOf the class of each in that order.
	order, classOf []int
	classes        []class
}

// class is members that ask for the same and are admitted by the same nodes.
type class struct {
	// request of the first of them.
	request *vgpu.Request
	kind    int
	// members as indices of Group.Members, by rank.
	members []int
}

func crewOf(g *Group) *crew {
	w := &crew{g: g, order: make([]int, len(g.Members))}
	for i := range w.order {
		w.order[i] = i
	}
	slices.SortFunc(w.order, func(a, b int) int {
		x, y := &g.Members[a], &g.Members[b]
		return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(x.Request.Pod, y.Request.Pod), cmp.Compare(x.Request.UID, y.Request.UID))
	})
	w.classOf = make([]int, 0, len(w.order))
	for _, i := range w.order {
		m := &g.Members[i]
		at := slices.IndexFunc(w.classes, func(k class) bool { return k.kind == m.Kind && alike(k.request, &m.Request) })
		if at < 0 {
			at = len(w.classes)
			w.classes = append(w.classes, class{request: &m.Request, kind: m.Kind})
		}
		w.classes[at].members = append(w.classes[at].members, i)
		w.classOf = append(w.classOf, at)
	}
	return w
}

// alike reports whether two requests differ in the pod only.
func alike(a, b *vgpu.Request) bool {
	return a.Priority == b.Priority && a.Ends == b.Ends && a.ComputeLimit == b.ComputeLimit && a.MemoryLimit == b.MemoryLimit &&
		a.Tenancy == b.Tenancy && a.Host == b.Host && slices.Equal(a.Containers, b.Containers) &&
		slices.Equal(a.Variants, b.Variants) && slices.Equal(a.Preferences, b.Preferences)
}

// first returns how many of each class are among the first n members.
func (w *crew) first(n int) []int {
	counts := make([]int, len(w.classes))
	for _, k := range w.classOf[:n] {
		counts[k]++
	}
	return counts
}

// wants reports whether a pod is one of the members that want a place.
func (w *crew) wants() func(vgpu.UID) bool {
	uids := make(map[vgpu.UID]bool, len(w.g.Members))
	for i := range w.g.Members {
		uids[w.g.Members[i].Request.UID] = true
	}
	return func(uid vgpu.UID) bool { return uids[uid] }
}

// others returns what tells pods of others from those of the gang.
func (w *crew) others() func(vgpu.UID) bool {
	own := make(map[vgpu.UID]bool, len(w.g.Placed)+len(w.g.Members))
	for i := range w.g.Placed {
		own[w.g.Placed[i].UID] = true
	}
	for i := range w.g.Members {
		own[w.g.Members[i].Request.UID] = true
	}
	return func(uid vgpu.UID) bool { return !own[uid] }
}

// slots returns the slots that a member of the class takes at least: 0 where it asks for no GPU.
func (k *class) slots() int64 { return int64(k.request.PeakSlots()) }

// Classes returns the members that must get a place, those with the lowest ranks, as indices of Members: those that ask for
// the same and are admitted by the same nodes together. The classes are in the order of ranks. Alike says that all members
// that want a place are of one class: if they have one container each, and nobody was promised a slowdown, Place finds places
// whenever there are any.
func (g *Group) Classes() (least [][]int, alike bool) {
	w := crewOf(g)
	for k, n := range w.first(min(max(1, g.MinCount-len(g.Placed)), len(g.Members))) {
		if n > 0 {
			least = append(least, w.classes[k].members[:n])
		}
	}
	return least, len(w.classes) <= 1
}
