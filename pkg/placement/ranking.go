package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Ranking is Score with a cache, for one goroutine that compares many nodes for each of many pods. Between two pods one
// or two nodes change, most nodes are alike, and most pods have the same request as others. The scores are the same.
//
// The cache grows with the states of nodes times the kinds of requests, 8 bytes each. Beyond maxStates or maxKinds the
// ranking clears it.
type Ranking struct {
	policy      Policy
	states      map[string]int
	kinds       map[string]*Scores
	devices     map[*vgpu.Device]int // by the first device of a node: the kind of its devices
	deviceKinds map[string]int
	era         int
	text        []byte
	bounds      struct{ states, kinds, exact int }
	// sketch gives rough scores by the outlines of the states, nil where the policy has none. sketches counts them.
	sketch   *fragmentation.Sketch
	sketches int
	outlines []outline
	shapes   map[vgpu.Shape]int32
	groups   groups
	// tenants are the workloads in the states, as Neighbours.known had them.
	tenants map[uint32]uint32
}

// Bounds of the cache of a Ranking: 400 kinds of requests on 20,000 states are 64 MB. Larger bounds clear it less
// often.
const (
	maxStates = 20_000
	maxKinds  = 1_000
)

// NewRanking returns a ranking by a policy.
func NewRanking(p Policy) *Ranking {
	k := &Ranking{}
	k.bounds.states, k.bounds.kinds, k.bounds.exact = maxStates, maxKinds, maxExact
	k.Use(p)
	return k
}

// Use sets another policy, or the same one with another mix. A new policy clears the scores. The states stay, unless
// the policies depend on different things: other Neighbours may know workloads that run in a state and were unknown.
func (k *Ranking) Use(p Policy) {
	before := k.policy
	k.policy = p.orDefault()
	if k.policy.mix != nil {
		k.policy.memo = fragmentation.NewMemo(k.policy.measure)
	}
	k.sketch, k.sketches = nil, k.sketches+1
	if fills, ok := k.policy.measure.(*fragmentation.Fills); ok {
		k.sketch = fragmentation.NewSketch(fills)
	}
	if k.states == nil || k.policy.byRun != before.byRun || !k.knowsAlike(before.neighbours) {
		k.forget()
	}
	k.kinds = map[string]*Scores{}
}

// Expect prepares for a number of nodes that are all in different states: the cache then keeps twice as many states, and
// not fewer than otherwise.
func (k *Ranking) Expect(nodes int) { k.bounds.states = max(k.bounds.states, 2*nodes) }

// knowsAlike reports whether states by the Neighbours of before are states by those of the policy.
func (k *Ranking) knowsAlike(before *Neighbours) bool {
	now := k.policy.neighbours
	if before == nil || now == nil {
		return before == now
	}
	for workload, known := range k.tenants {
		if now.known(workload) != known {
			return false
		}
	}
	return true
}

func (k *Ranking) forget() {
	k.era++
	k.tenants = map[uint32]uint32{}
	k.states, k.kinds = map[string]int{}, map[string]*Scores{}
	k.devices, k.deviceKinds = map[*vgpu.Device]int{}, map[string]int{}
	k.outlines, k.shapes = nil, map[vgpu.Shape]int32{}
}

// State identifies what the scores of a node depend on. The caller keeps it, and gets a new one after each change of
// the node's ledger, or of the CPU and memory of its host. The zero State has no cached scores.
type State struct{ era, number int }

// Has reports whether the cache has the state. States from before the last clearing are no longer there.
func (k *Ranking) Has(s State) bool { return s.era == k.era }

// State returns the current state of the node.
func (k *Ranking) State(n *vgpu.Node) State {
	if n.Held() {
		return State{} // holds count for some pods and not for others
	}
	if len(k.states) >= k.bounds.states || len(k.devices) >= k.bounds.states {
		k.forget()
	}
	k.text = k.describe(k.text[:0], n)
	number, known := k.states[string(k.text)]
	if !known {
		number = len(k.states)
		k.states[string(k.text)] = number
		k.outlines = append(k.outlines, k.outlineOf(n, &vgpu.Request{}))
	}
	return State{k.era, number}
}

// describe appends what the scores of a node depend on. Each list begins with its length, so that no two nodes in unlike
// states have one text.
func (k *Ranking) describe(b []byte, n *vgpu.Node) []byte {
	b = appendNumber(b, int64(k.deviceKind(n)))
	b = appendNumber(b, n.Room().MilliCPU)
	b = appendNumber(b, int64(n.Room().Memory))
	for i := range n.Devices() {
		u := n.Used(i)
		b = appendNumber(b, int64(u.Slots))
		b = appendNumber(b, int64(u.Memory))
		b = appendNumber(b, int64(u.Contexts))
	}
	if k.policy.neighbours != nil {
		b = k.tenancies(b, n)
	}
	if k.policy.byRun {
		v := view{n: n}
		n.Each(func(a *vgpu.Assignment) { b = appendNumber(b, int64(v.devicesOf(a))) })
	}
	return b
}

// tenancies appends what Neighbours need to know of the tenants of each device. The order does not depend on names.
func (k *Ranking) tenancies(b []byte, node *vgpu.Node) []byte {
	var here [maxColocated]vgpu.Resident
	for i := range node.Devices() {
		residents := node.Residents(i, here[:0])
		for at := range residents {
			r := &residents[at]
			known := k.policy.neighbours.known(r.Workload)
			k.tenants[r.Workload] = known
			r.Workload = known
		}
		slices.SortFunc(residents, func(x, y vgpu.Resident) int {
			return cmp.Or(cmp.Compare(x.Workload, y.Workload), cmp.Compare(x.MaxSlowdown, y.MaxSlowdown), cmp.Compare(x.Compute, y.Compute))
		})
		b = appendNumber(b, int64(len(residents)))
		for _, r := range residents {
			b = appendNumber(b, int64(r.Workload))
			b = appendNumber(b, r.MaxSlowdown)
			b = appendNumber(b, int64(r.Compute))
		}
	}
	return b
}

// appendNumber appends a number in as few bytes as it takes, seven bits in each; the eighth says that more follow. (The
// varint of Protocol Buffers.)
func appendNumber(b []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for ; u >= 1<<7; u >>= 7 {
		b = append(b, byte(u)|1<<7)
	}
	return append(b, byte(u))
}

// deviceKind numbers the devices of nodes: nodes that differ only in names have equal numbers.
func (k *Ranking) deviceKind(n *vgpu.Node) int {
	devices := n.Devices()
	if len(devices) == 0 {
		return -1
	}
	number, known := k.devices[&devices[0]]
	if known {
		return number
	}
	var b strings.Builder
	for i := range devices {
		d := &devices[i]
		fmt.Fprintf(&b, "%q %d %d %d %t", d.Model, d.Slots, d.Memory, d.Contexts, d.Healthy)
		for j := range i {
			fmt.Fprint(&b, n.Link(i, j))
		}
	}
	number, known = k.deviceKinds[b.String()]
	if !known {
		number = len(k.deviceKinds)
		k.deviceKinds[b.String()] = number
	}
	k.devices[&devices[0]] = number
	return number
}

// Scores is the cache of a Ranking for one kind of request.
type Scores struct {
	ranking *Ranking
	era     int
	known   []int64 // by state of the era, unscored where the score is unknown
	// exact and roughs are by state too, where the policy has a sketch, takings by the shape of devices.
	exact   map[int]int64
	roughs  []int32
	takings []taking
	// isRandom: the score depends on which devices the hash chooses for the pod. The cache does not keep such scores.
	isRandom bool
}

// unscored marks a missing score: scores are −1 or more.
const unscored = -2

// For returns the scores of requests like r, which differ from it in the pod only.
func (k *Ranking) For(r *vgpu.Request) *Scores {
	key := fmt.Sprint(r.Containers, r.Variants, r.ComputeLimit, r.MemoryLimit, r.Host, r.Tenancy, r.Preferences)
	if len(r.Containers) > 1 {
		key += fmt.Sprint(" ", r.Steps) // a longer search may find what a shorter one does not
	}
	s := k.kinds[key]
	if s == nil {
		if len(k.kinds) >= k.bounds.kinds {
			k.kinds = map[string]*Scores{}
		}
		p := &k.policy
		s = &Scores{ranking: k, isRandom: p.isRandom && (p.neighbours != nil || len(r.Containers) > 1)}
		k.kinds[key] = s
	}
	return s
}

// Of returns the score of the request on a node that is in the state: Score, −1 where it does not fit.
func (s *Scores) Of(n *vgpu.Node, at State, r *vgpu.Request) int64 {
	k := s.ranking
	if at.era != k.era || s.isRandom {
		return k.policy.randomTieBreak(scoreOn(n, r, &k.policy), n, r)
	}
	s.renew()
	if k.sketch != nil {
		return s.exactOf(n, at.number, r)
	}
	return k.policy.randomTieBreak(s.kept(n, at.number, r), n, r)
}

// kept returns the score of a state from a list that has a place for each state.
func (s *Scores) kept(n *vgpu.Node, state int, r *vgpu.Request) int64 {
	for state >= len(s.known) {
		s.known = append(s.known, unscored)
	}
	if s.known[state] == unscored {
		s.known[state] = scoreOn(n, r, &s.ranking.policy)
	}
	return s.known[state]
}

// renew drops what belongs to states that the ranking no longer has.
func (s *Scores) renew() {
	if k := s.ranking; s.era != k.era { // the ranking cleared the cache, maybe between two nodes of one pod
		s.era, s.known, s.roughs, s.takings = k.era, s.known[:0], s.roughs[:0], s.takings[:0]
		clear(s.exact)
	}
}

// exactOf is Of for a policy with a sketch: few of the states have exact scores.
func (s *Scores) exactOf(n *vgpu.Node, state int, r *vgpu.Request) int64 {
	if s.ranking.outlines[state].shape == 0 { // all states without a rough score are compared, each time
		return s.kept(n, state, r)
	}
	score, known := s.exact[state]
	if !known {
		score = scoreOn(n, r, &s.ranking.policy)
		if s.exact == nil || len(s.exact) >= maxKept {
			s.exact = map[int]int64{}
		}
		s.exact[state] = score
	}
	return score
}

// maxKept bounds the exact scores of one kind: a larger bound takes more memory, 40 bytes for each score and kind.
const maxKept = 4 * maxExact
