package gpushare

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/kube"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// givenRates returns the throughputs and prices that valid arguments give.
func givenRates(args *config.GPUShareArgs) (*placement.Rates, error) {
	prices := make(map[string]int64, len(args.ModelCosts))
	for i := range args.ModelCosts {
		c := &args.ModelCosts[i]
		prices[c.Model], _ = config.Millionths(c.Cost, config.MaxCost)
	}
	points := make([]placement.Throughput, len(args.Throughputs))
	for i := range args.Throughputs {
		t := &args.Throughputs[i]
		rate, _ := config.Millionths(t.Rate, config.MaxRate)
		points[i] = placement.Throughput{
			Profile: t.Profile, Model: t.Model, Share: vgpu.MilliGPU(t.Share) * vgpu.WholeGPU / 100, Rate: placement.Rate(rate),
		}
	}
	return placement.NewRates(points, prices)
}

// resolve gives the request of a pod that wants a rate the variants that reach it on the devices offered. The error is a
// *kube.FieldError: the annotation is malformed, or no model reaches the rate.
func resolve(rates *placement.Rates, pod *v1.Pod, r *vgpu.Request, offers []vgpu.Offer) error {
	wanted, wants, err := kube.WantedRate(pod, r)
	if err != nil || !wants {
		return err
	}
	variants, unreachable := rates.Variants(wanted, offers)
	if unreachable != nil {
		return kube.RateError(pod, unreachable)
	}
	r.Variants = variants
	return nil
}
