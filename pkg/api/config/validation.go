package config

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of BindTimeout. Below a second a busy API server would fail binds that it has done; above five minutes a pod
// whose bind hangs keeps its devices from others for longer than anybody would wait.
const (
	minBindTimeout = time.Second
	maxBindTimeout = 5 * time.Minute
)

// Bounds of MixHalfLife. Below ten minutes one user's burst is the whole mix; above a month the mix never forgets.
const (
	minMixHalfLife = 10 * time.Minute
	maxMixHalfLife = 720 * time.Hour
)

// ValidateGPUShareArgs returns what is illegal in args, with the legal values. The policies are those of package
// placement: the caller names them, since an API package knows no algorithms.
func ValidateGPUShareArgs(args *GPUShareArgs, policies []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !slices.Contains(policies, args.Policy) {
		errs = append(errs, field.NotSupported(path.Child("policy"), args.Policy, policies))
	}
	if d := args.BindTimeout.Duration; d < minBindTimeout || d > maxBindTimeout {
		errs = append(errs, field.Invalid(path.Child("bindTimeout"), d.String(), "must be from 1s to 5m"))
	}
	if legal := []string{ScorePods, SkipPods}; !slices.Contains(legal, args.PodsWithoutGPUs) {
		errs = append(errs, field.NotSupported(path.Child("podsWithoutGPUs"), args.PodsWithoutGPUs, legal))
	}
	if d := args.MixHalfLife.Duration; d < minMixHalfLife || d > maxMixHalfLife {
		errs = append(errs, field.Invalid(path.Child("mixHalfLife"), d.String(), "must be from 10m to 720h"))
	}
	errs = append(errs, validateTypical(args.TypicalRequests, path.Child("typicalRequests"))...)
	errs = append(errs, validateCosts(args.ModelCosts, path.Child("modelCosts"))...)
	errs = append(errs, validateThroughputs(args, path.Child("throughputs"))...)
	return append(errs, validateSharing(args, path)...)
}
