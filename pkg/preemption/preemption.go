package preemption

import (
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Guard names why a pod is not evicted although its priority is lower; "" for a pod that may be.
type Guard string

// Guards of pods.
const (
	// Protected: its namespace or its labels are.
	Protected Guard = "Protected"
	// TooYoung: it has run for less than the minimum of its priority class.
	TooYoung Guard = "TooYoung"
	// Foreign: the scheduler may not evict it, such as a static pod of the node.
	Foreign Guard = "Foreign"
)

// Pod is a pod with a place, as a possible victim. Its devices are those that the ledgers have for it.
type Pod struct {
	UID vgpu.UID
	// Name is "namespace/name".
	Name string
	// Node is where it is.
	Node string
	// Host is what it gives back of its host.
	Host vgpu.Room
	// Priority of the pod. Only pods of a lower priority than the preemptor's are victims.
	Priority int32
	// Serving: it promises an answer within a time. Of pods of one priority these are the last to go.
	Serving bool
	// Slow: it takes longer to end than a preemptor should wait. Its room is the last resort, whatever its priority.
	Slow bool
	// Lost is the work that is lost with it, in thousandths of a GPU times seconds: since it started, or since its last
	// checkpoint. From 0.
	Lost int64
	// Budgets that it counts against, as indices of Candidates.Budgets.
	Budgets []int
	// Guard keeps it from being evicted; "" for none.
	Guard Guard
	// Leaving: it is being deleted already. Its room is waited for and costs nothing, whatever its priority and guard.
	Leaving bool
	// Gang is its gang as an index of Candidates.Gangs, −1 for none.
	Gang int
}

// Gang is a gang of which members have places. All of those are in Candidates.Pods.
type Gang struct {
	// Name is "namespace/name".
	Name string
	// MinCount is the least number of members that may run: those beyond it are surplus. Members that leave run no longer.
	MinCount int
}

// Budget bounds how many of its pods may be evicted: a PodDisruptionBudget.
type Budget struct {
	// Name is "namespace/name".
	Name string
	// Allowed evictions, from 0.
	Allowed int
}

// Candidates are the pods that have places, with what their eviction costs. Pods that are not listed stay.
type Candidates struct {
	Pods    []Pod
	Gangs   []Gang
	Budgets []Budget
}

// Kind of a unit.
type Kind int

// Kinds of units.
const (
	// Single is a pod of no gang.
	Single Kind = iota
	// Surplus is one member of a gang that runs on without it.
	Surplus
	// Whole is all members of a gang.
	Whole
)

// Unit is pods that are evicted together.
type Unit struct {
	Kind Kind
	// Name of the pod, or of the gang where it is evicted whole.
	Name string
	// Pods as indices of Candidates.Pods, ascending. Of a whole gang those that leave already are not among them.
	Pods []int
}

// Cost of a set of units. Sets are ordered by the fields from the first to the last, the smaller the better; by the names of
// the units at last. No field grows when a set gets smaller.
type Cost struct {
	// Slow counts the victims that are slow to end.
	Slow int
	// Violations adds up, over the budgets, the victims beyond what each allows.
	Violations int
	// Priority is the highest of a victim's, ServesHighest whether one of those is serving.
	Priority      int32
	ServesHighest bool
	// Serving counts the victims that are serving.
	Serving int
	// Beyond is whether anything but surplus members is evicted.
	Beyond bool
	// Broken counts the gangs that are evicted whole.
	Broken int
	// Lost is the work that is lost, in thousandths of a GPU times seconds.
	Lost int64
	// Victims counts the pods.
	Victims int
}

// Config is what Victims goes by.
type Config struct {
	// Config says how the preemptor is placed.
	gang.Config
	// KeepBudgets refuses plans that violate a budget, which are else the last resort.
	KeepBudgets bool
	// MaxSteps bounds the sets of units that are looked at for one node or domain; 0 stands for DefaultMaxSteps. Larger may
	// find a cheaper set where many units are alike, and takes longer, in proportion.
	MaxSteps int
	// SkipExplanation spares the search for the reason where nobody can be evicted, which takes as long as that for victims:
	// Refusal then has no reason and no text, and tells Cut alone.
	SkipExplanation bool
}

// DefaultMaxSteps is Config.MaxSteps where it is 0.
const DefaultMaxSteps = 4096

// Plan is what to do for a preemptor.
type Plan struct {
	// Evict is who goes, ordered by name: nobody where the preemptor fits once the pods of Waits are gone.
	Evict []Unit
	// Waits are the pods that are leaving already and whose room the places need, as indices of Candidates.Pods, ascending.
	Waits []int
	// Places of the preemptor's members, in the order of Group.Members, as in gang.Plan. nil where Refused says why.
	Places  []vgpu.Assignment
	Cost    Cost
	Refused *Refusal
	Stats   Stats
}

// Stats tells what a plan cost.
type Stats struct {
	// Places counts the nodes or domains that were looked at, Steps the sets of units.
	Places, Steps int
	// Cut says that MaxSteps, or another bound of its kind, ended the search: a cheaper set may exist. The units of the plan
	// are needed all the same, none of them could stay, unless victims times members are above a quarter of a million.
	Cut bool
}

// Reason names why there is no plan.
type Reason string

// Reasons of refusals.
const (
	// NeverHelps: the preemptor has no room even without all pods of a lower priority.
	NeverHelps Reason = "NeverHelps"
	// Guarded: it would have room without pods that are guarded.
	Guarded Reason = "Guarded"
	// Budgeted: it would have room if budgets were violated, and Config.KeepBudgets is set.
	Budgeted Reason = "Budgeted"
)

// Refusal says why nobody is evicted.
type Refusal struct {
	Reason Reason
	// Would is, for Guarded and Budgeted, the cheapest units that would make room, and Guards who of their pods are guarded,
	// as indices of Candidates.Pods. For NeverHelps they are empty.
	Would  []Unit
	Guards []int
	// Names of budgets that Would violates, for Budgeted.
	Budgets []string
	// Text says it in plain words.
	Text string
	// Cut says that the search was cut: there may be a plan that was not seen.
	Cut bool
}
