package workloads

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const legalLatency = "it must be a duration from 1us to 1h, for example 40ms or 1.5s"

// WantedLatency returns the latency that a pod accepts at most, as a rate for Workload.Latencies, and false for a pod
// that accepts any. The request is the pod's own. The error is a *FieldError: a malformed latency, a rate beside it, no
// profile, or more than one container with slots.
func WantedLatency(pod *v1.Pod, r *vgpu.Request) (placement.Wanted, bool, error) {
	raw, ok := pod.Annotations[v1alpha1.AnnotationMaxLatency]
	if !ok || len(r.Containers) == 0 {
		return placement.Wanted{}, false, nil
	}
	w, err := wantedOf(pod, r, v1alpha1.AnnotationMaxLatency, "WorkloadProfile that tells what a latency takes")
	latency, legal := kube.LatencyOf(raw)
	switch _, both := pod.Annotations[v1alpha1.AnnotationRate]; {
	case both:
		return w, true, kube.Malformed(v1alpha1.AnnotationMaxLatency, raw, "it stands beside "+v1alpha1.AnnotationRate+", a pod has one of both")
	case !legal:
		return w, true, kube.Malformed(v1alpha1.AnnotationMaxLatency, raw, legalLatency)
	case err != nil:
		return w, true, err
	}
	// Rates of points round down: without the millionth a share that just keeps the latency would miss it.
	w.Rate = latencyRate(latency) - latencyRate(latency)/1_000_000
	return w, true, nil
}

// LatencyError says at the pod's annotation why no GPU model keeps the latency that it accepts.
func LatencyError(pod *v1.Pod, u *placement.Unreachable) *kube.FieldError {
	legal := u.String()
	switch {
	case len(u.Known) == 0:
		legal = fmt.Sprintf("the WorkloadProfile %s/%s has no latencies, or does not exist", pod.Namespace, u.Profile)
	case u.Best > 0:
		legal = fmt.Sprintf("profile %s takes at least %v (on %s)", u.Profile, rateLatency(u.Best), devicesOf(u.Share, u.Model))
	}
	return kube.AnnotationError(pod, v1alpha1.AnnotationMaxLatency, legal)
}

// devicesOf writes a share for people.
func devicesOf(share vgpu.MilliGPU, model string) string {
	switch {
	case share == vgpu.WholeGPU:
		return "a whole " + model
	case share > vgpu.WholeGPU:
		return fmt.Sprintf("%d whole %s", share/vgpu.WholeGPU, model)
	}
	return strings.TrimSuffix(share.String(), "%") + " percent of one " + model
}
