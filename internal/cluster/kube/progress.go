package kube

import (
	"regexp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const legalProgress = "it must be a decimal from 0 to 1, with up to six decimals and without a sign or unit, for example 0.25: the part of the work that is done"

// progressForm is what the part of the work may look like. The admission policy of deploy/ has the same form.
var progressForm = regexp.MustCompile(`^(0(\.[0-9]{1,6})?|1(\.0{1,6})?)$`)

// Progress returns the part of its work that the job of a pod has done, from 0 to 1, and false where the pod does not say. The error is
// a *FieldError.
func Progress(pod *v1.Pod) (done float64, said bool, err error) {
	raw, ok := pod.Annotations[v1alpha1.AnnotationProgress]
	if !ok {
		return 0, false, nil
	}
	if !progressForm.MatchString(raw) {
		return 0, true, Malformed(v1alpha1.AnnotationProgress, raw, legalProgress)
	}
	q, err := resource.ParseQuantity(raw)
	if err != nil {
		return 0, true, Malformed(v1alpha1.AnnotationProgress, raw, legalProgress)
	}
	return q.AsApproximateFloat64(), true, nil
}
