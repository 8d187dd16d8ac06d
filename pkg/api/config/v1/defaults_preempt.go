package v1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/config"
)

// Defaults of GPUPreemptArgs.
const (
	// DefaultMode is what the stock scheduler does.
	DefaultMode = config.PreemptionEnabled
	// DefaultEvictionsPerMinute lets any one node be cleared at once. Smaller makes room for large gangs later; larger bounds
	// less of the harm that a wrong priority does.
	DefaultEvictionsPerMinute int32 = 60
	// DefaultMinimumRuntime is what the stock scheduler knows.
	DefaultMinimumRuntime time.Duration = 0
	// DefaultMaximumGracePeriod cuts nobody short who saves work.
	DefaultMaximumGracePeriod time.Duration = 0
	// DefaultPodDisruptionBudgets is what the stock scheduler does.
	DefaultPodDisruptionBudgets = config.BudgetsPreferred
	// DefaultMaxSteps is that of package preemption.
	DefaultMaxSteps int32 = 4096
)

// DefaultProtectedNamespaces returns the namespaces of which no pod is evicted: that of the cluster's own parts.
func DefaultProtectedNamespaces() []string { return []string{metav1.NamespaceSystem} }

// SetDefaults_GPUPreemptArgs sets the absent fields. The name is what defaulter-gen looks for.
//
//nolint:revive,staticcheck // see above
func SetDefaults_GPUPreemptArgs(args *GPUPreemptArgs) {
	if args.Mode == nil {
		args.Mode = new(DefaultMode)
	}
	if args.EvictionsPerMinute == nil {
		args.EvictionsPerMinute = new(DefaultEvictionsPerMinute)
	}
	if args.MinimumRuntime == nil {
		args.MinimumRuntime = &metav1.Duration{Duration: DefaultMinimumRuntime}
	}
	if args.MaximumGracePeriod == nil {
		args.MaximumGracePeriod = &metav1.Duration{Duration: DefaultMaximumGracePeriod}
	}
	if args.Protected.Namespaces == nil {
		args.Protected.Namespaces = DefaultProtectedNamespaces()
	}
	if args.PodDisruptionBudgets == nil {
		args.PodDisruptionBudgets = new(DefaultPodDisruptionBudgets)
	}
	if args.MaxSteps == nil {
		args.MaxSteps = new(DefaultMaxSteps)
	}
}
