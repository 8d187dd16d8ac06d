package config

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of PlacementDeadline. Below a second a busy API server would break up gangs that it is binding; the framework
// lets no pod wait in Permit for longer than 15 minutes.
const (
	minPlacementDeadline = time.Second
	maxPlacementDeadline = 15 * time.Minute
)

const (
	maxDrainAfter = 24 * time.Hour

	minDrainTimeout = time.Minute
	maxDrainTimeout = 720 * time.Hour

	maxDomains = 1_000
)

// MaxLevels bounds a list of levels. A cluster has no more kinds of domains, and every level costs time in each plan.
const MaxLevels = 8

// LegalLevel says in words what a level of a topology is.
const LegalLevel = "must be the key of a node label, or nvlink for the GPUs of one node that NVLink joins"

// IsLevel reports whether a level of a topology is legal: the key of a node label, or nvlink, which has the form of one.
func IsLevel(key string) bool { return len(validation.IsQualifiedName(key)) == 0 }

// ValidateGPUGangArgs returns what is illegal in args, with the legal values.
func ValidateGPUGangArgs(args *GPUGangArgs, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if d := args.PlacementDeadline.Duration; d < minPlacementDeadline || d > maxPlacementDeadline {
		errs = append(errs, field.Invalid(path.Child("placementDeadline"), d.String(), "must be from 1s to 15m"))
	}
	if d := args.DrainAfter.Duration; d < 0 || d > maxDrainAfter {
		errs = append(errs, field.Invalid(path.Child("drainAfter"), d.String(), "must be from 0s to 24h"))
	}
	if legal := []string{DrainBounded, DrainDisabled, DrainEnabled}; !slices.Contains(legal, args.Drain) {
		errs = append(errs, field.NotSupported(path.Child("drain"), args.Drain, legal))
	}
	if d := args.DrainTimeout.Duration; d < minDrainTimeout || d > maxDrainTimeout {
		errs = append(errs, field.Invalid(path.Child("drainTimeout"), d.String(), "must be from 1m to 720h"))
	}
	if n := args.MaxDomains; n < 1 || n > maxDomains {
		errs = append(errs, field.Invalid(path.Child("maxDomains"), n, fmt.Sprintf("must be from 1 to %d", maxDomains)))
	}
	return append(errs, validateLevels(args.PreferredTopology, path.Child("preferredTopology"))...)
}

func validateLevels(levels []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(levels) > MaxLevels {
		errs = append(errs, field.TooMany(path, len(levels), MaxLevels))
	}
	for i, key := range levels {
		switch {
		case !IsLevel(key):
			errs = append(errs, field.Invalid(path.Index(i), key, LegalLevel))
		case slices.Contains(levels[:i], key):
			errs = append(errs, field.Duplicate(path.Index(i), key))
		}
	}
	return errs
}
