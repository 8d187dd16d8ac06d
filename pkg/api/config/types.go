package config

import (
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
}
