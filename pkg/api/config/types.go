package config

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUShareArgs are the arguments of the plugin GPUShare. The fields are described in package v1.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type GPUShareArgs struct {
	metav1.TypeMeta

	// Policy names the placement policy.
	Policy string
	// BindTimeout bounds one bind with all its retries.
	BindTimeout metav1.Duration
	// Seed of the policies that draw lots.
	Seed int64
	// PodsWithoutGPUs is SkipPods or ScorePods.
	PodsWithoutGPUs string
	// TypicalRequests are the usual requests; empty to learn them from the pods that arrive.
	TypicalRequests []TypicalRequest
	// MixHalfLife is the time after which an arrival counts half.
	MixHalfLife metav1.Duration
	// ModelCosts are the prices of GPU models.
	ModelCosts []ModelCost
	// Throughputs are the points of the throughput curves.
	Throughputs []Throughput
	// Interference says how harm among neighbours is predicted.
	Interference InterferenceArgs
	// Weights of what a placement costs.
	Weights CostWeights
	// Sharing is SharingWhenScarce or SharingAlways.
	Sharing string
	// ScarceBelowPercent of idle devices that make GPUs scarce.
	ScarceBelowPercent int32
	// Lifetimes is LifetimesEnabled or LifetimesDisabled.
	Lifetimes string
}

// Values of PodsWithoutGPUs.
const (
	// SkipPods leaves pods without vGPUs to the other plugins.
	SkipPods = "Skip"
	// ScorePods scores nodes for pods without vGPUs too.
	ScorePods = "Score"
)

// Values of Sharing.
const (
	// SharingWhenScarce prefers idle devices for pods with a profile until GPUs are scarce.
	SharingWhenScarce = "WhenScarce"
	// SharingAlways weighs idle and shared devices alike.
	SharingAlways = "Always"
)

// Values of InterferenceArgs.Learning.
const (
	// LearningEnabled learns from what is observed in the cluster.
	LearningEnabled = "Enabled"
	// LearningDisabled takes what is declared, and what was learned before.
	LearningDisabled = "Disabled"
)

// Values of Lifetimes.
const (
	// LifetimesEnabled learns from pods that ended how long others still run.
	LifetimesEnabled = "Enabled"
	// LifetimesDisabled predicts no ends.
	LifetimesDisabled = "Disabled"
)

// InterferenceModels are the models that InterferenceArgs.Model may name, by name. Package interference has them all; its
// model "table" looks up measured pairs and is for the simulator only.
func InterferenceModels() []string {
	return []string{"constant", "default", "hinge", "linear-hinge", "none", "rank1", "util-sum"}
}

// InterferenceArgs say how harm among neighbours is predicted.
type InterferenceArgs struct {
	// Model names the model of package interference.
	Model string
	// Learning is LearningEnabled or LearningDisabled.
	Learning string
	// MaxProfiles that the scheduler makes itself.
	MaxProfiles int32
}

// CostWeights say what a thousandth of a device counts that is lost by a cause, in percent.
type CostWeights struct {
	// Fragmentation: free GPU that the usual requests cannot use.
	Fragmentation int32
	// Interference: speed that tenants of the device lose.
	Interference int32
	// Heterogeneity: GPU beyond what the cheapest model needs.
	Heterogeneity int32
}

// TypicalRequest is a request that usually arrives.
type TypicalRequest struct {
	// CPU that the pod asks of the node.
	CPU resource.Quantity
	// Memory that the pod asks of the node.
	Memory resource.Quantity
	// VGPU is the number of slots, 0 for a pod without vGPUs.
	VGPU int64
	// VGPUMemory is the memory that the pod states for its devices together, 0 for memory in proportion to the slots.
	VGPUMemory resource.Quantity
	// Models that the pod may use, empty for any.
	Models []string
	// Weight beside the other requests.
	Weight int64
}

// ModelCost is the price of a GPU model.
type ModelCost struct {
	// Model is the product name as in GPUNode.
	Model string
	// Cost of a whole device and hour.
	Cost resource.Quantity
}

// Throughput is a point of the curve of one profile on one GPU model.
type Throughput struct {
	// Profile is the value of the pod's label profile.
	Profile string
	// Model is the product name as in GPUNode.
	Model string
	// Share in percent of a device; above 100 a multiple of 100.
	Share int32
	// Rate that the share reaches.
	Rate resource.Quantity
}

// GPUGangArgs are the arguments of the plugin GPUGang. The fields are described in package v1.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type GPUGangArgs struct {
	metav1.TypeMeta

	// PlacementDeadline bounds how long a gang may be bound in part.
	PlacementDeadline metav1.Duration
	// DrainAfter is how long a gang waits before room is drained for it.
	DrainAfter metav1.Duration
	// Drain is DrainBounded, DrainEnabled or DrainDisabled.
	Drain string
	// DrainTimeout ends a drain that does not come to its end.
	DrainTimeout metav1.Duration
	// MaxDomains that are tried for one plan.
	MaxDomains int32
	// PreferredTopology are the levels that gangs prefer that name none.
	PreferredTopology []string
}

// Values of GPUGangArgs.Drain.
const (
	// DrainBounded keeps room where it is known when it is free, and where that is soon.
	DrainBounded = "Bounded"
	// DrainEnabled keeps room that comes free for a gang that was passed over, for as long as it takes.
	DrainEnabled = "Enabled"
	// DrainDisabled keeps nothing: a large gang may wait for as long as small pods arrive.
	DrainDisabled = "Disabled"
)

// GPUPreemptArgs are the arguments of the plugin GPUPreempt. The fields are described in package v1.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type GPUPreemptArgs struct {
	metav1.TypeMeta

	// Mode is PreemptionEnabled, PreemptionDryRun or PreemptionDisabled.
	Mode string
	// EvictionsPerMinute bounds the evictions, 0 for no bound.
	EvictionsPerMinute int32
	// MinimumRuntime of pods whose priority class is not in MinimumRuntimes.
	MinimumRuntime metav1.Duration
	// MaximumGracePeriod of victims, 0 for what they ask for.
	MaximumGracePeriod metav1.Duration
	// MinimumRuntimes by priority class.
	MinimumRuntimes []ClassRuntime
	// Protected pods are never evicted.
	Protected ProtectedPods
	// PodDisruptionBudgets is BudgetsPreferred or BudgetsRequired.
	PodDisruptionBudgets string
	// Prices of evictions.
	Prices EvictionPrices
	// MaxSteps bounds the sets of victims that are looked at for one node or domain.
	MaxSteps int32
}

// EvictionPrices say how much lost work other harms of an eviction are worth, as the time that one GPU works.
type EvictionPrices struct {
	// BudgetViolation is the price of a victim beyond what a budget allows.
	BudgetViolation metav1.Duration
	// PriorityStep is the price of a victim for each lower priority of other pods that may be evicted.
	PriorityStep metav1.Duration
	// BrokenGang is the price of a gang that is evicted as a whole.
	BrokenGang metav1.Duration
	// ServingPod is the price of a victim that promises an answer within a time.
	ServingPod metav1.Duration
	// Victim is the price of each victim.
	Victim metav1.Duration
}

// ClassRuntime is how long the pods of a priority class run before they may be evicted.
type ClassRuntime struct {
	// PriorityClassName of the pods.
	PriorityClassName string
	// Runtime that they have for certain; nil is illegal.
	Runtime *metav1.Duration
}

// ProtectedPods are never evicted.
type ProtectedPods struct {
	// Namespaces of which no pod is evicted.
	Namespaces []string
	// LabelSelector of pods that are not evicted, nil for none.
	LabelSelector *metav1.LabelSelector
}

// Values of GPUPreemptArgs.Mode.
const (
	// PreemptionEnabled evicts pods for those of a higher priority.
	PreemptionEnabled = "Enabled"
	// PreemptionDryRun says who would be evicted, and evicts nobody.
	PreemptionDryRun = "DryRun"
	// PreemptionDisabled looks for nobody.
	PreemptionDisabled = "Disabled"
)

// Values of GPUPreemptArgs.PodDisruptionBudgets.
const (
	// BudgetsPreferred violates a budget at a price.
	BudgetsPreferred = "Preferred"
	// BudgetsRequired violates no budget.
	BudgetsRequired = "Required"
)
