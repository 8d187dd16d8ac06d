package elastic

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Config holds the settings of Workers. The zero value is the default.
type Config struct {
	// Policy is a name of Policies, "" for DefaultPolicy.
	Policy string
	// Horizon is the longest time in seconds within which a change must repay what it costs, 0 for DefaultHorizon.
	Horizon float64
	// GiveBack is the time in seconds from a decision until workers that must leave have given their devices back, 0 for DefaultGiveBack.
	// A shorter one than that keeps others waiting for the devices that they have reserved.
	GiveBack float64
	// MaxMoves bounds how often the size of a job changes in an hour before it may grow again, 0 for DefaultMaxMoves. Jobs
	// shrink whenever others need the room.
	MaxMoves int
	// MaxPlacements bounds the jobs whose new workers Workers tries to place, 0 for DefaultMaxPlacements. Jobs beyond
	// it keep their size until the next call.
	MaxPlacements int
}

// Validate returns an error for settings that Workers refuses.
func (c Config) Validate() error {
	switch _, known := policyOf(cmp.Or(c.Policy, DefaultPolicy)); {
	case !known:
		return fmt.Errorf("unknown policy %q, known are %v", c.Policy, Policies())
	case !(c.Horizon >= 0 && c.Horizon <= maxSeconds):
		return fmt.Errorf("a horizon of %v seconds, legal is 0 to %g", c.Horizon, maxSeconds)
	case !(c.GiveBack >= 0 && c.GiveBack <= maxSeconds):
		return fmt.Errorf("devices are given back within %v seconds, legal is 0 to %g", c.GiveBack, maxSeconds)
	case c.MaxMoves < 0 || c.MaxPlacements < 0:
		return fmt.Errorf("at most %d moves and %d placements, legal is 0 or more", c.MaxMoves, c.MaxPlacements)
	}
	return nil
}

// NeedsRemaining reports whether the policy orders jobs by Job.Remaining.
func (c Config) NeedsRemaining() bool {
	p, known := policyOf(c.Policy)
	return known && p.remaining
}

// Defaults of Config.
const (
	DefaultPolicy = "goodput"
	// DefaultHorizon is two hours. A longer one lets old jobs change their size for less.
	DefaultHorizon = 7200
	// DefaultGiveBack is two minutes: a notice, a grace period of half a minute and what the scheduler takes.
	DefaultGiveBack = 120
	// DefaultMaxMoves is four. More lets jobs follow the load more closely, and change more often.
	DefaultMaxMoves = 4
	// DefaultMaxPlacements takes some hundred milliseconds on 5,000 nodes.
	DefaultMaxPlacements = 64
)

// Why says why a job has its target.
type Why string

// Reasons of targets.
const (
	// Steady: another size would not be worth its cost, or the job has the size that the policy gives it.
	Steady Why = "Steady"
	// Idle: the job grows into idle devices.
	Idle Why = "Idle"
	// Faster: the job grows by devices that another job uses worse.
	Faster Why = "Faster"
	// ForWaiting: the job shrinks for a job that waits.
	ForWaiting Why = "ForWaiting"
	// ForFaster: the job shrinks for a job that uses the devices better.
	ForFaster Why = "ForFaster"
	// Lent: the job grows into devices that are reserved, and not needed yet.
	Lent Why = "Lent"
	// ForReserved: the job shrinks for reserved capacity.
	ForReserved Why = "ForReserved"
	// Starts: the job waits, and there is room for it, or there will be once others have shrunk.
	Starts Why = "Starts"
	// Waits: the job waits, and there is no room for its least number of workers.
	Waits Why = "Waits"
	// AtMost: the job has its largest number of workers.
	AtMost Why = "AtMost"
	// NoRoom: the job would grow, but nodes with enough free devices for further workers are missing.
	NoRoom Why = "NoRoom"
	// Settling: the job changed its size too often in the last hour.
	Settling Why = "Settling"
	// Invalid: Workers cannot decide on the job. It keeps its size.
	Invalid Why = "Invalid"
)

// Target is how many workers a job should have.
type Target struct {
	// Job is the name of the job.
	Job string
	// Model is the GPU model of its workers; "" where no device is legal for them.
	Model string
	// Now is how many workers it has, Workers how many it should have.
	Now, Workers int
	Why          Why
	// For is the name of the job that gets the devices of a job that shrinks; "" where it is not one job.
	For string
	// Before and After are the expected rates, in the unit of the job's curve. Before is 0 for a job that waits.
	Before, After float64
	// Err says for Invalid what is wrong with the job.
	Err error
}

// Stats counts the work that a plan took.
type Stats struct {
	// Placed counts the jobs whose new workers Workers tried to place.
	Placed int
	// Rounds counts how often the policy decided. It decides again when a job does not fit where it counted on room.
	Rounds int
	// Cut says that a bound ended the search: further jobs may grow in the next call.
	Cut bool
}

// Plan is what Workers decides.
type Plan struct {
	// Targets of the jobs, in the order in which the caller gave them.
	Targets []Target
	// Order lists the jobs whose size changes, by index, in the order in which they should change it: first those that
	// shrink, then those that start, then those that grow.
	Order []int
	Stats Stats
}

// maxRounds bounds how often the policy decides in one call.
const maxRounds = 8

// Workers returns how many workers each job should have now, the time in seconds since 1970. The cluster does not change,
// and the answer is the same for jobs in any order. The workers of the jobs (Job.Placed) are in the ledgers of
// the cluster.
//
// Jobs use the devices of one GPU model: workers on different ones would wait for the slowest. A job that runs stays on
// the model of its first worker.
//
// A worker with a higher rank leaves first, and the first worker always stays. If a job shrinks for others, the others
// may have to wait until its workers have ended.
//
// An error means broken input as a whole. Workers keeps the size of a single job that is broken, and says why.
func Workers(c *gang.Cluster, jobs []Job, reserved []Reserved, now int64, cfg Config) (Plan, error) {
	s, err := newSearch(c, jobs, reserved, now, cfg)
	if err != nil {
		return Plan{}, fmt.Errorf("decide on workers: %w", err)
	}
	for _, p := range s.pools {
		if err := s.decide(p); err != nil {
			return Plan{}, fmt.Errorf("decide on workers: %w", err)
		}
	}
	return s.plan(), nil
}

// search is one call of Workers.
type search struct {
	cluster *gang.Cluster
	jobs    []Job
	now     int64
	cfg     Config
	policy  policy
	// byName are the indices of the cluster's nodes.
	byName map[string]int
	pools  []*pool
	// copies are the nodes that changes so far have changed, by index.
	copies map[int]*vgpu.Node
	// entries are the jobs by priority, arrival and name.
	entries []*entry
	// smaller and larger are the jobs that shrink, and those that start or grow, in their order.
	smaller, larger []int
	// invalid are the errors of jobs, by index.
	invalid map[int]error
	stats   Stats
	// steps are left for the exact searches of the knapsack.
	steps int
}

func newSearch(c *gang.Cluster, jobs []Job, reserved []Reserved, now int64, cfg Config) (*search, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Policy = cmp.Or(cfg.Policy, DefaultPolicy)
	cfg.Horizon = cmp.Or(cfg.Horizon, DefaultHorizon)
	cfg.GiveBack = cmp.Or(cfg.GiveBack, DefaultGiveBack)
	cfg.MaxMoves = cmp.Or(cfg.MaxMoves, DefaultMaxMoves)
	cfg.MaxPlacements = cmp.Or(cfg.MaxPlacements, DefaultMaxPlacements)
	s := &search{cluster: c, jobs: jobs, now: now, cfg: cfg, invalid: map[int]error{}, byName: map[string]int{}, copies: map[int]*vgpu.Node{}, steps: maxSteps}
	s.policy, _ = policyOf(cfg.Policy)
	names := map[string]bool{}
	for i := range jobs {
		j := &jobs[i]
		if j.Name == "" || names[j.Name] {
			return nil, fmt.Errorf("job %q appears twice, or has no name", j.Name)
		}
		names[j.Name] = true
		if err := j.Validate(); err != nil {
			s.invalid[i] = err
		}
	}
	for _, r := range reserved {
		if r.Amount < 0 {
			return nil, fmt.Errorf("reserved are %d milli-GPU of model %q, legal is 0 or more", r.Amount, r.Model)
		}
	}
	for i, n := range c.Nodes {
		s.byName[n.Name()] = i
	}
	s.makePools(reserved)
	return s, nil
}

// plan collects the targets.
func (s *search) plan() Plan {
	p := Plan{Targets: make([]Target, len(s.jobs)), Order: slices.Concat(s.smaller, s.larger), Stats: s.stats}
	for i := range s.jobs {
		p.Targets[i] = Target{Job: s.jobs[i].Name, Now: len(s.jobs[i].Placed), Workers: len(s.jobs[i].Placed), Why: Invalid, Err: s.invalid[i]}
	}
	for _, e := range s.entries {
		p.Targets[e.at] = e.target
	}
	return p
}
