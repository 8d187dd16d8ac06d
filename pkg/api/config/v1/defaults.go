package v1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/config"
)

// Defaults of GPUShareArgs.
const (
	// DefaultPolicy fills the most GPUs of the policies on all lists of the openb trace (docs/decisions/0009).
	DefaultPolicy = "tandem"
	// DefaultBindTimeout outlives a restart of the API server behind a load balancer; a longer one keeps devices from
	// other pods when a bind hangs for good.
	DefaultBindTimeout = 30 * time.Second
	// DefaultSeed is a seed as good as any other.
	DefaultSeed int64 = 0
	// DefaultPodsWithoutGPUs changes nothing for pods that are none of the plugin's.
	DefaultPodsWithoutGPUs = config.SkipPods
	// DefaultMixHalfLife keeps a day's rhythm in the mix and forgets last week's project.
	DefaultMixHalfLife = 24 * time.Hour
)

// SetDefaults_GPUShareArgs sets the absent fields. The name is what defaulter-gen looks for.
//
//nolint:revive,staticcheck // see above
func SetDefaults_GPUShareArgs(args *GPUShareArgs) {
	if args.Policy == nil {
		args.Policy = new(DefaultPolicy)
	}
	if args.BindTimeout == nil {
		args.BindTimeout = &metav1.Duration{Duration: DefaultBindTimeout}
	}
	if args.Seed == nil {
		args.Seed = new(DefaultSeed)
	}
	if args.PodsWithoutGPUs == nil {
		args.PodsWithoutGPUs = new(DefaultPodsWithoutGPUs)
	}
	if args.MixHalfLife == nil {
		args.MixHalfLife = &metav1.Duration{Duration: DefaultMixHalfLife}
	}
}
