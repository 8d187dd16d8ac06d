package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProfileScaling is how the speed of a gang follows the number of its members.
type ProfileScaling struct {
	// Rates of the gang by the number of its members, and of the nodes that they are on. Between two numbers of members the
	// rate is interpolated, beyond them it grows as that of an average training program does.
	//
	// +optional
	// +listType=map
	// +listMapKey=workers
	// +listMapKey=hosts
	// +listMapKey=servers
	// +kubebuilder:validation:MaxItems=64
	Rates []ScalingRate `json:"rates,omitempty"`
	// ResizeTime is the time for which the gang does no work after a change of the number of its members, from 0s to 24h. It
	// is 0s for programs whose workers join and leave while they run.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h)){1,4}$`
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="resizeTime must be from 0s to 24h"
	ResizeTime *metav1.Duration `json:"resizeTime,omitempty"`
}

// ScalingRate is the rate of a gang of one size.
type ScalingRate struct {
	// Workers is the number of members.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Workers int32 `json:"workers"`
	// Hosts is the number of nodes that they are on, at most Workers; 0 for any.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Hosts int32 `json:"hosts"`
	// Servers is the number of parameter servers, 0 for a gang without. A gang with the annotation
	// tandem-gpu.io/elastic-servers goes by the rates that have a number of servers, one without it by the others.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=256
	Servers int32 `json:"servers"`
	// Rate is the work of the gang in a time, in any unit that is the same for all rates: a decimal above 0, at most 1T, with
	// up to six decimals.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]{1,18}(\.[0-9]{1,6})?(u|m|k|M|G|T)?$`
	Rate resource.Quantity `json:"rate"`
}
