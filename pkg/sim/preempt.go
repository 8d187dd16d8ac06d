package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/preemption"
)

// PreemptionPolicy chooses the victims for a pod, or a gang, that finds no room.
type PreemptionPolicy int

const (
	// PreemptNobody says that all wait for others to end.
	PreemptNobody PreemptionPolicy = iota
	// PreemptInTree says that whom the stock scheduler would evict goes: see InTree. The plugin knows no gangs: those
	// that it leaves with too few members go whole. The members of a gang get room one after the other; without enough
	// of them there are no victims. A gang that requires a level gets none.
	PreemptInTree
	// PreemptTandem says that package preemption decides.
	PreemptTandem
)

var preemptionPolicies = []string{PreemptNobody: "none", PreemptInTree: "default", PreemptTandem: "tandem"}

// String returns the policy's name as in PreemptionByName.
func (p PreemptionPolicy) String() string {
	if p < 0 || int(p) >= len(preemptionPolicies) {
		return fmt.Sprintf("preemption %d", int(p))
	}
	return preemptionPolicies[p]
}

// PreemptionPolicies returns the names that PreemptionByName knows.
func PreemptionPolicies() []string { return slices.Clone(preemptionPolicies) }

// PreemptionByName returns the policy with a name of PreemptionPolicies.
func PreemptionByName(name string) (PreemptionPolicy, error) {
	i := slices.Index(preemptionPolicies, name)
	if i < 0 {
		return 0, fmt.Errorf("choose preemption: unknown name %q, known are %s", name, strings.Join(preemptionPolicies, ", "))
	}
	return PreemptionPolicy(i), nil
}

// PreemptionConfig is what evictions go by.
type PreemptionConfig struct {
	Policy PreemptionPolicy
	// Grace is how long a victim keeps its room, 0 or more: it does no work then. The room is then the preemptor's.
	Grace time.Duration
	// KeepBudgets and MaxSteps as in preemption.Config; the in-tree plugin knows neither.
	KeepBudgets bool
	MaxSteps    int
	// Prices are those of PreemptTandem; nil stands for preemption.DefaultPrices.
	Prices *preemption.Prices
	// Compare notes with each preemption what PreemptInTree would have undone, and the least that any victims would
	// lose: see Preemption.InTreeLost and Preemption.LeastLost.
	Compare bool
}

// Budget bounds how many pods are without a place at once: a PodDisruptionBudget with maxUnavailable. Its pods are those whose
// Job.Budget points to it.
type Budget struct {
	// Name is "namespace/name", unique among the budgets.
	Name string
	// MaxUnavailable counts pods that have arrived, wait or leave; 0 or more. An eviction beyond it is a violation.
	MaxUnavailable int
}

// Preemption is one decision to make room.
type Preemption struct {
	At time.Duration
	// Job is the preemptor, of a gang the first member.
	Job int
	// Evicted are the jobs that are evicted, by unit: a pod, a surplus member, or all members of a gang. By PreemptInTree each
	// is a unit of its own.
	Evicted [][]int
	// Fallen are jobs that go because PreemptInTree evicted others of their gang.
	Fallen []int
	// Waits are the awaited jobs that leave already.
	Waits []int
	// Violations adds up, over the budgets, the evicted pods beyond what each allows.
	Violations int
	// Lost is the work that is undone, in thousandths of a GPU times seconds.
	Lost int64
	// Cut says that a bound ended the search for cheaper victims.
	Cut bool
	// InTreeLost is the work that PreemptInTree would have undone on the same cluster for the same preemptor. −1 means
	// that it would have evicted no pod; the value is 0 without PreemptionConfig.Compare.
	InTreeLost int64
	// LeastLost is the least work that victims lose which make room for the preemptor on the same cluster, whatever else
	// they cost. If a bound cut the search for them, it is 0, so that it bounds the lost work from below in any case. The
	// value is 0 without PreemptionConfig.Compare.
	LeastLost int64
}

// Victims counts the pods that go, those of Fallen included.
func (p *Preemption) Victims() int {
	count := len(p.Fallen)
	for _, unit := range p.Evicted {
		count += len(unit)
	}
	return count
}

// validatePreemption returns what is wrong with evictions.
func (s *Setup) validatePreemption() error {
	p := &s.Preemption
	switch {
	case p.Policy < PreemptNobody || p.Policy > PreemptTandem:
		return fmt.Errorf("unknown %v, known are %s", p.Policy, strings.Join(preemptionPolicies, ", "))
	case p.Policy != PreemptNobody && s.Queue == Drop:
		return fmt.Errorf("preemption %v with the queue %v: those that are evicted have to wait somewhere", p.Policy, s.Queue)
	case p.Grace < 0 || p.Grace > latest:
		return fmt.Errorf("evicted pods leave after %v, legal is 0s to %v", p.Grace, latest)
	case p.MaxSteps < 0:
		return fmt.Errorf("at most %d steps of a search for victims, legal is 0 or more", p.MaxSteps)
	}
	names := map[string]*Budget{}
	for i := range s.Jobs {
		b := s.Jobs[i].Budget
		if b == nil {
			continue
		}
		if other := names[b.Name]; b.Name == "" || b.MaxUnavailable < 0 || other != nil && other != b {
			return fmt.Errorf("job %d (pod %s): its budget %q is nameless, below zero, or not the only one of that name", i, s.Jobs[i].Request.Pod, b.Name)
		}
		names[b.Name] = b
	}
	return nil
}
