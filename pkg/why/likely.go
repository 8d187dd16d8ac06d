package why

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// trials are the ways in which the running pods may end that are looked at: a prime, so that the trials of a pod have all of its quantiles in an
// order of its own. More give a smoother range; the time grows with them. outer are the trials left out at each end of the range: of 31
// trials the range has 25, 80.6 %.
const (
	trials = 31
	outer  = 3
)

// mostGangNodes bounds the nodes of clusters in which the end of pods is tried for gangs, each trial of which places the gang some times.
const mostGangNodes = 500

// podsLikelyEnd finds when enough pods will probably have ended, and which pods these are. It ends all pods that are known to end at times
// drawn from their predictions, again and again, and looks each time when the pods that wait have room first. Members of a gang
// end together.
func (q *question) podsLikelyEnd() (*Change, error) {
	if q.gang != nil && len(q.nodes) > mostGangNodes {
		return nil, nil
	}
	running := q.foreseen()
	if !slices.ContainsFunc(running, func(r foreseen) bool { return r.ends != nil }) {
		return nil, nil
	}
	on := q.byNode(running)
	done := make([]trial, 0, trials)
	for k := range trials {
		t, err := q.attemptEnds(running, on, k)
		if err != nil {
			return nil, err
		}
		if t.gone == nil { // all pods that end are not enough, whenever that is
			return nil, nil
		}
		done = append(done, t)
	}
	slices.SortStableFunc(done, func(a, b trial) int { return cmp.Compare(a.at, b.at) })
	middle := done[trials/2]
	found, err := q.without(leaversOf(false, middle.gone))
	if err != nil {
		return nil, err
	}
	c, err := q.spare(PodsLikelyEnd, middle.gone, found)
	if err != nil {
		return nil, err
	}
	c.From, c.At, c.To = done[outer].at, middle.at, done[trials-1-outer].at
	q.tellLeaving(c, running)
	return c, nil
}

// trial is a way in which the running pods end: when the pods that wait have room, and the pods that are gone then.
type trial struct {
	at   int64
	gone []Leaving
}

// attemptEnds makes one trial. Its pods that are gone are nil where all that end are not enough.
func (q *question) attemptEnds(running []foreseen, on [][]int, k int) (trial, error) {
	if q.gang == nil {
		return q.firstRoom(running, on, k), nil
	}
	all := q.endAt(running, k)
	needed, found, err := q.firstEnds(all)
	if err != nil || found == nil {
		return trial{}, err
	}
	return trial{all[needed-1].Until, all[:needed]}, nil
}

// byNode returns the places in a list of the pods on each of q.nodes.
func (q *question) byNode(running []foreseen) [][]int {
	at, on := make(map[string]int, len(q.nodes)), make([][]int, len(q.nodes))
	for i, n := range q.nodes {
		at[n.Name()] = i
	}
	for r := range running {
		i := at[running[r].Node]
		on[i] = append(on[i], r)
	}
	return on
}

// firstRoom is a trial for a single pod, which only needs ends on one node: it asks each node whether it beats the best so far.
func (q *question) firstRoom(running []foreseen, on [][]int, k int) trial {
	best := trial{at: math.MaxInt64}
	var ends []Leaving
	for i, n := range q.nodes {
		ends = ends[:0]
		for _, r := range on[i] {
			if l := q.endIn(&running[r], k); l.Until < best.at {
				ends = append(ends, l)
			}
		}
		slices.SortFunc(ends, byEnd)
		after := func(count int) bool {
			return q.fits(n.Without(func(h *vgpu.Hold, held bool) bool {
				return !held && slices.ContainsFunc(ends[:count], func(l Leaving) bool { return l.UID == h.UID })
			}), &q.requests[0])
		}
		if len(ends) == 0 || !after(len(ends)) {
			continue
		}
		needed := 1 + sort.Search(len(ends)-1, func(short int) bool { return after(short + 1) })
		best = trial{ends[needed-1].Until, slices.Clone(ends[:needed])}
	}
	return best
}

// foreseen is a running pod that is known to end, on a node that takes pods.
type foreseen struct {
	Leaving
	ends *snapshot.Ends
	// endsBy is the Unix time of its declared end, 0 for none.
	endsBy int64
	// seed is the same for all that end together.
	seed uint64
}

// foreseen returns the pods of which it is known that they end, or when they probably do.
func (q *question) foreseen() []foreseen {
	var all []foreseen
	for i := range q.s.Nodes {
		n := &q.s.Nodes[i]
		for k := range n.Pods {
			p := &n.Pods[k]
			if p.Ends == nil && p.EndsBy.IsZero() || n.Problem != "" || q.own(p) {
				continue
			}
			together := string(p.UID)
			if p.Gang != nil {
				together = p.Gang.Source + "\x00" + p.Gang.Namespace + "\x00" + p.Gang.Name
			}
			one := foreseen{Leaving: Leaving{Name: p.Name, Node: n.Name, Priority: p.Priority}, ends: p.Ends, seed: hashOf(together)}
			if !p.EndsBy.IsZero() {
				one.endsBy = p.EndsBy.Unix()
			}
			if !p.Since.IsZero() {
				one.Since = p.Since.Unix()
			}
			all = append(all, one)
		}
	}
	return all
}

// endAt returns the pods in the order of their ends in one trial.
func (q *question) endAt(running []foreseen, k int) []Leaving {
	all := make([]Leaving, 0, len(running))
	for i := range running {
		all = append(all, q.endIn(&running[i], k))
	}
	slices.SortFunc(all, byEnd)
	return all
}

// endIn returns a pod with its end in one trial, which is not after the end that it declares.
func (q *question) endIn(r *foreseen, k int) Leaving {
	l := r.Leaving
	l.Until = math.MaxInt64
	if r.ends != nil {
		l.Until = q.s.At.Add(r.ends.Left(r.part(k), q.s.At)).Unix()
	}
	if r.endsBy != 0 {
		l.Until = min(l.Until, r.endsBy)
	}
	return l
}

// part returns the quantile of a pod in a trial, from 0 to less than 1: in each of the equal parts of that range once in all trials, in an
// order of the pod's own.
func (r *foreseen) part(k int) float64 {
	step, first := 1+r.seed%(trials-1), r.seed/trials%trials
	at := (uint64(k)*step + first) % trials
	within := float64(mix(r.seed+uint64(k)+1)>>11) / (1 << 53)
	return (float64(at) + within) / trials
}

// tellLeaving adds what is known of the pods that matter: the fewest pods that a prediction rests on, and how many pods may take the room.
func (q *question) tellLeaving(c *Change, running []foreseen) {
	known := map[vgpu.UID]int{}
	for i := range running {
		if running[i].ends != nil {
			known[running[i].UID] = running[i].ends.Known
		}
	}
	c.Known = math.MaxInt
	for i := range c.Leave {
		c.Leave[i].Until = 0 // one trial of many
		if n, predicted := known[c.Leave[i].UID]; predicted {
			c.Known = min(c.Known, n)
		}
	}
	if c.Known == math.MaxInt {
		c.Known = 0
	}
	c.Rivals = q.rivals()
}

// rivals counts the other pods that wait whose priority is not lower.
func (q *question) rivals() (count int) {
	for i := range q.s.Pending {
		p := &q.s.Pending[i]
		if p.Request != nil && len(p.Gates) == 0 && p.Request.Priority >= q.requests[0].Priority && !q.asks(p.UID) {
			count++
		}
	}
	return count
}

// asks reports whether a pod is one of those that wait for the answer.
func (q *question) asks(uid vgpu.UID) bool {
	return slices.ContainsFunc(q.requests, func(r vgpu.Request) bool { return r.UID == uid })
}

// hashOf returns a number for a text, which looks drawn at random.
func hashOf(text string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return mix(h)
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
