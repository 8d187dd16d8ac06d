package gpushare

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// givenPrices returns the prices that valid arguments give, by model.
func givenPrices(args *config.GPUShareArgs) map[string]int64 {
	prices := make(map[string]int64, len(args.ModelCosts))
	for i := range args.ModelCosts {
		c := &args.ModelCosts[i]
		prices[c.Model], _ = config.Millionths(c.Cost, config.MaxCost)
	}
	return prices
}

// givenRates returns the throughputs that valid arguments give.
func givenRates(args *config.GPUShareArgs) (*placement.Rates, error) {
	points := make([]placement.Throughput, len(args.Throughputs))
	for i := range args.Throughputs {
		t := &args.Throughputs[i]
		rate, _ := config.Millionths(t.Rate, config.MaxRate)
		points[i] = placement.Throughput{
			Profile: t.Profile, Model: t.Model, Share: vgpu.MilliGPU(t.Share) * vgpu.WholeGPU / 100, Rate: placement.Rate(rate),
		}
	}
	return placement.NewRates(points, givenPrices(args))
}

// ratesOf returns the throughputs of a workload: those of the arguments, and for models that they do not name those of its
// WorkloadProfile, if there is one.
func (s *state) ratesOf(w *workloads.Workload) (*placement.Rates, error) {
	if w == nil {
		return s.rates, nil
	}
	declared, err := w.Rates(s.prices)
	return s.rates.With(declared), err
}

// size gives the request of a pod that wants a rate or a latency the variants that reach it on the devices offered, and
// reports whether the pod wants either. The error is a *kube.FieldError: a malformed annotation, or no model that
// reaches the rate or latency.
func (s *state) size(pod *v1.Pod, r *vgpu.Request, w *workloads.Workload, offers []vgpu.Offer) (bool, error) {
	latency, wants, err := workloads.WantedLatency(pod, r)
	if err != nil {
		return true, err
	}
	if wants {
		return true, s.sizeByLatency(pod, r, w, latency, offers)
	}
	wanted, wants, err := workloads.WantedRate(pod, r)
	if err != nil || !wants {
		return wants, err
	}
	rates, err := s.ratesOf(w)
	if err != nil {
		return true, err
	}
	variants, unreachable := rates.Variants(wanted, offers)
	if unreachable != nil {
		return true, withUnusable(workloads.RateError(pod, unreachable), w, offers)
	}
	r.Variants, err = s.charged(pod, v1alpha1.AnnotationRate, wanted, variants, offers)
	return true, err
}

// charged returns the variants of which no slot is beyond those that the pod asks for, and that its quota counts. Curves of the arguments are the
// administrator's, so that their variants all count; so do those of namespaces whose own curves are allowed. The error says that
// no variant is left.
func (s *state) charged(pod *v1.Pod, key string, wanted placement.Wanted, variants []vgpu.Variant, offers []vgpu.Offer) ([]vgpu.Variant, error) {
	if s.ownCurves != nil && s.ownCurves(pod.Namespace) {
		return variants, nil
	}
	fewest := vgpu.Slots(0)
	left := slices.DeleteFunc(variants, func(v vgpu.Variant) bool {
		if key == v1alpha1.AnnotationRate && s.rates.Has(wanted.Profile, v.Model) {
			return false
		}
		needed := vgpu.Slots(0)
		for i := range offers {
			if d := &offers[i].Device; d.Model == v.Model {
				needed = max(needed, vgpu.SlotsOf(v.Compute, d.Slots))
			}
		}
		if needed > wanted.Least && (fewest == 0 || needed < fewest) {
			fewest = needed
		}
		return needed > wanted.Least
	})
	if len(left) > 0 {
		return left, nil
	}
	return nil, workloads.ChargeError(pod, key, wanted.Least, fewest)
}

func (s *state) sizeByLatency(pod *v1.Pod, r *vgpu.Request, w *workloads.Workload, wanted placement.Wanted, offers []vgpu.Offer) error {
	var latencies *placement.Rates
	if w != nil {
		var err error
		if latencies, err = w.Latencies(s.prices); err != nil {
			return err
		}
	}
	variants, unreachable := latencies.Variants(wanted, offers)
	if unreachable != nil {
		return withUnusable(workloads.LatencyError(pod, unreachable), w, offers)
	}
	var err error
	r.Variants, err = s.charged(pod, v1alpha1.AnnotationMaxLatency, wanted, variants, offers)
	return err
}

// withUnusable adds to an error which curves of the profile do not count, and why: a corrected one may be all that the pod needs.
func withUnusable(err *kube.FieldError, w *workloads.Workload, offers []vgpu.Offer) *kube.FieldError {
	if text := w.Unusable(offers); text != "" {
		err.Legal += "; " + text
	}
	return err
}
