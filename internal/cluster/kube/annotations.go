package kube

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Bounds of the parts of an assignment in the annotation. Every assignment has a part with the names of the node and of
// the fields, each container adds a part to its name, and each device adds a part with its ID of up to 64 bytes.
const (
	assignmentBytes = 512
	containerBytes  = 256
	deviceBytes     = 64 + len(`"",`)
)

// LargestAssignment returns how many bytes the assignment of a request has at most.
func LargestAssignment(r *vgpu.Request) int {
	sum := assignmentBytes
	for i := range r.Containers {
		c := &r.Containers[i]
		devices := min(int(c.Slots), MaxDevices)
		if len(r.Variants) > 0 {
			devices = MaxDevices // a wanted rate may take more devices than the request
		}
		sum += containerBytes + len(c.Name) + devices*deviceBytes
	}
	return sum
}

// AnnotationBytes returns what a pod's annotations have together, keys and values, without the assignment.
func AnnotationBytes(pod *v1.Pod) int {
	sum := 0
	for key, value := range pod.Annotations {
		if key != v1alpha1.AnnotationAssignment {
			sum += len(key) + len(value)
		}
	}
	return sum
}

// CheckAnnotations returns a *FieldError where an assignment of so many bytes would bring a pod's annotations beyond
// what the API server allows. A Binding adds the assignment without a check; the API server would then refuse every
// later update of the pod, its status included.
func CheckAnnotations(pod *v1.Pod, assignment int) error {
	const most = validation.TotalAnnotationSizeLimitB
	have, adds := AnnotationBytes(pod), len(v1alpha1.AnnotationAssignment)+assignment
	if have+adds <= most {
		return nil
	}
	return &FieldError{Field: "metadata.annotations", Legal: fmt.Sprintf(
		"keys and values have %d bytes, and the assignment that the scheduler adds has up to %d; the API server allows %d for all, "+
			"and would take no update of the bound pod: they must have at most %d", have, adds, most, most-adds)}
}

// IsTooLong reports whether the API server refused to write a pod because its annotations are too long already. For an eviction
// it says so after it has checked the budgets.
func IsTooLong(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.annotations" && c.Type == "FieldValueTooLong"
	})
}
