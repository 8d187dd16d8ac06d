package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUShareArgs are the arguments of the plugin GPUShare, which places single pods on shares of GPUs.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type GPUShareArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Policy names the placement policy that scores nodes and chooses devices: "packed" fills used devices first and so
	// keeps whole devices free, "spread" prefers the emptiest, "bestfit" leaves the smallest rest. Default: packed.
	//
	// +optional
	Policy *string `json:"policy,omitempty"`

	// BindTimeout bounds one bind of a pod with all its retries and the look at what the API server really did: from 1s
	// to 5m. The devices stay reserved until then. Default: 30s.
	//
	// +optional
	BindTimeout *metav1.Duration `json:"bindTimeout,omitempty"`
}
