package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUPreemptArgs are the arguments of the plugin GPUPreempt, which evicts pods for pods and gangs of a higher priority.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type GPUPreemptArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Mode says what is done for a pod that finds no room: "Enabled" evicts pods of a lower priority, "DryRun" only says who
	// would be evicted, in an event of the pod, and "Disabled" does neither. It is about all pods of the profile, also those
	// without vGPUs. Default: Enabled.
	//
	// +optional
	Mode *string `json:"mode,omitempty"`

	// EvictionsPerMinute bounds how many pods are evicted, from 0 to 100000: as many at once, and as many in each minute
	// after that. 0 is no bound. A preemptor that needs more victims than that waits until none was evicted for a minute.
	// Default: 60.
	//
	// +optional
	EvictionsPerMinute *int32 `json:"evictionsPerMinute,omitempty"`

	// MinimumRuntime is how long a pod runs before it may be evicted, from 0s to 720h. It is about pods whose priority class
	// is not in minimumRuntimes. Default: 0s.
	//
	// +optional
	MinimumRuntime *metav1.Duration `json:"minimumRuntime,omitempty"`

	// MinimumRuntimes are the minimum runtimes by priority class, at most 256. Default: none.
	//
	// +optional
	// +listType=map
	// +listMapKey=priorityClassName
	MinimumRuntimes []ClassRuntime `json:"minimumRuntimes,omitempty"`

	// MaximumGracePeriod is the longest that a victim is given to end, from 1s to 720h in whole seconds, whatever its
	// terminationGracePeriodSeconds says. 0s gives it what it asks for. Default: 0s.
	//
	// +optional
	MaximumGracePeriod *metav1.Duration `json:"maximumGracePeriod,omitempty"`

	// Protected pods are never evicted, whatever the priority of the preemptor.
	//
	// +optional
	Protected ProtectedPods `json:"protected,omitzero"`

	// PodDisruptionBudgets says what a budget that allows no more disruptions means: "Preferred" violates it where that
	// costs less than other victims, see prices.budgetViolation, "Required" never violates it. For pods without vGPUs it means that of a node none of
	// a budget's pods go where there are more of them, below the priority, than it allows. Default: Preferred.
	//
	// +optional
	PodDisruptionBudgets *string `json:"podDisruptionBudgets,omitempty"`

	// Prices say how much lost work other harms of an eviction are worth. Among the victims that make room, the
	// scheduler evicts those that cost the least in all.
	//
	// +optional
	Prices EvictionPrices `json:"prices,omitzero"`

	// MaxSteps bounds the sets of victims that are looked at for one node or domain, from 1 to 1000000. More may find cheaper
	// victims where many pods are alike and takes longer, in proportion. Default: 4096.
	//
	// +optional
	MaxSteps *int32 `json:"maxSteps,omitempty"`
}

// EvictionPrices are exchange rates: how much lost work one of each harm is worth, as the time that one GPU works, from
// 0s to 10000h in whole seconds. 24h is the work of one GPU in a day, or of 24 GPUs in an hour.
type EvictionPrices struct {
	// BudgetViolation is the price of each victim beyond what a PodDisruptionBudget allows. Default: 24h.
	//
	// +optional
	BudgetViolation *metav1.Duration `json:"budgetViolation,omitempty"`

	// PriorityStep is the price of each victim for each lower priority that other pods have which may be evicted as
	// well. Default: 1h.
	//
	// +optional
	PriorityStep *metav1.Duration `json:"priorityStep,omitempty"`

	// BrokenGang is the price of a gang that is evicted as a whole, beside the lost work of its pods. Default: 1h.
	//
	// +optional
	BrokenGang *metav1.Duration `json:"brokenGang,omitempty"`

	// ServingPod is the price of a victim that promises an answer within a time. Default: 24h.
	//
	// +optional
	ServingPod *metav1.Duration `json:"servingPod,omitempty"`

	// Victim is the price of each victim, for its start from anew and the time in which nobody uses its GPU. Surplus
	// members of a gang that runs on have none. Default: 10m.
	//
	// +optional
	Victim *metav1.Duration `json:"victim,omitempty"`
}

// ClassRuntime is how long the pods of a priority class run before they may be evicted.
type ClassRuntime struct {
	// PriorityClassName of the pods. Each class stands in the list once.
	PriorityClassName string `json:"priorityClassName"`

	// Runtime before they may be evicted, from 0s to 720h. 0s is no minimum for this class.
	Runtime *metav1.Duration `json:"runtime"`
}

// ProtectedPods are never evicted.
type ProtectedPods struct {
	// Namespaces of which no pod is evicted, at most 1000. An empty list protects none. Default: kube-system.
	//
	// +optional
	// +listType=set
	Namespaces []string `json:"namespaces,omitzero"`

	// LabelSelector of pods that are not evicted, in all namespaces. It names at least one label. Default: none.
	//
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}
