package workloads

import (
	"cmp"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Curves are what the administrator says of the speed of work on shares of GPUs: the arguments of GPUShare. The zero value says nothing.
type Curves struct {
	// Rates are the throughputs by which pods get the share that reaches a rate, nil for none; Prices are those of the models.
	Rates  *placement.Rates
	Prices map[string]int64
	// Own reports whether the curves of a namespace's own WorkloadProfiles may give pods more than they ask for; nil for none.
	Own func(namespace string) bool
}

// GivenCurves returns the curves of valid arguments, without Own.
func GivenCurves(args *config.GPUShareArgs) (Curves, error) {
	c := Curves{Prices: make(map[string]int64, len(args.ModelCosts))}
	for i := range args.ModelCosts {
		m := &args.ModelCosts[i]
		c.Prices[m.Model], _ = config.Millionths(m.Cost, config.MaxCost)
	}
	points := make([]placement.Throughput, len(args.Throughputs))
	for i := range args.Throughputs {
		t := &args.Throughputs[i]
		rate, _ := config.Millionths(t.Rate, config.MaxRate)
		points[i] = placement.Throughput{
			Profile: t.Profile, Model: t.Model, Share: vgpu.MilliGPU(t.Share) * vgpu.WholeGPU / 100, Rate: placement.Rate(rate),
		}
	}
	var err error
	c.Rates, err = placement.NewRates(points, c.Prices)
	return c, err
}

// AllowsOwnCurves reports whether the curves of a namespace's own WorkloadProfiles may give its pods more slots than these ask for.
func AllowsOwnCurves(namespace *v1.Namespace) bool {
	return namespace.Labels[LabelOwnCurves] == OwnCurvesAllowed
}

// Complete fills in the parts of a request that depend on the curves of its workload, which is nil for an unknown one: the variants that reach
// the wanted rate or latency on the devices offered, and without a rate or latency the preferred models. The error is a *kube.FieldError: a
// malformed annotation, or no model that reaches the rate or latency.
func (c *Curves) Complete(pod *v1.Pod, r *vgpu.Request, w *Workload, offers []vgpu.Offer) error {
	sized, err := c.size(pod, r, w, offers)
	if err != nil || sized {
		return err
	}
	rates, err := c.of(w)
	r.Preferences = preferencesOf(rates, ratedAs(pod, w), r, offers)
	return err
}

// of returns the throughputs of a workload: those of the arguments, and for models that they do not name those of its
// WorkloadProfile, if there is one.
func (c *Curves) of(w *Workload) (*placement.Rates, error) {
	if w == nil {
		return c.Rates, nil
	}
	declared, err := w.Rates(c.Prices)
	return c.Rates.With(declared), err
}

// size gives the request of a pod that wants a rate or a latency the variants that reach it on the devices offered, and
// reports whether the pod wants either. The error is a *kube.FieldError: a malformed annotation, or no model that
// reaches the rate or latency.
func (c *Curves) size(pod *v1.Pod, r *vgpu.Request, w *Workload, offers []vgpu.Offer) (bool, error) {
	latency, wants, err := WantedLatency(pod, r)
	if err != nil {
		return true, err
	}
	if wants {
		return true, c.sizeByLatency(pod, r, w, latency, offers)
	}
	wanted, wants, err := WantedRate(pod, r)
	if err != nil || !wants {
		return wants, err
	}
	rates, err := c.of(w)
	if err != nil {
		return true, err
	}
	variants, unreachable := rates.Variants(wanted, offers)
	if unreachable != nil {
		return true, withUnusable(RateError(pod, unreachable), w, offers)
	}
	return true, c.charge(pod, r, v1alpha1.AnnotationRate, wanted, variants, offers)
}

// charge gives a request the variants of which no slot is beyond those that the pod asks for, and that its quota counts. Curves of the arguments are
// the administrator's, so that their variants all count; so do those of namespaces whose own curves are allowed. The error says that no variant
// is left, and the request keeps those that it has.
func (c *Curves) charge(pod *v1.Pod, r *vgpu.Request, key string, wanted placement.Wanted, variants []vgpu.Variant, offers []vgpu.Offer) error {
	if c.Own != nil && c.Own(pod.Namespace) {
		r.Variants = variants
		return nil
	}
	fewest := vgpu.Slots(0)
	left := slices.DeleteFunc(variants, func(v vgpu.Variant) bool {
		if key == v1alpha1.AnnotationRate && c.Rates.Has(wanted.Profile, v.Model) {
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
	if len(left) == 0 {
		return ChargeError(pod, key, wanted.Least, fewest)
	}
	r.Variants = left
	return nil
}

func (c *Curves) sizeByLatency(pod *v1.Pod, r *vgpu.Request, w *Workload, wanted placement.Wanted, offers []vgpu.Offer) error {
	var latencies *placement.Rates
	if w != nil {
		var err error
		if latencies, err = w.Latencies(c.Prices); err != nil {
			return err
		}
	}
	variants, unreachable := latencies.Variants(wanted, offers)
	if unreachable != nil {
		return withUnusable(LatencyError(pod, unreachable), w, offers)
	}
	return c.charge(pod, r, v1alpha1.AnnotationMaxLatency, wanted, variants, offers)
}

// withUnusable adds to an error which curves of the profile do not count, and why: a corrected one may be all that the pod needs.
func withUnusable(err *kube.FieldError, w *Workload, offers []vgpu.Offer) *kube.FieldError {
	if text := w.Unusable(offers); text != "" {
		err.Legal += "; " + text
	}
	return err
}

// ratedAs returns the name under which a table has the curves of a pod, "" for none.
func ratedAs(pod *v1.Pod, w *Workload) string {
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

// TooLittle returns the error of a pod that would fail wherever it may go, nil for others. The WorkloadProfile of such
// a pod declares more device memory than its share may use, on each model. Measurements do not count: frameworks that
// take all the memory that they may have held more where they had more.
func TooLittle(pod *v1.Pod, r *vgpu.Request, w *Workload, offers []vgpu.Offer) *kube.FieldError {
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
