package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ElasticTarget tells how many members of an elastic gang should run now. It has the name of the gang. The controller
// makes it, changes it and deletes it; the scheduler places no more members than the target, and tells in the status what
// keeps it from placing as many. An elastic gang without an ElasticTarget gets its least number of members.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=et,categories=tandem
// +kubebuilder:printcolumn:name="Min",type=integer,JSONPath=`.spec.min`
// +kubebuilder:printcolumn:name="Now",type=integer,JSONPath=`.status.workers`
// +kubebuilder:printcolumn:name="Target",type=integer,JSONPath=`.spec.workers`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.max`
// +kubebuilder:printcolumn:name="Servers",type=integer,JSONPath=`.status.tuning.servers`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
type ElasticTarget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the target. The controller alone writes it.
	Spec ElasticTargetSpec `json:"spec"`
	// Status tells why the target is what it is, and what came of it.
	// +optional
	Status ElasticTargetStatus `json:"status,omitempty"`
}

// ElasticTargetList is a list of ElasticTargets.
//
// +kubebuilder:object:root=true
type ElasticTargetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ElasticTarget `json:"items"`
}

// ElasticTargetSpec is a target.
//
// +kubebuilder:validation:XValidation:rule="self.min <= self.workers && self.workers <= self.max",message="workers must be from min to max"
type ElasticTargetSpec struct {
	// Source says where the user declared the gang: a PodGroup of scheduling.k8s.io or of scheduling.x-k8s.io, or the label
	// tandem-gpu.io/gang of its pods.
	// +kubebuilder:validation:Enum=scheduling.k8s.io;scheduling.x-k8s.io;label
	Source string `json:"source"`
	// Min is the least number of members with which the gang runs.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Min int32 `json:"min"`
	// Max is the largest number of members with which the gang runs.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Max int32 `json:"max"`
	// Workers is the number of members that should run.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Workers int32 `json:"workers"`
}

// ElasticTargetStatus tells why a target is what it is, and what came of it. The controller writes all but Scheduler.
type ElasticTargetStatus struct {
	// Workers is the number of members that have a node and are not about to end.
	// +optional
	Workers int32 `json:"workers,omitempty"`
	// Reason for the target, in one word: Steady, Idle, Lent, Faster, ForWaiting, ForFaster, ForReserved, Starts, Waits,
	// AtMost, NoRoom, Settling, Rate, Paused, Pinned, NotResizable, Invalid, NotAdmitted, Gone.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is the reason as a sentence.
	// +optional
	Message string `json:"message,omitempty"`
	// Since is when the target got its present number.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Moves are the times of the last changes of the target while the gang ran, ascending. They bound how often a gang
	// changes its size in an hour.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=16
	Moves []metav1.Time `json:"moves,omitempty"`
	// Rates of the gang at the sizes that it has had: the sum of the rates that its members report. The controller goes by
	// them once there are some.
	//
	// +optional
	// +listType=map
	// +listMapKey=workers
	// +listMapKey=hosts
	// +listMapKey=servers
	// +kubebuilder:validation:MaxItems=64
	Rates []ElasticRate `json:"rates,omitempty"`
	// ResizeSeconds is the mean time for which the gang did no work after a change of its size, absent before the first
	// change.
	// +optional
	ResizeSeconds *int32 `json:"resizeSeconds,omitempty"`
	// Resizes is the number of changes that ResizeSeconds is the mean of.
	// +optional
	Resizes int32 `json:"resizes,omitempty"`
	// Tuning tells what a gang that states a rate gets for it; absent for other gangs.
	// +optional
	Tuning *ElasticTuning `json:"tuning,omitempty"`
	// Scheduler is what the scheduler tells of its own part.
	// +optional
	Scheduler *ElasticTargetAdmission `json:"scheduler,omitempty"`
	// Conditions: Resizable says whether the controller may change the number of members, and why not. Admitted says
	// whether as many members have a node as the target wants. RateReached, of a gang that states a rate, says whether a
	// known combination of members and servers reaches it, and why not.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ElasticRate is the rate of a gang at one size.
type ElasticRate struct {
	// Workers is the number of its members.
	Workers int32 `json:"workers"`
	// Hosts is the number of nodes that its members are on.
	Hosts int32 `json:"hosts"`
	// Servers is the number of its parameter servers, 0 without.
	// +optional
	// +kubebuilder:default=0
	Servers int32 `json:"servers"`
	// Rate is work per second, in the unit of the members' reports: the mean of the reports, the newer the heavier.
	// +kubebuilder:validation:XIntOrString
	Rate resource.Quantity `json:"rate"`
	// Reports is the number of reports.
	Reports int32 `json:"reports"`
}

// ElasticTuning is the combination of members and parameter servers that was chosen for a rate.
type ElasticTuning struct {
	// Wanted is the rate that the gang states.
	// +kubebuilder:validation:XIntOrString
	Wanted resource.Quantity `json:"wanted"`
	// Expected is the rate of the chosen combination; absent where it is unknown.
	// +optional
	// +kubebuilder:validation:XIntOrString
	Expected *resource.Quantity `json:"expected,omitempty"`
	// Workers is the chosen number of members. The target is smaller where room is short.
	// +optional
	Workers int32 `json:"workers,omitempty"`
	// Servers is the chosen number of parameter servers; absent for a gang without.
	// +optional
	Servers *int32 `json:"servers,omitempty"`
	// ServersReady is the number of parameter servers that are ready; absent for a gang without.
	// +optional
	ServersReady *int32 `json:"serversReady,omitempty"`
}

// ElasticTargetAdmission is what the scheduler tells of a target.
type ElasticTargetAdmission struct {
	// Workers is the target that the scheduler has read.
	Workers int32 `json:"workers"`
	// Message says why members within the target have no node, "" where they have one or the scheduler has not tried them.
	// +optional
	Message string `json:"message,omitempty"`
}

// Conditions of ElasticTargets.
const (
	// ConditionResizable says whether the controller may change the number of members of the gang.
	ConditionResizable = "Resizable"
	// ConditionAdmitted says whether as many members have a node as the target wants.
	ConditionAdmitted = "Admitted"
	// ConditionRateReached says whether a known combination of members and servers reaches the rate that the gang states.
	ConditionRateReached = "RateReached"
)
