package gang

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// memberClasses groups the members that need a place by their requests, and orders them by rank.
type memberClasses struct {
	g *Group
	// order lists members by rank. classOf is the class of each, in that order.
	order, classOf []int
	classes        []memberClass
}

// memberClass is a set of members with the same request that the same nodes admit.
type memberClass struct {
	// request of the first member.
	request *vgpu.Request
	kind    int
	// members as indices of Group.Members, by rank.
	members []int
}

func classesOf(g *Group) *memberClasses {
	mc := &memberClasses{g: g, order: make([]int, len(g.Members))}
	for i := range mc.order {
		mc.order[i] = i
	}
	slices.SortFunc(mc.order, func(a, b int) int {
		x, y := &g.Members[a], &g.Members[b]
		return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(x.Request.Pod, y.Request.Pod), cmp.Compare(x.Request.UID, y.Request.UID))
	})
	mc.classOf = make([]int, 0, len(mc.order))
	for _, i := range mc.order {
		m := &g.Members[i]
		at := slices.IndexFunc(mc.classes, func(k memberClass) bool { return k.kind == m.Kind && sameDemand(k.request, &m.Request) })
		if at < 0 {
			at = len(mc.classes)
			mc.classes = append(mc.classes, memberClass{request: &m.Request, kind: m.Kind})
		}
		mc.classes[at].members = append(mc.classes[at].members, i)
		mc.classOf = append(mc.classOf, at)
	}
	return mc
}

// withSteps returns the gang with a bound for the searches of members of several containers, where they have none: the nodes share its steps.
func withSteps(g *Group, nodes int) *Group {
	some := func(m Member) bool { return len(m.Request.Containers) > 1 && m.Request.Steps == 0 }
	if !slices.ContainsFunc(g.Members, some) {
		return g
	}
	out := *g
	out.Members = slices.Clone(g.Members)
	for i := range out.Members {
		if some(out.Members[i]) {
			out.Members[i].Request.Steps = placement.StepsOn(nodes)
		}
	}
	return &out
}

// sameDemand reports whether two requests differ in the pod only.
func sameDemand(a, b *vgpu.Request) bool {
	return a.Priority == b.Priority && a.Ends == b.Ends && a.ComputeLimit == b.ComputeLimit && a.MemoryLimit == b.MemoryLimit &&
		a.Tenancy == b.Tenancy && a.Host == b.Host && slices.Equal(a.Containers, b.Containers) &&
		slices.Equal(a.Variants, b.Variants) && slices.Equal(a.Preferences, b.Preferences)
}

// countsOfFirst returns how many of each class are among the first n members.
func (mc *memberClasses) countsOfFirst(n int) []int {
	counts := make([]int, len(mc.classes))
	for _, k := range mc.classOf[:n] {
		counts[k]++
	}
	return counts
}

// isUnplaced returns a function that reports whether a pod is one of the members that need a place.
func (mc *memberClasses) isUnplaced() func(vgpu.UID) bool {
	uids := make(map[vgpu.UID]bool, len(mc.g.Members))
	for i := range mc.g.Members {
		uids[mc.g.Members[i].Request.UID] = true
	}
	return func(uid vgpu.UID) bool { return uids[uid] }
}

// isOther returns a function that reports whether a pod does not belong to the gang.
func (mc *memberClasses) isOther() func(vgpu.UID) bool {
	own := make(map[vgpu.UID]bool, len(mc.g.Placed)+len(mc.g.Members))
	for i := range mc.g.Placed {
		own[mc.g.Placed[i].UID] = true
	}
	for i := range mc.g.Members {
		own[mc.g.Members[i].Request.UID] = true
	}
	return func(uid vgpu.UID) bool { return !own[uid] }
}

// slots returns the least number of slots that a member of the class takes: 0 without GPUs.
func (k *memberClass) slots() int64 { return int64(k.request.PeakSlots()) }

// Classes returns the members that must get a place, which are those with the lowest ranks, as indices of Members.
// Members with the same request that the same nodes admit form one class. The classes are in the order of ranks. Alike
// says that all members that need a place are of one class. If such members have one container each, and no pod has a
// promised slowdown, Place finds places whenever there are any.
func (g *Group) Classes() (least [][]int, alike bool) {
	mc := classesOf(g)
	for k, n := range mc.countsOfFirst(min(max(1, g.MinCount-len(g.Placed)), len(g.Members))) {
		if n > 0 {
			least = append(least, mc.classes[k].members[:n])
		}
	}
	return least, len(mc.classes) <= 1
}
