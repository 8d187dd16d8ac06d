package config

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of GPUPreemptArgs. The scheduler evicts no more than some hundred pods in a second; no run is protected for longer
// than a month; lists are looked up for each pod that may be evicted.
const (
	maxEvictions  = 100_000
	maxRuntime    = 720 * time.Hour
	maxClasses    = 256
	maxNamespaces = 1_000
	maxMaxSteps   = 1_000_000
	// maxPrice is the bound of package preemption.
	maxPrice = 10_000 * time.Hour
)

const (
	legalPrice    = "must be from 0s to 10000h in whole seconds: the time that one GPU works"
	legalRuntime  = "must be from 0s to 720h"
	legalGrace    = "must be from 1s to 720h in whole seconds, or 0s for what each pod asks for"
	legalSelector = "must have a label or an expression: a selector without any matches all pods. Set mode to Disabled to evict none"
)

// ValidateGPUPreemptArgs returns what is illegal in args, with the legal values.
func ValidateGPUPreemptArgs(args *GPUPreemptArgs, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if legal := []string{PreemptionDisabled, PreemptionDryRun, PreemptionEnabled}; !slices.Contains(legal, args.Mode) {
		errs = append(errs, field.NotSupported(path.Child("mode"), args.Mode, legal))
	}
	if n := args.EvictionsPerMinute; n < 0 || n > maxEvictions {
		errs = append(errs, field.Invalid(path.Child("evictionsPerMinute"), n, fmt.Sprintf("must be from 1 to %d, or 0 for no bound", maxEvictions)))
	}
	if d := args.MinimumRuntime.Duration; d < 0 || d > maxRuntime {
		errs = append(errs, field.Invalid(path.Child("minimumRuntime"), d.String(), legalRuntime))
	}
	if d := args.MaximumGracePeriod.Duration; d < 0 || d > maxRuntime || d%time.Second != 0 {
		errs = append(errs, field.Invalid(path.Child("maximumGracePeriod"), d.String(), legalGrace))
	}
	errs = append(errs, validateRuntimes(args.MinimumRuntimes, path.Child("minimumRuntimes"))...)
	errs = append(errs, validateProtected(&args.Protected, path.Child("protected"))...)
	if legal := []string{BudgetsPreferred, BudgetsRequired}; !slices.Contains(legal, args.PodDisruptionBudgets) {
		errs = append(errs, field.NotSupported(path.Child("podDisruptionBudgets"), args.PodDisruptionBudgets, legal))
	}
	errs = append(errs, validatePrices(&args.Prices, path.Child("prices"))...)
	if n := args.MaxSteps; n < 1 || n > maxMaxSteps {
		errs = append(errs, field.Invalid(path.Child("maxSteps"), n, fmt.Sprintf("must be from 1 to %d", maxMaxSteps)))
	}
	return errs
}

func validatePrices(p *EvictionPrices, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, of := range []struct {
		name  string
		price time.Duration
	}{
		{"budgetViolation", p.BudgetViolation.Duration}, {"priorityStep", p.PriorityStep.Duration}, {"brokenGang", p.BrokenGang.Duration},
		{"servingPod", p.ServingPod.Duration}, {"victim", p.Victim.Duration},
	} {
		if of.price < 0 || of.price > maxPrice || of.price%time.Second != 0 {
			errs = append(errs, field.Invalid(path.Child(of.name), of.price.String(), legalPrice))
		}
	}
	return errs
}

func validateRuntimes(list []ClassRuntime, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(list) > maxClasses {
		errs = append(errs, field.TooMany(path, len(list), maxClasses))
	}
	seen := map[string]bool{}
	for i := range list {
		name, at := list[i].PriorityClassName, path.Index(i).Child("priorityClassName")
		switch problems := validation.IsDNS1123Subdomain(name); {
		case name == "":
			errs = append(errs, field.Required(at, "must be the name of a PriorityClass"))
		case len(problems) > 0:
			errs = append(errs, field.Invalid(at, name, problems[0]))
		case seen[name]:
			errs = append(errs, field.Duplicate(at, name))
		}
		seen[name] = true
		errs = append(errs, validateRuntime(list[i].Runtime, path.Index(i).Child("runtime"))...)
	}
	return errs
}

func validateRuntime(d *metav1.Duration, path *field.Path) field.ErrorList {
	switch {
	case d == nil:
		return field.ErrorList{field.Required(path, legalRuntime)}
	case d.Duration < 0 || d.Duration > maxRuntime:
		return field.ErrorList{field.Invalid(path, d.Duration.String(), legalRuntime)}
	}
	return nil
}

func validateProtected(p *ProtectedPods, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("namespaces")
	if len(p.Namespaces) > maxNamespaces {
		errs = append(errs, field.TooMany(at, len(p.Namespaces), maxNamespaces))
	}
	seen := map[string]bool{}
	for i, name := range p.Namespaces {
		switch problems := validation.IsDNS1123Label(name); {
		case name == "":
			errs = append(errs, field.Required(at.Index(i), "must be the name of a namespace"))
		case len(problems) > 0:
			errs = append(errs, field.Invalid(at.Index(i), name, problems[0]))
		case seen[name]:
			errs = append(errs, field.Duplicate(at.Index(i), name))
		}
		seen[name] = true
	}
	return append(errs, validateSelector(p.LabelSelector, path.Child("labelSelector"))...)
}

func validateSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return field.ErrorList{field.Invalid(path, "{}", legalSelector)}
	}
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}
