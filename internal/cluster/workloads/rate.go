package workloads

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const legalRate = "it must be a decimal above 0, at most 1000000000000, with up to six decimals and without a sign or unit, for example 120 or 0.5"

// WantedRate returns the rate that a pod wants, and false for a pod that wants none. The request is the pod's own. The
// error is a *FieldError: a malformed rate, no profile, or more than one container with slots, since the rate does not
// say which one does the work.
func WantedRate(pod *v1.Pod, r *vgpu.Request) (placement.Wanted, bool, error) {
	raw, ok := pod.Annotations[v1alpha1.AnnotationRate]
	if !ok || len(r.Containers) == 0 {
		return placement.Wanted{}, false, nil
	}
	w, err := wantedOf(pod, r, v1alpha1.AnnotationRate, "throughputs that tell what a rate takes")
	if rate, wrong := parseRate(raw); wrong != nil {
		err = wrong
	} else if err == nil {
		w.Rate = rate
	}
	return w, true, err
}

// wantedOf returns what a pod wants of its profile's curves, without the rate.
func wantedOf(pod *v1.Pod, r *vgpu.Request, key, curves string) (placement.Wanted, error) {
	w := placement.Wanted{Profile: pod.Labels[v1alpha1.LabelProfile], Least: r.Containers[0].Slots}
	for i := range r.Variants {
		w.Models = append(w.Models, r.Variants[i].Model)
	}
	switch {
	case w.Profile == "":
		return w, &kube.FieldError{
			Field: fmt.Sprintf("metadata.labels[%s]", v1alpha1.LabelProfile),
			Legal: fmt.Sprintf("a pod with the annotation %s needs this label: it names the %s", key, curves),
		}
	case len(r.Containers) > 1:
		return w, &kube.FieldError{
			Field: kube.AnnotationPath(key), Value: kube.Shown(pod.Annotations[key]),
			Legal: fmt.Sprintf("it is for a pod in which one container asks for %s, here %d do", v1alpha1.ResourceVGPU, len(r.Containers)),
		}
	}
	return w, nil
}

// RateError says at the pod's annotation why no GPU model reaches the rate that it wants.
func RateError(pod *v1.Pod, u *placement.Unreachable) *kube.FieldError {
	return kube.AnnotationError(pod, v1alpha1.AnnotationRate, u.String())
}

// LabelOwnCurves is the label of namespaces whose own curves may give their pods more than these ask for, where its value is OwnCurvesAllowed.
const (
	LabelOwnCurves   = v1alpha1.Domain + "/own-curves"
	OwnCurvesAllowed = "allowed"
)

// ChargeError says at a pod's annotation that the curves of its namespace ask for more slots than the pod does, which its quota counts.
func ChargeError(pod *v1.Pod, key string, asked, needed vgpu.Slots) *kube.FieldError {
	return kube.AnnotationError(pod, key, fmt.Sprintf("by the curves of WorkloadProfile %s/%s it takes %d slots at least, and the pod asks for %d, which its quota counts: "+
		"ask for %d, or have an administrator label the namespace %s=%s or declare the curve in the arguments of the scheduler",
		pod.Namespace, pod.Labels[v1alpha1.LabelProfile], needed, asked, needed, LabelOwnCurves, OwnCurvesAllowed))
}

func parseRate(raw string) (placement.Rate, error) {
	rate, ok := kube.Decimal(raw)
	if !ok || rate < 1 {
		return 0, kube.Malformed(v1alpha1.AnnotationRate, raw, legalRate)
	}
	return placement.Rate(rate), nil
}
