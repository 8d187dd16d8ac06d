package preemption

import (
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Guard names why a pod stays although its priority is lower; "" for a pod without a guard.
type Guard string

// Guards of pods.
const (
	// Protected: the pod's namespace or labels protect it.
	Protected Guard = "Protected"
	// TooYoung: the pod has run for less than the minimum of its priority class.
	TooYoung Guard = "TooYoung"
	// Foreign: the scheduler may not evict the pod, such as a static pod of the node.
	Foreign Guard = "Foreign"
)

// Pod is a pod with a place, as a possible victim. The ledgers say which devices it has.
type Pod struct {
	UID vgpu.UID
	// Name is "namespace/name".
	Name string
	// Node is the name of its node.
	Node string
	// Host is the CPU and memory that it gives back to its host.
	Host vgpu.Room
	// Priority of the pod. Only pods of a lower priority than the preemptor's are victims, and those that yield to it.
	Priority int32
	// Serving: the pod promises an answer within a time. Its eviction has a price of its own.
	Serving bool
	// Slow: the pod takes longer to end than a preemptor should wait. Its eviction is the last resort, whatever its
	// priority.
	Slow bool
	// Lost is the work that an eviction of the pod loses, in thousandths of a GPU times seconds: since it started, or
	// since its last checkpoint. The value is 0 or more.
	Lost int64
	// Share is what the pod has of GPUs, over all devices. It evicts as much when it comes back, unless NeverPreempts
	// says that it evicts no pod.
	Share         vgpu.MilliGPU
	NeverPreempts bool
	// Budgets that count the pod, as indices of Candidates.Budgets.
	Budgets []int
	// Guard protects the pod from an eviction; "" for none.
	Guard Guard
	// Leaving: the pod is in deletion already, or ends by itself before an eviction would end it. A plan waits for its
	// room at no cost, whatever its priority and guard.
	Leaving bool
	// Gang is the gang of the pod as an index of Candidates.Gangs, −1 for none.
	Gang int
	// Yields: the gang of the pod gives way to the preemptor, although its priority is not lower.
	Yields bool
}

// Gang is a gang of which members have places. Candidates.Pods lists all of these members.
type Gang struct {
	// Name is "namespace/name".
	Name string
	// MinCount is the least number of members that may run; members beyond it are surplus. Members that are leaving do
	// not count as running.
	MinCount int
}

// Budget bounds the evictions of its pods. A Budget stands for a PodDisruptionBudget.
type Budget struct {
	// Name is "namespace/name".
	Name string
	// Allowed evictions, 0 or more.
	Allowed int
}

// Candidates are the pods that have places, with what their eviction costs. Other pods stay.
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

// Unit is a set of pods that leave together.
type Unit struct {
	Kind Kind
	// Name of the pod, or of the gang that leaves whole.
	Name string
	// Pods as indices of Candidates.Pods, ascending. A whole gang lists no members that are leaving already.
	Pods []int
}

// Cost of a set of units, as Compare orders it; the names of the units decide ties. No field grows when a set gets
// smaller.
type Cost struct {
	// Slow counts the victims that end slowly.
	Slow int
	// Price is what the victims cost in all, in thousandths of a GPU times seconds: Lost + Returns + the other fields
	// times their Prices.
	Price int64
	// Lost is the lost work of the victims.
	Lost int64
	// Returns is what the victims evict in turn when they come back, by an estimate: the least price of pods of a lower
	// priority that have as much GPU together, on whatever nodes they are. The estimate takes the cluster as full.
	Returns int64
	// Violations adds up, over the budgets, the victims beyond the allowed number of each.
	Violations int
	// Steps adds up, over the victims, how many lower priorities other possible victims have.
	Steps int
	// Broken counts the gangs that leave as a whole.
	Broken int
	// Serving counts the victims that are serving, Victims all of them.
	Serving, Victims int
}

// Config holds the settings of Victims.
type Config struct {
	// Config says how to place the preemptor.
	gang.Config
	// KeepBudgets refuses plans that violate a budget. Without it a violation has its price.
	KeepBudgets bool
	// Prices are what harms beside the lost work cost. Zero prices count the lost work, and the number of victims.
	Prices Prices
	// MaxSteps bounds the sets of units that the search tries for one node or domain; 0 stands for DefaultMaxSteps. A
	// larger bound may find a cheaper set where many units are alike. The time grows in proportion.
	MaxSteps int
	// SkipExplanation makes Victims refuse without a reason. Finding the reason takes as long as the search for
	// victims. Refusal then has no reason and no text, but Cut.
	SkipExplanation bool
}

// DefaultMaxSteps is Config.MaxSteps where it is 0.
const DefaultMaxSteps = 4096

// Plan is what to do for a preemptor.
type Plan struct {
	// Evict lists the units to evict, ordered by name. Evict is empty where the preemptor fits once the pods of Waits
	// have ended.
	Evict []Unit
	// Waits are the leaving pods whose room the places need, as indices of Candidates.Pods, ascending.
	Waits []int
	// Places of the preemptor's members, in the order of Group.Members, as in gang.Plan. Places is nil where Refused
	// says why.
	Places  []vgpu.Assignment
	Cost    Cost
	Refused *Refusal
	Stats   Stats
}

// Stats counts the work that a plan took.
type Stats struct {
	// Places counts the nodes or domains that the search tried, Steps the sets of units.
	Places, Steps int
	// Cut says that MaxSteps, or another bound of its kind, ended the search: a cheaper set may exist. The plan still
	// needs each of its units, unless victims times members are above a quarter of a million.
	Cut bool
}

// Reason names why there is no plan.
type Reason string

// Reasons of refusals.
const (
	// NeverHelps: the preemptor has no room even without all pods of a lower priority.
	NeverHelps Reason = "NeverHelps"
	// Guarded: the preemptor would have room without the guarded pods.
	Guarded Reason = "Guarded"
	// Budgeted: the preemptor would have room beyond the budgets, and Config.KeepBudgets is set.
	Budgeted Reason = "Budgeted"
)

// Refusal says why a plan evicts no pod.
type Refusal struct {
	Reason Reason
	// Would lists, for Guarded and Budgeted, the cheapest units that would make room. Guards lists the guarded pods
	// among them, as indices of Candidates.Pods. Both are empty for NeverHelps.
	Would  []Unit
	Guards []int
	// Budgets names, for Budgeted, the budgets that Would violates.
	Budgets []string
	// Text describes the refusal for users.
	Text string
	// Cut says that a bound ended the search early: there may be a plan that the search did not try.
	Cut bool
}
