package v1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults of GPUShareArgs.
const (
	// DefaultPolicy keeps whole devices free, which is what a pod that cannot be shared needs.
	DefaultPolicy = "packed"
	// DefaultBindTimeout outlives a restart of the API server behind a load balancer; a longer one keeps devices from
	// other pods when a bind hangs for good.
	DefaultBindTimeout = 30 * time.Second
)

// SetDefaults_GPUShareArgs sets the absent fields. The name is what defaulter-gen looks for.
//
//nolint:revive,staticcheck // see above
func SetDefaults_GPUShareArgs(args *GPUShareArgs) {
	if args.Policy == nil {
		policy := DefaultPolicy
		args.Policy = &policy
	}
	if args.BindTimeout == nil {
		args.BindTimeout = &metav1.Duration{Duration: DefaultBindTimeout}
	}
}
