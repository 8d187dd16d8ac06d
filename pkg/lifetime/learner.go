package lifetime

import (
	"cmp"
	"fmt"
)

// Config says how much a Learner believes.
type Config struct {
	// Strength is how many pods of a group weigh as much as all that the coarser groups say.
	Strength float64
	// Memory is how many pods of a user a group remembers: each further one makes those before count 1 - 1/Memory times as much.
	// Recent is the same for the last few, which often are runs of one experiment.
	Memory, Recent float64
	// Groups is how many groups the learner keeps. Beyond it, it forgets, of the user with the most groups, the one whose last pod ended
	// first: a user whose pods all differ displaces no groups of users who have fewer.
	Groups int
}

// Defaults are fitted on the first part of one trace (decisions/0039).
func Defaults() Config { return Config{Strength: 8, Memory: 512, Recent: 3, Groups: 4096} }

func (c Config) validate() error {
	switch {
	case !(c.Strength > 0 && c.Strength <= 1e6):
		return fmt.Errorf("strength %v, legal is more than 0 and up to 1e6", c.Strength)
	case !(c.Recent >= 1 && c.Recent <= c.Memory && c.Memory <= 1e6):
		return fmt.Errorf("recent %v and memory %v, legal is 1 to 1e6, and recent not above memory", c.Recent, c.Memory)
	case c.Groups < len(levels):
		return fmt.Errorf("groups %d, legal is %d or more", c.Groups, len(levels))
	}
	return nil
}

// levels orders the groups of a pod from coarse to fine. Each level is kept per user; those without byUser are also summed over users,
// so that a user counts in the sum for Memory pods at most, however many end.
var levels = []attributes{0, bySize, byModel, bySize | byModel, byWorkload, byWorkload | bySize | byModel}

// group is what the learner knows of the pods alike of one user.
type group struct {
	past, recent sketch
	last         int
}

// Learner learns how long pods run. It is not safe for concurrent use.
type Learner struct {
	config Config
	groups map[key]*group
	// sums add up the groups over users. members counts how many groups each of them has, and owned how many each user has.
	sums    map[key]*sketch
	members map[key]int
	owned   map[string]int
	seen    int
}

// NewLearner returns a learner that has seen nothing.
func NewLearner(c Config) (*Learner, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("configure lifetimes: %w", err)
	}
	return &Learner{config: c, groups: map[key]*group{}, sums: map[key]*sketch{}, members: map[key]int{}, owned: map[string]int{}}, nil
}

// Observe learns from a pod that no longer runs.
func (l *Learner) Observe(o Observation) error {
	if err := cmp.Or(o.validate(), legal("length", o.Length)); err != nil {
		return fmt.Errorf("observe a pod: %w", err)
	}
	l.seen++
	for _, by := range levels {
		if by&^o.known() == 0 {
			l.count(o.key(by|byUser), o.Length, o.Stopped)
		}
	}
	for _, w := range o.words() {
		l.count(o.key(w.by|byUser), ratio(o.Length, w.seconds), o.Stopped)
	}
	for len(l.groups) > l.config.Groups {
		l.forget()
	}
	return nil
}

// count puts a pod into a group, and into the sum over users.
func (l *Learner) count(k key, length float64, stopped bool) {
	g := l.groups[k]
	sum := k
	sum.by, sum.user = k.by&^byUser, ""
	if g == nil {
		g = &group{}
		l.groups[k] = g
		l.members[sum]++
		l.owned[k.user]++
		if l.sums[sum] == nil {
			l.sums[sum] = &sketch{}
		}
	}
	g.last = l.seen
	s := l.sums[sum]
	s.add(-1/l.config.Memory, &g.past)
	g.past.scale(1 - 1/l.config.Memory)
	g.recent.scale(1 - 1/l.config.Recent)
	bin := binOf(length)
	for _, to := range []*sketch{s, &g.past, &g.recent} {
		if stopped {
			to.stopped[bin]++
		} else {
			to.ended[bin]++
		}
	}
}

// forget drops a group of the user with the most groups: the one whose last pod ended first, the first by its key among equals.
func (l *Learner) forget() {
	user, most := "", 0
	for name, count := range l.owned {
		if count > most || count == most && name < user {
			user, most = name, count
		}
	}
	var oldest key
	last := l.seen + 1
	for k, g := range l.groups {
		if k.user == user && (g.last < last || g.last == last && before(k, oldest)) {
			oldest, last = k, g.last
		}
	}
	sum := oldest
	sum.by, sum.user = oldest.by&^byUser, ""
	l.sums[sum].add(-1, &l.groups[oldest].past)
	if l.members[sum]--; l.members[sum] == 0 {
		delete(l.sums, sum)
		delete(l.members, sum)
	}
	delete(l.groups, oldest)
	if l.owned[user]--; l.owned[user] == 0 {
		delete(l.owned, user)
	}
}

// before orders groups of one user: those that tell pods apart by more come first.
func before(a, b key) bool {
	return cmp.Or(-cmp.Compare(a.by, b.by), cmp.Compare(a.workload, b.workload), cmp.Compare(a.model, b.model), cmp.Compare(a.size, b.size)) < 0
}
