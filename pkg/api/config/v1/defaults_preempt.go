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
	// DefaultPodDisruptionBudgets may violate budgets, as the stock scheduler does.
	DefaultPodDisruptionBudgets = config.BudgetsPreferred
	// DefaultBudgetViolation keeps a budget unless that loses the work of a GPU in a day. Smaller violates more budgets.
	DefaultBudgetViolation = 24 * time.Hour
	// DefaultPriorityStep keeps pods of a higher priority in doubt. Larger loses more work for that.
	DefaultPriorityStep = time.Hour
	// DefaultBrokenGang prefers pods that go alone in doubt.
	DefaultBrokenGang = time.Hour
	// DefaultServingPod is that of a violated budget: both interrupt users.
	DefaultServingPod = 24 * time.Hour
	// DefaultVictim is about what a pod takes to leave, to start anew, and to load what it had. Larger evicts fewer pods,
	// which lose more.
	DefaultVictim = 10 * time.Minute
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
	for _, price := range []struct {
		of       **metav1.Duration
		standard time.Duration
	}{
		{&args.Prices.BudgetViolation, DefaultBudgetViolation}, {&args.Prices.PriorityStep, DefaultPriorityStep},
		{&args.Prices.BrokenGang, DefaultBrokenGang}, {&args.Prices.ServingPod, DefaultServingPod}, {&args.Prices.Victim, DefaultVictim},
	} {
		if *price.of == nil {
			*price.of = &metav1.Duration{Duration: price.standard}
		}
	}
	if args.MaxSteps == nil {
		args.MaxSteps = new(DefaultMaxSteps)
	}
}
