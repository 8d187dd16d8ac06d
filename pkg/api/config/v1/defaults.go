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
	// DefaultInterferenceModel predicts without having seen a workload, and better once it has.
	DefaultInterferenceModel = "default"
	// DefaultLearning observes: without it only declared profiles count.
	DefaultLearning = config.LearningEnabled
	// DefaultMaxProfiles keeps what is learned below 24 MiB in memory.
	DefaultMaxProfiles int32 = 10_000
	// DefaultWeight counts a thousandth of a device alike, whatever it was lost by.
	DefaultWeight int32 = 100
	// DefaultSharing costs nobody speed while devices idle.
	DefaultSharing = config.SharingWhenScarce
	// DefaultScarceBelowPercent leaves whole devices for the pods that arrive next. Larger shares sooner and slows pods down
	// that would have had a device of their own; smaller fills up first and leaves arriving pods only shared devices.
	DefaultScarceBelowPercent int32 = 10
	// DefaultLifetimes tells users when their pods will probably run. It costs a watch for pods that have ended.
	DefaultLifetimes = config.LifetimesEnabled
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
	setInterference(&args.Interference)
	for _, weight := range []**int32{&args.Weights.Fragmentation, &args.Weights.Interference, &args.Weights.Heterogeneity} {
		if *weight == nil {
			*weight = new(DefaultWeight)
		}
	}
	if args.Sharing == nil {
		args.Sharing = new(DefaultSharing)
	}
	if args.ScarceBelowPercent == nil {
		args.ScarceBelowPercent = new(DefaultScarceBelowPercent)
	}
	if args.Lifetimes == nil {
		args.Lifetimes = new(DefaultLifetimes)
	}
}

func setInterference(args *InterferenceArgs) {
	if args.Model == nil {
		args.Model = new(DefaultInterferenceModel)
	}
	if args.Learning == nil {
		args.Learning = new(DefaultLearning)
	}
	if args.MaxProfiles == nil {
		args.MaxProfiles = new(DefaultMaxProfiles)
	}
}
