package gpushare

import (
	"cmp"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/learning"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// complete fills in the parts of a request that depend on its workload: its number, where the workload is known, and
// the variants that reach the wanted rate or latency. Without a rate or latency it fills in the preferred models. The
// error is a *kube.FieldError: a malformed annotation, or no model that reaches the rate or latency. Callers may hold the lock of the state for
// reading, so complete does not take it: a second lock for reading would wait for a writer that waits for the first one.
func (s *state) complete(pod *v1.Pod, r *vgpu.Request, know *learning.Snapshot, offers []vgpu.Offer) error {
	if len(r.Containers) == 0 {
		return nil
	}
	number := know.Number(pod)
	if know.Known(number) {
		r.Workload = uint32(number)
	}
	w := know.Workload(number)
	sized, err := s.size(pod, r, w, offers)
	if err != nil || sized {
		return err
	}
	rates, err := s.ratesOf(w)
	r.Preferences = preferencesOf(rates, profileOf(pod, w), r, offers)
	return err
}

// profileOf returns the name under which a table has the curves of a pod, "" for none.
func profileOf(pod *v1.Pod, w *workloads.Workload) string {
	if w == nil {
		return pod.Labels[v1alpha1.LabelProfile]
	}
	_, name, _ := strings.Cut(w.Name, "/")
	return name
}

// preferencesOf returns the loss of a pod on each of the models that it may use and has a curve for: by how much its
// work for the price stays behind the best of them. The result is nil where the curves do not separate two models.
func preferencesOf(rates *placement.Rates, profile string, r *vgpu.Request, offers []vgpu.Offer) []vgpu.Preference {
	if rates == nil || profile == "" {
		return nil
	}
	worth := map[string]float64{}
	best := 0.
	for i := range offers {
		d := &offers[i].Device
		share, legal := r.ShareOn(0, d)
		if !legal {
			continue
		}
		part := vgpu.MilliGPU(share.Devices) * vgpu.WholeGPU * vgpu.MilliGPU(share.Slots) / vgpu.MilliGPU(d.Slots)
		if value := rates.Worth(profile, d.Model, max(1, part)); value > 0 {
			worth[d.Model] = max(worth[d.Model], value)
			best = max(best, value)
		}
	}
	var list []vgpu.Preference
	for model, value := range worth {
		if loss := vgpu.MilliGPU(math.Round((1 - value/best) * float64(vgpu.WholeGPU))); loss > 0 {
			list = append(list, vgpu.Preference{Model: model, Loss: loss})
		}
	}
	slices.SortFunc(list, func(a, b vgpu.Preference) int { return cmp.Compare(a.Model, b.Model) })
	return list
}

// tooLittle returns the error of a pod that would fail wherever it may go, nil for others. The WorkloadProfile of such
// a pod declares more device memory than its share may use, on each model. Measurements do not count: frameworks that
// take all the memory that they may have held more where they had more.
func tooLittle(pod *v1.Pod, r *vgpu.Request, know *learning.Snapshot, offers []vgpu.Offer) *kube.FieldError {
	w := know.Workload(interference.Workload(r.Workload))
	if w == nil || len(r.Containers) != 1 {
		return nil
	}
	var nearest *kube.FieldError
	least := vgpu.Bytes(math.MaxInt64)
	for i := range offers {
		d := &offers[i].Device
		share, legal := r.ShareOn(0, d)
		if !legal {
			continue
		}
		use := w.On(d.Model)
		missing := use.Profile.Memory - share.MemoryLimit
		if !use.Known.Memory || missing <= 0 {
			return nil
		}
		if missing < least {
			least = missing
			nearest = kube.MemoryError(pod, r.Containers[0].Name, w.Name, d.Model, use.Profile.Memory, share)
		}
	}
	return nearest
}
