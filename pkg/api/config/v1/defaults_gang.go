package v1

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/config"
)

// Defaults of GPUGangArgs.
const (
	// DefaultPlacementDeadline outlives an outage of the API server; a longer one keeps the room of a gang that cannot start.
	DefaultPlacementDeadline = 5 * time.Minute
	// DefaultDrainAfter lets ordinary turnover make the room first: where jobs run for hours, a gang that has devices kept for it
	// costs the others more than it gains. Shorter starts large gangs sooner.
	DefaultDrainAfter = 24 * time.Hour
	// DefaultEagerDrainAfter is that where drains are Enabled: whoever enables them wants large gangs to start soon.
	DefaultEagerDrainAfter = time.Minute
	// DefaultDrain bounds how long a large gang waits among pods that say when they end, and costs hardly anything.
	DefaultDrain = config.DrainBounded
	// DefaultDrainTimeout is longer than most pods run. With a shorter one a gang may lose the room that it waited for; with a
	// longer one pods that never end waste it.
	DefaultDrainTimeout = 24 * time.Hour
	// DefaultMaxDomains is that of package gang.
	DefaultMaxDomains int32 = 32
)

// DefaultPreferredTopology returns the levels that a gang prefers: labels that every cluster has.
func DefaultPreferredTopology() []string { return []string{v1.LabelHostname, v1.LabelTopologyZone} }

// SetDefaults_GPUGangArgs sets the absent fields. The name is what defaulter-gen looks for.
//
//nolint:revive,staticcheck // see above
func SetDefaults_GPUGangArgs(args *GPUGangArgs) {
	if args.PlacementDeadline == nil {
		args.PlacementDeadline = &metav1.Duration{Duration: DefaultPlacementDeadline}
	}
	if args.Drain == nil {
		args.Drain = new(DefaultDrain)
	}
	if args.DrainAfter == nil {
		args.DrainAfter = &metav1.Duration{Duration: DefaultDrainAfter}
		if *args.Drain == config.DrainEnabled {
			args.DrainAfter.Duration = DefaultEagerDrainAfter
		}
	}
	if args.DrainTimeout == nil {
		args.DrainTimeout = &metav1.Duration{Duration: DefaultDrainTimeout}
	}
	if args.MaxDomains == nil {
		args.MaxDomains = new(DefaultMaxDomains)
	}
	if args.PreferredTopology == nil {
		args.PreferredTopology = DefaultPreferredTopology()
	}
}
