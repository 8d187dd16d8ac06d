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
	// DefaultDrainAfter lets ordinary turnover make the room first. Shorter starts large gangs sooner and leaves more devices
	// idle while they drain.
	DefaultDrainAfter = time.Minute
	// DefaultDrain bounds how long a large gang waits.
	DefaultDrain = config.DrainEnabled
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
	if args.DrainAfter == nil {
		args.DrainAfter = &metav1.Duration{Duration: DefaultDrainAfter}
	}
	if args.Drain == nil {
		args.Drain = new(DefaultDrain)
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
