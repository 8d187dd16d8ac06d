package why

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// question is the pods that wait, and the nodes that may take them.
type question struct {
	s *snapshot.Snapshot
	// requests of the pods that need a place, and min, the least number that must get one.
	requests []vgpu.Request
	min      int
	// least is the least number of members of the gang that run, of all.
	least int
	// placed are members of the gang that have a place.
	placed []vgpu.Assignment
	gang   *snapshot.GangName
	// nodes that take pods, and closed are the others, with their problems by name.
	nodes, closed []*vgpu.Node
	problems      map[string]string
	// stray are slots of pods without an assignment, of nodes that have some.
	stray  map[string]vgpu.Slots
	policy placement.Policy
	// may remembers which nodes count for the gang as its pods are: see mayTake.
	may map[*vgpu.Node]bool
}

// Pod explains why a pod waits. The error says that there is no such pod that waits, or what is broken in the snapshot.
func Pod(s *snapshot.Snapshot, uid vgpu.UID) (*Answer, error) {
	at := slices.IndexFunc(s.Pending, func(p snapshot.Pending) bool { return p.UID == uid })
	if at < 0 {
		return nil, fmt.Errorf("explain pod: no pod with the UID %s waits", uid)
	}
	if at, chosen := reserved(s)[uid]; chosen {
		return beingBound([]snapshot.Place{at}, nil), nil
	}
	return explain(s, []*snapshot.Pending{&s.Pending[at]}, nil)
}

// Gang explains why members of a gang wait.
func Gang(s *snapshot.Snapshot, name snapshot.GangName) (*Answer, error) {
	var members []*snapshot.Pending
	var places []snapshot.Place
	chosen := reserved(s)
	for i := range s.Pending {
		p := &s.Pending[i]
		if p.Gang == nil || *p.Gang != name {
			continue
		}
		if at, has := chosen[p.UID]; has {
			places = append(places, at)
		} else {
			members = append(members, p)
		}
	}
	switch {
	case len(members)+len(places) == 0:
		return nil, fmt.Errorf("explain gang: no member of %s/%s waits", name.Namespace, name.Name)
	case len(members) == 0:
		return beingBound(places, &name), nil
	}
	return explain(s, members, &name)
}

// explain answers a question.
func explain(s *snapshot.Snapshot, pods []*snapshot.Pending, name *snapshot.GangName) (*Answer, error) {
	a := &Answer{Gang: name, Nodes: []snapshot.RefusedNodes{}, Changes: []Change{}, Cause: causeOf(s, pods, name)}
	for _, p := range pods {
		a.Pods = append(a.Pods, p.Name)
	}
	if a.Cause.decides() {
		return a, nil
	}
	q, err := ask(s, pods, name)
	if err != nil {
		return nil, err
	}
	if name != nil {
		a.Least, a.Placed = q.least, len(q.placed)
		a.giveWay(s, *name)
	}
	a.Nodes, a.Miss, a.Host = q.refusals()
	if a.Miss != nil {
		a.Nearest = snapshot.RefusalOf(a.Miss)
	}
	a.Others = others(pods[0])
	now, err := q.now()
	if err != nil {
		return nil, err
	}
	if now != nil {
		a.Fits = places(q.requests, now)
		a.Promise = brokenPromise(pods[0])
		_, a.Said = q.said()
		if a.Promise != nil && name == nil { // the scheduler tried it for one pod
			a.RoomAt = pods[0].Refused.RoomAtSlowdownMilli
		}
	} else if a.Changes, err = q.changes(); err != nil {
		return nil, err
	} else if reason, said := q.said(); reason == gang.NeverFits {
		a.Never, a.Said = true, said
	}
	a.Unknown = q.unknown(a, pods)
	return a, nil
}

// brokenPromise returns the refusal of the last attempt where a promised slowdown was the nearest miss.
func brokenPromise(p *snapshot.Pending) *snapshot.Refusal {
	if p.Refused == nil || p.Refused.Nearest == nil || p.Refused.Nearest.Reason != vgpu.PromiseBroken {
		return nil
	}
	return p.Refused.Nearest
}

// said returns why the scheduler refused the gang last, and its sentence.
func (q *question) said() (gang.Reason, string) {
	for i := range q.s.Gangs {
		if g := &q.s.Gangs[i]; q.gang != nil && g.GangName == *q.gang && g.Need == "Refused" {
			return gang.Reason(g.Reason), g.Message
		}
	}
	return "", ""
}

// ask makes the question.
func ask(s *snapshot.Snapshot, pods []*snapshot.Pending, name *snapshot.GangName) (*question, error) {
	nodes, err := s.Ledgers()
	if err != nil {
		return nil, fmt.Errorf("explain: %w", err)
	}
	q := &question{s: s, min: 1, gang: name, stray: map[string]vgpu.Slots{}, problems: map[string]string{}, may: map[*vgpu.Node]bool{}}
	for i, n := range nodes {
		if stray := s.Nodes[i].StraySlots; stray > 0 {
			q.stray[n.Name()] = stray
		}
		if p := s.Nodes[i].Problem; p != "" {
			q.closed, q.problems[n.Name()] = append(q.closed, n), p
			continue
		}
		q.nodes = append(q.nodes, n)
	}
	for i, r := range s.ToPlaceAll(pods, s.At.Unix()) {
		if err := r.Validate(); err != nil {
			return nil, fmt.Errorf("explain: the request of the pod %s: %w", pods[i].Path(), err)
		}
		q.requests = append(q.requests, *r)
		q.requests[i].Steps = placement.StepsOn(len(nodes))
	}
	if name != nil {
		q.join(nodes)
	}
	return q, nil
}

// join adds what the snapshot says of the gang: its members that have a place, and the least number.
func (q *question) join(nodes []*vgpu.Node) {
	for i := range q.s.Nodes {
		for k := range q.s.Nodes[i].Pods {
			if p := &q.s.Nodes[i].Pods[k]; p.Gang != nil && *p.Gang == *q.gang {
				for _, a := range nodes[i].Assignments() {
					if a.UID == p.UID {
						q.placed = append(q.placed, a)
					}
				}
			}
		}
	}
	q.least = q.minCount(*q.gang)
	q.min = max(1, min(q.least-len(q.placed), len(q.requests)))
}

// takes returns nil where a node takes a pod by its devices, its slots and its host; else the reason and, for devices, the refusal.
func (q *question) takes(n *vgpu.Node, r *vgpu.Request) (string, *vgpu.Refusal) {
	if refusal := placement.Fit(n, r); refusal != nil {
		return string(refusal.Reason), refusal
	}
	if !q.beside(n, r) {
		return Stray, nil
	}
	if !r.Host.Within(n.Room()) {
		return HostFull, nil
	}
	return "", nil
}

// fits reports whether takes returns no reason.
func (q *question) fits(n *vgpu.Node, r *vgpu.Request) bool {
	return r.Host.Within(n.Room()) && q.policy.Fits(n, r) && q.beside(n, r)
}

// beside reports whether a node has slots for a pod beside the stray ones.
func (q *question) beside(n *vgpu.Node, r *vgpu.Request) bool {
	stray, some := q.stray[n.Name()]
	if !some {
		return true
	}
	free := -stray
	for i := range n.Devices() {
		free += n.FreeFor(i, r).Slots
	}
	return free >= r.PeakSlots()
}

// refusals counts the nodes by what refuses the first pod there, and returns the nearest misses on devices and on hosts.
func (q *question) refusals() ([]snapshot.RefusedNodes, *vgpu.Refusal, *HostMiss) {
	counts := map[string]int{}
	var nearest *vgpu.Refusal
	for _, problem := range q.problems {
		counts[problem]++
	}
	var host *HostMiss
	for _, n := range q.nodes {
		why, refusal := q.takes(n, &q.requests[0])
		if why != "" {
			counts[why]++
		}
		if refusal != nil {
			nearest = nearer(nearest, refusal)
		}
		if why == HostFull {
			host = nearerHost(host, q.hostMiss(n))
		}
	}
	refused := make([]snapshot.RefusedNodes, 0, len(counts))
	for why, n := range counts {
		refused = append(refused, snapshot.RefusedNodes{Reason: why, Nodes: n})
	}
	slices.SortFunc(refused, func(a, b snapshot.RefusedNodes) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Reason, b.Reason))
	})
	return refused, nearest, host
}

// nearer returns the nearer miss of two; the first may be nil.
func nearer(a, b *vgpu.Refusal) *vgpu.Refusal {
	if a == nil {
		return b
	}
	nearest, _ := placement.Nearest([]vgpu.Refusal{*a, *b})
	return &nearest
}

// group returns the pods as the group that packages gang and preemption place.
func (q *question) group(requests []vgpu.Request) *gang.Group {
	g := &gang.Group{Name: requests[0].Pod, Placed: q.placed, MinCount: q.min + len(q.placed)}
	for i := range requests {
		g.Members = append(g.Members, gang.Member{Request: requests[i], Rank: i})
	}
	return g
}

// places returns the places of pods that have one.
func places(requests []vgpu.Request, assigned []vgpu.Assignment) []Place {
	all := make([]Place, 0, len(assigned))
	for i := range assigned {
		if assigned[i].Node == "" {
			continue
		}
		p := Place{Pod: requests[i].Pod, Node: assigned[i].Node}
		for _, c := range assigned[i].Containers {
			p.Devices = append(p.Devices, c.Devices...)
		}
		slices.Sort(p.Devices)
		p.Devices = slices.Compact(p.Devices)
		all = append(all, p)
	}
	return all
}

// others counts the nodes that other plugins refused: of the reasons of the last attempt those that this package does not find.
func others(p *snapshot.Pending) []snapshot.RefusedNodes {
	if p.Refused == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Refused.Nodes), func(r snapshot.RefusedNodes) bool { return !isPlugin(r.Reason) })
}

// isPlugin reports whether a reason of the scheduler is the name of a plugin. Its own reasons about nodes are sentences, and those
// about devices words of package vgpu.
func isPlugin(reason string) bool {
	known := []vgpu.Reason{
		vgpu.IllegalSlots, vgpu.MemoryAboveDevice, vgpu.ComputeLimitBelowRequest, vgpu.MemoryLimitBelowRequest, vgpu.LimitAboveDevice,
		vgpu.TooFewDevices, vgpu.NoShareFits, vgpu.NoWholeDevices, vgpu.NoTogether, vgpu.NoAllowedModel, vgpu.PromiseBroken, vgpu.NoDevices,
	}
	sentence := slices.Contains([]byte(reason), ' ')
	return reason != "" && !sentence && !slices.Contains(known, vgpu.Reason(reason))
}

// unknown returns what counts for the answer and is not in the snapshot.
func (q *question) unknown(a *Answer, pods []*snapshot.Pending) []Unknown {
	var all []Unknown
	promised := pods[0].Request.MaxSlowdownMilli > 0
	for i := range q.s.Nodes {
		promised = promised || slices.ContainsFunc(q.s.Nodes[i].Pods, func(p snapshot.Pod) bool { return p.MaxSlowdownMilli > 0 })
	}
	if promised {
		all = append(all, Slowdowns)
	}
	if len(a.Others) > 0 {
		all = append(all, OtherPlugins)
	}
	if q.gang != nil && q.mustBeClose() {
		all = append(all, Topology)
	}
	if !slices.ContainsFunc(pods, func(p *snapshot.Pending) bool { return p.Refused != nil }) {
		all = append(all, Attempts)
	}
	if slices.ContainsFunc(a.Changes, func(c Change) bool { return c.Kind == PodsLeave }) {
		all = append(all, Guards)
	}
	return all
}

// withLevels is the first minor version of snapshots that has what levels gangs ask for.
const withLevels = 2

// mustBeClose reports whether the members of the gang may have to be in one place, such as a rack. That is not known of a gang that is not in
// the snapshot or whose levels are left out.
func (q *question) mustBeClose() bool {
	at := slices.IndexFunc(q.s.Gangs, func(g snapshot.Gang) bool { return g.GangName == *q.gang })
	return at < 0 || q.s.Minor < withLevels || q.gang.Namespace == snapshot.Other || len(q.s.Gangs[at].RequiredTopology) > 0
}

// giveWay notes which gang gives way to which.
func (a *Answer) giveWay(s *snapshot.Snapshot, name snapshot.GangName) {
	for i := range s.Gangs {
		g := &s.Gangs[i]
		switch {
		case g.GivesWay == nil:
		case g.GangName == name:
			a.GivesWay = g.GivesWay
		case g.GivesWay.Gang == name && (a.TakesFrom == nil || g.GivesWay.At.Before(a.TakesFrom.At)):
			a.TakesFrom = &snapshot.GivesWay{Gang: g.GangName, At: g.GivesWay.At}
		}
	}
	switch { // what comes first
	case a.GivesWay == nil || a.TakesFrom == nil:
	case a.GivesWay.At.Before(a.TakesFrom.At):
		a.TakesFrom = nil
	default:
		a.GivesWay = nil
	}
}
