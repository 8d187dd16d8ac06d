package kube

import (
	"regexp"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const legalSlowdown = "it must be a decimal from 1 to 10 with up to three decimals and without a sign or unit, for example 1.2: time on the shared device ÷ time alone"

// slowdownForm is what a slowdown may look like: 1 to 9.999, or 10.
var slowdownForm = regexp.MustCompile(`^([1-9](\.[0-9]{1,3})?|10(\.0{1,3})?)$`)

// MaxSlowdown returns the slowdown by neighbours that a pod tolerates, in thousandths from 1000 (none) to 10000; 0 where
// the pod names none and tolerates any. The error is a *FieldError.
func MaxSlowdown(pod *v1.Pod) (int64, error) {
	raw, ok := pod.Annotations[v1alpha1.AnnotationMaxSlowdown]
	if !ok {
		return 0, nil
	}
	milli, ok := ParseSlowdown(raw)
	if !ok {
		return 0, Malformed(v1alpha1.AnnotationMaxSlowdown, raw, legalSlowdown)
	}
	return milli, nil
}

// ParseSlowdown returns a slowdown in thousandths, from 1000 to 10000, and whether it is legal.
func ParseSlowdown(raw string) (int64, bool) {
	if !slowdownForm.MatchString(raw) {
		return 0, false
	}
	whole, part, _ := strings.Cut(raw, ".")
	milli, err := strconv.ParseInt(whole+(part + "000")[:3], 10, 64)
	return milli, err == nil
}
