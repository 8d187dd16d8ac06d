package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUGangArgs are the arguments of the plugin GPUGang, which places all pods of a group or none.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type GPUGangArgs struct {
	metav1.TypeMeta `json:",inline"`

	// PlacementDeadline bounds how long a gang may be bound in part: from 1s to 15m. Members that have their places wait so
	// long for their siblings, and a gang of which too few are bound by then, since binds failed, is evicted. Default: 5m.
	//
	// +optional
	PlacementDeadline *metav1.Duration `json:"placementDeadline,omitempty"`

	// DrainAfter is how long a gang waits for room before devices are kept for it as their present owners end: from 0s to
	// 24h. Default: 24h, and 1m where drain is Enabled.
	//
	// +optional
	DrainAfter *metav1.Duration `json:"drainAfter,omitempty"`

	// Drain says whether devices are kept for a gang that waited long. "Bounded": where all pods that it would wait for say when
	// they end (activeDeadlineSeconds), and the last of them ends within a fourth of the time that the gang has waited.
	// "Enabled": wherever the gang was passed over, whoever is in its way and however long that takes; large gangs start sooner,
	// and all others later. "Disabled": never; a large gang may wait for as long as small pods arrive. Default: Bounded.
	//
	// +optional
	Drain *string `json:"drain,omitempty"`

	// DrainTimeout is how long devices are kept for a gang while pods that hold the rest of its room go on: from 1m to 720h.
	// Then others get the devices, and the gang waits twice as long for its next drain. Larger than the longest run of the pods
	// that use GPUs, no gang starves. Default: 24h.
	//
	// +optional
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`

	// MaxDomains bounds how many domains are tried for one plan, from 1 to 1000. More may find a tighter place and takes
	// longer, in proportion. Default: 32.
	//
	// +optional
	MaxDomains *int32 `json:"maxDomains,omitempty"`

	// PreferredTopology are the levels that gangs prefer that name neither required nor preferred ones, the most wanted first:
	// keys of node labels, or "nvlink"; at most 8. An empty list prefers nothing. Default: kubernetes.io/hostname,
	// topology.kubernetes.io/zone.
	//
	// +optional
	// +listType=atomic
	PreferredTopology []string `json:"preferredTopology,omitzero"`
}
