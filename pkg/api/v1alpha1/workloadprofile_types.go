package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// WorkloadProfile tells what a workload uses of a GPU that it has alone, how fast it is on a share, and how it and its
// neighbours slow each other down. Pods of the same namespace name it by the label tandem-gpu.io/profile. Users declare
// what they know in the spec; the scheduler writes what it learned into the status, and makes profiles of its own for
// workloads that name none.
//
// If both parts tell the same thing, the larger memory counts, since too little would end the workload and its
// neighbours. A declared utilisation counts until at least ten observations differ from it by more than 25 percent of a
// device; then the learned one counts, and the condition Consistent says so.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=wp,categories=tandem
// +kubebuilder:printcolumn:name="Consistent",type=string,JSONPath=`.status.conditions[?(@.type=="Consistent")].status`
// +kubebuilder:printcolumn:name="Co-Runs",type=integer,JSONPath=`.status.coRuns`
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.status.workload.ownerName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type WorkloadProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user declares.
	// +optional
	Spec WorkloadProfileSpec `json:"spec,omitempty"`
	// Status is what was learned. The scheduler alone writes it.
	// +optional
	Status WorkloadProfileStatus `json:"status,omitempty"`
}

// WorkloadProfileList is a list of WorkloadProfiles.
//
// +kubebuilder:object:root=true
type WorkloadProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WorkloadProfile `json:"items"`
}

// AnyModel stands in DeclaredUse.Model for all GPU models without an entry of their own.
const AnyModel = "*"

// WorkloadProfileSpec is what the user declares. Everything is optional: what is missing is learned, or guessed from the
// graph, or taken to be much.
type WorkloadProfileSpec struct {
	// Uses of whole devices, by GPU model.
	//
	// +optional
	// +listType=map
	// +listMapKey=model
	// +kubebuilder:validation:MaxItems=64
	Uses []DeclaredUse `json:"uses,omitempty"`

	// Graph of the model that the workload runs. Uses that nobody declared or measured are guessed from it.
	//
	// +optional
	Graph *ModelGraph `json:"graph,omitempty"`

	// Throughputs are the points of the workload's curves: what it reaches on which share of which GPU model. A curve starts
	// at no share with no rate, is linear in between, and ends at the largest share; a larger share is not slower. A
	// curve of the same profile and model in the scheduler's configuration takes its place.
	//
	// +optional
	// +listType=map
	// +listMapKey=model
	// +listMapKey=sharePercent
	// +kubebuilder:validation:MaxItems=256
	Throughputs []ProfileThroughput `json:"throughputs,omitempty"`

	// Spread says how much slower a gang of this workload is where its members are far apart. If that costs less than the
	// free room that the gang breaks up by staying close together, it goes apart. Nobody learns it: levels that are not
	// listed cost an unknown amount, and a gang stays as close together there as it wishes.
	//
	// +optional
	// +listType=map
	// +listMapKey=topologyKey
	// +kubebuilder:validation:MaxItems=8
	Spread []ProfileSpread `json:"spread,omitempty"`

	// Scaling says how fast an elastic gang of this workload is with how many members, and what a change of their number
	// costs. Each of the two that is missing is learned from the rates that the members report.
	//
	// +optional
	Scaling *ProfileScaling `json:"scaling,omitempty"`

	// Serving says how a replica of this workload serves requests, by GPU model and share. The variants of InferenceFleets that declare no
	// replica go by it.
	//
	// +optional
	// +listType=map
	// +listMapKey=model
	// +listMapKey=sharePercent
	// +kubebuilder:validation:MaxItems=64
	Serving []ProfileServing `json:"serving,omitempty"`
}

// WorkClass is a class of work by how its speed follows its part of a device.
//
// +kubebuilder:validation:Enum=unknown;light;training;inference;prefill;decode
type WorkClass string

// DeclaredUse is what the workload uses of a whole device of one GPU model that it has alone.
//
// +kubebuilder:validation:XValidation:rule="has(self.smUtilizationPercent) || has(self.memoryBandwidthPercent) || has(self.pcieUtilizationPercent) || has(self.memory) || has(self.step) || has(self.class)",message="a use tells at least one of smUtilizationPercent, memoryBandwidthPercent, pcieUtilizationPercent, memory, step, class"
// +kubebuilder:validation:XValidation:rule="!has(self.step) || duration(self.step) >= duration('1us') && duration(self.step) <= duration('1h')",message="step must be from 1us to 1h"
type DeclaredUse struct {
	// Model is the product name as in GPUNode, or "*" for all models that have no entry.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Model string `json:"model"`
	// SMUtilizationPercent is the part of the time in which a kernel runs: nvidia-smi's "GPU-Util".
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SMUtilizationPercent *int32 `json:"smUtilizationPercent,omitempty"`
	// MemoryBandwidthPercent is the part of the time in which device memory is read or written: nvidia-smi's
	// "utilization.memory".
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MemoryBandwidthPercent *int32 `json:"memoryBandwidthPercent,omitempty"`
	// PCIeUtilizationPercent is the part of the bus to the host.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PCIeUtilizationPercent *int32 `json:"pcieUtilizationPercent,omitempty"`
	// Memory of the device that the workload holds at most, contexts included.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^0*[1-9][0-9]{0,17}(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?$`
	Memory *resource.Quantity `json:"memory,omitempty"`
	// Step is how long a step or a request takes, from 1us to 1h, for example 40ms. Short steps suffer most from neighbours.
	// Default: the latency of throughputs on the whole device.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(us|µs|ms|s|m|h)){1,4}$`
	// +kubebuilder:validation:MaxLength=64
	Step *metav1.Duration `json:"step,omitempty"`
	// Class of work: how its speed follows its part of the device.
	// +optional
	Class WorkClass `json:"class,omitempty"`
}

// ModelGraph describes the training of a model by its graph, without running it.
type ModelGraph struct {
	// Parameters of the model, a count.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000000000
	Parameters int64 `json:"parameters"`
	// Activations that one sample leaves in all layers together, a count of numbers.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000000000
	Activations int64 `json:"activations"`
	// BatchSize is the number of samples of one step.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	BatchSize int32 `json:"batchSize"`
	// Depth is the number of layers that have parameters.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	Depth int32 `json:"depth"`
	// MegaFLOPs are the floating-point operations of one step of training in 10⁶, forward and backward. Default: 6 times
	// parameters times batchSize in all, as in a network that uses each parameter once for each sample.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000000000
	MegaFLOPs int64 `json:"megaFLOPs,omitempty"`
}

// ProfileThroughput is what the workload reaches on a share of one GPU model.
//
// +kubebuilder:validation:XValidation:rule="has(self.rate) || has(self.latency)",message="a point tells a rate, a latency, or both"
// +kubebuilder:validation:XValidation:rule="self.sharePercent <= 100 || self.sharePercent % 100 == 0",message="sharePercent must be from 1 to 100 percent of a device, or a multiple of 100 up to 12800 for whole devices"
// +kubebuilder:validation:XValidation:rule="!has(self.latency) || duration(self.latency) >= duration('1us') && duration(self.latency) <= duration('1h')",message="latency must be from 1us to 1h"
type ProfileThroughput struct {
	// Model is the product name as in GPUNode.
	// +kubebuilder:validation:Pattern=`^[^*]+$`
	// +kubebuilder:validation:MaxLength=63
	Model string `json:"model"`
	// SharePercent of the model: from 1 to 100, or a multiple of 100 up to 12800 for whole devices.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=12800
	SharePercent int32 `json:"sharePercent"`
	// Rate that the workload reaches on the share, in any unit that is the same for all points: a decimal above 0, at most
	// 1T, with up to six decimals. The pod's annotation tandem-gpu.io/rate is in this unit.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]{1,18}(\.[0-9]{1,6})?(u|m|k|M|G|T)?$`
	Rate *resource.Quantity `json:"rate,omitempty"`
	// Latency of a step or a request on the share, from 1us to 1h, for example 40ms. The pod's annotation
	// tandem-gpu.io/max-latency is compared with it.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(us|µs|ms|s|m|h)){1,4}$`
	// +kubebuilder:validation:MaxLength=64
	Latency *metav1.Duration `json:"latency,omitempty"`
}

// ProfileSpread is what it costs a gang of the workload to be on more than one domain of a level.
type ProfileSpread struct {
	// TopologyKey is the level: the key of a node label, for example kubernetes.io/hostname for nodes, or nvlink for the
	// GPUs of one node that NVLink joins.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self.indexOf('/') <= 253",message="the part before the / must be at most 253 characters long"
	TopologyKey string `json:"topologyKey"`
	// Slowdown of a gang that is on more than one domain of the level: time spread ÷ time together, a decimal from 1 to 10
	// with up to three decimals, for example "1.02". At 1 the level is no reason to keep the members together.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^([1-9](\.[0-9]{1,3})?|10(\.0{1,3})?)$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 1 && self <= 10",message="slowdown must be a decimal from 1 to 10: time spread ÷ time together"
	Slowdown intstr.IntOrString `json:"slowdown"`
}

// WorkloadProfileStatus is what the scheduler learned.
type WorkloadProfileStatus struct {
	// Workload that a profile was made for which the scheduler made itself; absent where a user made it.
	// +optional
	Workload *LearnedWorkload `json:"workload,omitempty"`

	// Learned by GPU model.
	//
	// +optional
	// +listType=map
	// +listMapKey=model
	// +kubebuilder:validation:MaxItems=64
	Learned []LearnedUse `json:"learned,omitempty"`

	// CoRuns adds up those of Learned, for kubectl get.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CoRuns int64 `json:"coRuns,omitempty"`

	// Conditions: Consistent says whether the declared part is legal and agrees with the learned one.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConditionConsistent says whether the declared part of a WorkloadProfile is legal and agrees with what was learned.
const ConditionConsistent = "Consistent"

// Reasons of ConditionConsistent.
const (
	// ConsistentAgrees: nothing that was learned contradicts what is declared.
	ConsistentAgrees = "Agrees"
	// ConsistentContradicts: declared and learned differ; the message names both and which one counts.
	ConsistentContradicts = "Contradicts"
	// ConsistentMalformed: a declared value is illegal although the schema admits it; the message names it. It is passed
	// over.
	ConsistentMalformed = "Malformed"
)

// LearnedWorkload tells the pods that a profile was learned from: those with one owner and the same images.
type LearnedWorkload struct {
	// OwnerKind is the kind of the pods' owner with its API group, for example "Deployment.apps"; "Pod" where they have none.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=320
	OwnerKind string `json:"ownerKind"`
	// OwnerName is the owner's name, without what changes from one rollout or run to the next.
	// +kubebuilder:validation:MaxLength=253
	OwnerName string `json:"ownerName"`
	// Images of the containers that ask for vGPUs, sorted.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	Images []string `json:"images,omitempty"`
}

// LearnedUse is what was observed of the workload on one GPU model.
type LearnedUse struct {
	// Model is the product name as in GPUNode.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Model string `json:"model"`
	// SMUtilizationPercent that the workload reaches alone; absent until it was seen.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SMUtilizationPercent *int32 `json:"smUtilizationPercent,omitempty"`
	// MemoryBandwidthPercent that the workload reaches alone; absent until it was seen.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MemoryBandwidthPercent *int32 `json:"memoryBandwidthPercent,omitempty"`
	// Memory that the workload held at most; absent until it was seen.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]{1,18}(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?$`
	Memory *resource.Quantity `json:"memory,omitempty"`
	// SoloObservations is how often the utilisation was seen.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SoloObservations int64 `json:"soloObservations,omitempty"`
	// SoloRate is the rate that the workload reports of itself while it is alone, in a unit of its own; absent where it
	// reports none.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]{1,18}(\.[0-9]{1,9})?(n|u|m|k|M|G|T)?$`
	SoloRate *resource.Quantity `json:"soloRate,omitempty"`
	// SoloSharePercent of the SMs that SoloRate was reached on; absent for the whole device.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SoloSharePercent *int32 `json:"soloSharePercent,omitempty"`
	// SensitivityMilli is how much more the workload suffers from neighbours than its use says: the natural logarithm of that
	// factor, in thousandths. 693 is twice as much, -693 half as much.
	// +optional
	// +kubebuilder:validation:Minimum=-4000
	// +kubebuilder:validation:Maximum=4000
	SensitivityMilli int32 `json:"sensitivityMilli,omitempty"`
	// PressureMilli is how much more its neighbours suffer from the workload than its use says, in the same way.
	// +optional
	// +kubebuilder:validation:Minimum=-4000
	// +kubebuilder:validation:Maximum=4000
	PressureMilli int32 `json:"pressureMilli,omitempty"`
	// OffsetMilli is its speed beside no neighbours, in the same way: not 0 where its speed alone was measured wrongly.
	// +optional
	// +kubebuilder:validation:Minimum=-4000
	// +kubebuilder:validation:Maximum=4000
	OffsetMilli int32 `json:"offsetMilli,omitempty"`
	// SureSensitivityMilli is the part of the doubt about the sensitivity that observations have removed, in thousandths.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	SureSensitivityMilli int32 `json:"sureSensitivityMilli,omitempty"`
	// SurePressureMilli is that of the pressure.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	SurePressureMilli int32 `json:"surePressureMilli,omitempty"`
	// SureOffsetMilli is that of the offset.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	SureOffsetMilli int32 `json:"sureOffsetMilli,omitempty"`
	// CoRuns is how often the workload was seen beside another.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	CoRuns int64 `json:"coRuns,omitempty"`
	// Neighbours is how many different workloads it was seen beside.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Neighbours int32 `json:"neighbours,omitempty"`
	// LastObserved is when the workload was last seen.
	// +optional
	LastObserved *metav1.Time `json:"lastObserved,omitempty"`
}
