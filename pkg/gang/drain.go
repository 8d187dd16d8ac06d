package gang

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Drain returns which room the gang waits for while its present owners end: places for the first members by rank that
// MinCount asks for, in one domain of each required level, as if the pods of others were gone. Their holds count as in
// Place. Of the room it takes what is free now, then the devices that are free the earliest where the ends of all pods
// are known (Cluster.Ends), else those with the fewest slots to wait for; of the domains the one that is complete the
// earliest or has the fewest slots to wait for. Preferred levels order only what is equal in that.
//
// What leaving pods give back of their hosts is not known: a host that pods leave is taken to have room enough.
//
// It changes nothing. It is refused where Place would be even on the emptied cluster, and where the room is on sick
// devices or held with a higher priority. The error is broken input.
func Drain(c *Cluster, g *Group, cfg Config) (Plan, error) {
	if err := validate(c, g, cfg); err != nil {
		return Plan{}, fmt.Errorf("drain room for gang %s: %w", g.Name, err)
	}
	var plan Plan
	if len(g.Members) == 0 {
		return plan, nil
	}
	s := newSearch(c, g, cfg, &plan.Stats)
	d := s.drain()
	if d == nil {
		plan.Refused = s.refuse()
		return plan, nil
	}
	plan.Places, plan.Spread = d.places, s.spread(d.places)
	if d.until < never {
		plan.Until = d.until
	}
	return plan, nil
}

// drained is the room of one domain that a gang may wait for.
type drained struct {
	name    string
	places  []vgpu.Assignment
	leavers []Leaver
	// slots that the leavers have, and when the last of them ends.
	slots, until int64
}

// drain returns the room with the least to wait for, nil where no domain would ever take the gang as its devices are.
func (s *search) drain() *drained {
	islands := slices.Contains(s.g.Wishes.Required, NVLink)
	w := newWait(s.ground)
	empty := w.emptied()
	now := s.ground.chart(islands)
	cells := w.cut(now.cells)
	later := chartOf(empty, cells, len(now.cells))
	l := now.load(s.crew.first(s.need))
	q := empty.chart(islands).task(s.g.Wishes.Required, nil, true, l)
	before := now.task(s.g.Wishes.Required, s.reasons().labels(), true, l)
	var best *drained
	tried := 0
	for _, d := range w.soonest(q.all(q.required), now, later, &l) {
		if best != nil && tried >= drains || tried >= s.ground.most {
			break
		}
		tried++
		s.ground.stats.Tried++
		next := w.in(d.cells, before, later)
		if next == nil {
			continue
		}
		if next.name = q.name(d); best == nil || next.sooner(best, w.known) {
			best = next
		}
	}
	return best
}

// drains is the number of domains that are compared with real placements, those with the least to wait for by an estimate.
// More find a better one where the estimate is off, which it is for unlike members.
const drains = 4

// soonest sorts domains by an estimate of what there is to wait for, and leaves out those that never take the load.
func (w *wait) soonest(list []*domain, now, later *chart, l *load) []*domain {
	cost := make([]int64, len(list))
	place := make([]int, later.whole)
	for at, d := range list {
		for _, i := range d.cells {
			place[i] = at + 1
		}
	}
	need, takes := make([]int64, len(list)), make([]int64, later.whole)
	for i := range takes {
		if at := place[i] - 1; at >= 0 {
			takes[i] = now.takes(l, int32(i))
			need[at] -= takes[i]
		}
	}
	for at := range need {
		need[at] += l.sum
	}
	for i := later.whole; i < len(later.cells); i++ {
		k := &later.cells[i]
		at := place[k.whole] - 1
		if at < 0 || need[at] <= 0 {
			continue
		}
		if more := later.takes(l, int32(i)) - takes[k.whole]; more > 0 {
			more = min(more, need[at])
			takes[k.whole] += more
			need[at] -= more
			cost[at] = w.add(cost[at], more, k)
		}
	}
	for at, d := range list {
		d.takes = cost[at]
	}
	slices.SortStableFunc(list, func(a, b *domain) int { return cmp.Compare(a.takes, b.takes) })
	return list
}

// add adds to an estimate what so much of a load waits for on a cell.
func (w *wait) add(cost, more int64, k *cell) int64 {
	long := int64(0)
	for _, d := range k.devices {
		long = max(long, w.long[k.node][d])
	}
	if w.known {
		return max(cost, long)
	}
	return cost + more*long
}

// in returns what to wait for in a domain: members go where there is room now as far as it goes, then where there is room
// the soonest.
func (w *wait) in(cells []int32, before *task, later *chart) *drained {
	x := before.chart.trial()
	order, _ := before.chart.sequence(cells, before.reasons, &before.load)
	x.fill(order, &before.load)
	y := later.trial()
	y.repeat(x)
	member := make([]bool, later.whole)
	for _, i := range cells {
		member[i] = true
	}
	order = nil
	for i := later.whole; i < len(later.cells); i++ {
		if member[later.cells[i].whole] {
			order = append(order, int32(i))
		}
	}
	rest := load{counts: slices.Clone(before.load.counts)}
	for k := range rest.counts {
		rest.counts[k] -= y.placed[k]
	}
	if y.fill(order, &rest); int64(y.all) < members(&before.load) {
		return nil
	}
	var reasons []*division
	for _, v := range before.reasons {
		reasons = append(reasons, later.division(v.key))
	}
	d := &drained{places: y.places(reasons)}
	w.leave(d)
	return d
}

// repeat books what another trial has placed.
func (y *trial) repeat(x *trial) {
	for _, p := range x.parts {
		for _, a := range p.places {
			y.book(p.class, y.chart.cells[p.cell].node, a)
		}
	}
	y.parts = slices.Clone(x.parts)
}

// leave notes who stands in the way of places.
func (w *wait) leave(d *drained) {
	byNode := map[int][]*vgpu.Assignment{}
	var used []int
	for i := range d.places {
		if node, there := w.now.find(d.places[i].Node); there {
			if byNode[node] == nil {
				used = append(used, node)
			}
			byNode[node] = append(byNode[node], &d.places[i])
		}
	}
	slices.Sort(used)
	for _, node := range used {
		w.makeRoom(w.now.nodes[node], byNode[node], d)
	}
}

// makeRoom notes the pods that leave a node: of each device that has too little free for the members on it those that end
// first, then those with the fewest slots, until there is enough.
func (w *wait) makeRoom(n *vgpu.Node, places []*vgpu.Assignment, d *drained) {
	want := make([]vgpu.Use, len(n.Devices()))
	for _, a := range places {
		for _, i := range devicesOf(n, a) {
			want[i] = want[i].Plus(useOn(a, n.Devices()[i].ID))
		}
	}
	owners := w.owners(n)
	gone := map[vgpu.UID]bool{}
	for i := range want {
		free := n.Devices()[i].Capacity().Minus(n.Used(i))
		on := func(a *vgpu.Assignment) bool { return slices.Contains(devicesOf(n, a), i) }
		for _, a := range owners {
			if gone[a.UID] && on(a) {
				free = free.Plus(useOn(a, n.Devices()[i].ID))
			}
		}
		for _, a := range owners {
			if want[i].Within(free) {
				break
			}
			if gone[a.UID] || !on(a) {
				continue
			}
			gone[a.UID] = true
			free = free.Plus(useOn(a, n.Devices()[i].ID))
			d.add(a, n, w.end(a))
		}
	}
}

// owners returns the pods of others on a node, those that end first before the others, then by their slots and UID.
func (w *wait) owners(n *vgpu.Node) []*vgpu.Assignment {
	var list []*vgpu.Assignment
	n.Each(func(a *vgpu.Assignment) {
		if w.others(a.UID) {
			list = append(list, a)
		}
	})
	slices.SortStableFunc(list, func(a, b *vgpu.Assignment) int {
		return cmp.Or(cmp.Compare(w.end(a), w.end(b)), cmp.Compare(slotsOf(a), slotsOf(b)))
	})
	return list
}

// slotsOf returns the slots that an assignment has of all its devices.
func slotsOf(a *vgpu.Assignment) (sum int64) {
	for c := range a.Containers {
		sum += int64(a.Containers[c].Share.Slots) * int64(len(a.Containers[c].Devices))
	}
	return sum
}

// useOn returns what an assignment takes of a device in its busiest phase.
func useOn(a *vgpu.Assignment, id vgpu.DeviceID) vgpu.Use {
	var p vgpu.Peak
	for c := range a.Containers {
		if k := &a.Containers[c]; slices.Contains(k.Devices, id) {
			p.Add(k.Kind, k.Share.Use())
		}
	}
	return p.Use()
}

func (d *drained) add(a *vgpu.Assignment, n *vgpu.Node, end int64) {
	d.leavers = append(d.leavers, Leaver{UID: a.UID, Pod: a.Pod})
	for _, i := range devicesOf(n, a) {
		d.slots += int64(useOn(a, n.Devices()[i].ID).Slots)
	}
	d.until = max(d.until, end)
}

// sooner orders rooms to wait for: by the time where it is known, by slots, by name.
func (d *drained) sooner(o *drained, known bool) bool {
	if known && d.until != o.until {
		return d.until < o.until
	}
	return cmp.Or(cmp.Compare(d.slots, o.slots), cmp.Compare(d.name, o.name)) < 0
}
