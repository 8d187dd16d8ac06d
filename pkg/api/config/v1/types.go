package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUShareArgs are the arguments of the plugin GPUShare, which places single pods on shares of GPUs.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type GPUShareArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Policy names the placement policy that scores nodes and chooses devices. "tandem" keeps the GPUs usable for the
	// requests that usually arrive, with the CPU and memory that they need; "fgd" is Fragmentation Gradient Descent as
	// published. "packed" fills used devices first and so keeps whole devices free, "bestfit" leaves the smallest rest,
	// "spread" prefers the emptiest. "clustering", "dotprod", "packing" and "random" are there to compare with. Default:
	// tandem.
	//
	// +optional
	Policy *string `json:"policy,omitempty"`

	// BindTimeout bounds one bind of a pod with all its retries and the look at what the API server really did: from 1s
	// to 5m. The devices stay reserved until then. Default: 30s.
	//
	// +optional
	BindTimeout *metav1.Duration `json:"bindTimeout,omitempty"`

	// Seed of the policies that draw lots, any whole number: the same seed gives the same choices. Default: 0.
	//
	// +optional
	Seed *int64 `json:"seed,omitempty"`

	// PodsWithoutGPUs says what happens to pods that ask for no vGPU: "Skip" leaves them to the other plugins, "Score"
	// scores the nodes for them too, so that they do not take the CPU beside free GPUs. Default: Skip.
	//
	// +optional
	PodsWithoutGPUs *string `json:"podsWithoutGPUs,omitempty"`

	// TypicalRequests are the requests that usually arrive. The policies "fgd" and "tandem" keep room for them. Without
	// them the mix is learned from the pods that arrive.
	//
	// +optional
	// +listType=atomic
	TypicalRequests []TypicalRequest `json:"typicalRequests,omitempty"`

	// MixHalfLife is the time after which a pod that arrived counts half in the learned mix: from 10m to 720h. Shorter
	// follows a change of the load sooner, longer forgets less of what comes once a day. Default: 24h.
	//
	// +optional
	MixHalfLife *metav1.Duration `json:"mixHalfLife,omitempty"`

	// ModelCosts are the prices of GPU models. A pod that asks for a rate gets the share that meets it at the least
	// cost. Every model of throughputs needs one.
	//
	// +optional
	// +listType=map
	// +listMapKey=model
	ModelCosts []ModelCost `json:"modelCosts,omitempty"`

	// Throughputs say which rate a workload reaches on which share of which GPU model. The points of one profile and
	// model form a curve: it starts at no share with no rate, is linear in between, and ends at the largest share.
	//
	// +optional
	// +listType=atomic
	Throughputs []Throughput `json:"throughputs,omitempty"`

	// Interference says how the harm is predicted that the tenants of a device do to each other.
	//
	// +optional
	Interference InterferenceArgs `json:"interference,omitzero"`

	// Weights of the causes by which a placement loses GPU: what a thousandth of a device that is lost by that cause counts
	// beside the others.
	//
	// +optional
	Weights CostWeights `json:"weights,omitzero"`

	// Sharing says when pods with a profile share devices: "WhenScarce" prefers idle devices for them until GPUs are scarce,
	// "Always" weighs idle and shared devices alike, by the weights. Default: WhenScarce.
	//
	// +optional
	Sharing *string `json:"sharing,omitempty"`

	// ScarceBelowPercent: GPUs are scarce while at most so many percent of the healthy devices are wholly idle, or pods wait
	// for GPUs. From 0 to 100; larger shares sooner, 100 always. Default: 10.
	//
	// +optional
	ScarceBelowPercent *int32 `json:"scarceBelowPercent,omitempty"`

	// Lifetimes says whether the scheduler learns from vGPU pods that ended how long others still run: "Enabled" puts that into its
	// snapshots, for answers to when a pod will run, "Disabled" learns and predicts nothing. No decision depends on it. Default: Enabled.
	//
	// +optional
	Lifetimes *string `json:"lifetimes,omitempty"`
}

// InterferenceArgs say how the harm is predicted that the tenants of a device do to each other.
type InterferenceArgs struct {
	// Model that predicts the slowdown of each tenant. "default" multiplies what a workload suffers by what its neighbours
	// press, both from their profiles and corrected by the co-runs that were observed. "none" predicts no harm, "constant"
	// the same for all; "util-sum", "hinge", "linear-hinge" and "rank1" are there to compare with. Default: default.
	//
	// +optional
	Model *string `json:"model,omitempty"`

	// Learning says whether the scheduler learns from what it observes: "Enabled" writes it into WorkloadProfiles, "Disabled"
	// writes nothing and uses what the profiles hold. Default: Enabled.
	//
	// +optional
	Learning *string `json:"learning,omitempty"`

	// MaxProfiles bounds the WorkloadProfiles that the scheduler makes itself, for workloads that name none: from 1 to
	// 100000. Beyond, those that were not seen for longest are removed. Default: 10000.
	//
	// +optional
	MaxProfiles *int32 `json:"maxProfiles,omitempty"`
}

// CostWeights say what a thousandth of a device counts that is lost by a cause: in percent, from 0 to 1000. 0 leaves the
// cause out, 200 counts it twice.
type CostWeights struct {
	// Fragmentation is free GPU that the requests that usually arrive cannot use. Default: 100.
	//
	// +optional
	Fragmentation *int32 `json:"fragmentation,omitempty"`

	// Interference is speed that the tenants of a device lose by each other. Default: 100.
	//
	// +optional
	Interference *int32 `json:"interference,omitempty"`

	// Heterogeneity is what a pod's share costs more than on the cheapest GPU model that serves it. Default: 100.
	//
	// +optional
	Heterogeneity *int32 `json:"heterogeneity,omitempty"`
}

// TypicalRequest is a request that usually arrives.
type TypicalRequest struct {
	// CPU that the pod asks of the node, a quantity such as "8" or "500m", from 0 to 1M. Default: 0.
	//
	// +optional
	CPU resource.Quantity `json:"cpu,omitempty"`

	// Memory that the pod asks of the node, a quantity of whole bytes such as "16Gi", from 0 to 1Pi. Default: 0.
	//
	// +optional
	Memory resource.Quantity `json:"memory,omitempty"`

	// VGPU is the number of slots that the pod asks for, from 0 to 128000. 0 is a pod without vGPUs. Default: 0.
	//
	// +optional
	VGPU int64 `json:"vgpu,omitempty"`

	// VGPUMemory is the memory of devices that the pod asks for, a quantity of whole bytes such as "24Gi", from 0 to 1Pi. 0 is
	// memory in proportion to the slots. Default: 0.
	//
	// +optional
	VGPUMemory resource.Quantity `json:"vgpuMemory,omitempty"`

	// Models are the product names that the pod may use, as in GPUNode. Default: any.
	//
	// +optional
	// +listType=set
	Models []string `json:"models,omitempty"`

	// Weight of the request beside the others, from 1 to 1000000.
	Weight int64 `json:"weight"`
}

// ModelCost is the price of a GPU model.
type ModelCost struct {
	// Model is the product name as in GPUNode, for example "Tesla-T4".
	Model string `json:"model"`

	// Cost of a whole device and hour, in any unit that is the same for all models: a decimal above 0, at most 1M, with
	// up to six decimals, for example 3.06.
	Cost resource.Quantity `json:"cost"`
}

// Throughput is a point of the curve of one profile on one GPU model.
type Throughput struct {
	// Profile is the value of the label tandem-gpu.io/profile of the pods that the point is about.
	Profile string `json:"profile"`

	// Model is the product name as in GPUNode.
	Model string `json:"model"`

	// Share of the model in percent of a device: from 1 to 100, or a multiple of 100 up to 12800 for whole devices.
	Share int32 `json:"share"`

	// Rate that the workload reaches on the share, in any unit that is the same for all points of the profile: a decimal
	// above 0, at most 1T, with up to six decimals. A larger share has no smaller rate.
	Rate resource.Quantity `json:"rate"`
}
