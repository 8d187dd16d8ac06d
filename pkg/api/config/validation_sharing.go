package config

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of the arguments of sharing.
const (
	maxProfiles = 100_000 // what an API server lists in one go within seconds
	maxPercent  = 1_000   // of a weight: ten times
)

// validateSharing returns what is illegal in how devices are shared, and in what is learned for it.
func validateSharing(args *GPUShareArgs, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	within := func(at *field.Path, value, least, most int32) {
		if value < least || value > most {
			errs = append(errs, field.Invalid(at, value, fmt.Sprintf("must be from %d to %d", least, most)))
		}
	}
	oneOf := func(at *field.Path, value string, legal ...string) {
		if !slices.Contains(legal, value) {
			errs = append(errs, field.NotSupported(at, value, legal))
		}
	}
	at, i := path.Child("interference"), &args.Interference
	oneOf(at.Child("model"), i.Model, InterferenceModels()...)
	oneOf(at.Child("learning"), i.Learning, LearningDisabled, LearningEnabled)
	within(at.Child("maxProfiles"), i.MaxProfiles, 1, maxProfiles)
	at = path.Child("weights")
	within(at.Child("fragmentation"), args.Weights.Fragmentation, 0, maxPercent)
	within(at.Child("interference"), args.Weights.Interference, 0, maxPercent)
	within(at.Child("heterogeneity"), args.Weights.Heterogeneity, 0, maxPercent)
	oneOf(path.Child("sharing"), args.Sharing, SharingAlways, SharingWhenScarce)
	within(path.Child("scarceBelowPercent"), args.ScarceBelowPercent, 0, 100)
	oneOf(path.Child("lifetimes"), args.Lifetimes, LifetimesDisabled, LifetimesEnabled)
	return errs
}
