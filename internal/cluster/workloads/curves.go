package workloads

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// maxSharePercent is the share of the largest node.
const maxSharePercent = kube.MaxDevices * 100

// points are the legal points of a workload's curves, by model, then share.
type points struct {
	rates, latencies []placement.Throughput
}

// latencyRate returns how many steps of a latency pass in a time of 10¹² seconds, as a rate. The shorter the latency
// the higher the rate, and linear in between for work that follows its share. The result is exact to 4 millionths at
// the longest legal latency.
func latencyRate(latency time.Duration) placement.Rate {
	return placement.MaxRate / placement.Rate(latency)
}

// rateLatency undoes latencyRate, rounded so that what latencyRate lost does not show.
func rateLatency(rate placement.Rate) time.Duration {
	d := time.Duration(placement.MaxRate / rate)
	switch {
	case d > time.Minute:
		return d.Round(100 * time.Millisecond)
	case d > time.Second:
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}

// readPoints reads the points of the curves. It skips a curve that falls as the share grows as a whole.
func (w *Workload) readPoints(list []v1alpha1.ProfileThroughput) points {
	var all points
	for i := range list {
		t, path := &list[i], fmt.Sprintf("spec.throughputs[%d]", i)
		at := placement.Throughput{Profile: w.label(), Model: t.Model, Share: vgpu.MilliGPU(t.SharePercent) * vgpu.WholeGPU / 100}
		if !w.legalPoint(path, t) {
			continue
		}
		if t.Rate != nil {
			if rate, ok := config.Millionths(*t.Rate, config.MaxRate); ok {
				at.Rate = placement.Rate(rate)
				all.rates = append(all.rates, at)
			} else {
				w.malformed(path+".rate", kube.ShownQuantity(*t.Rate), "it must be a decimal above 0, at most 1T, with up to six decimals")
			}
		}
		if t.Latency != nil {
			if _, ok := w.step(path+".latency", t.Latency.Duration); ok {
				at.Rate = latencyRate(t.Latency.Duration)
				all.latencies = append(all.latencies, at)
			}
		}
	}
	all.rates = w.rising("rate", all.rates)
	all.latencies = w.rising("latency", all.latencies)
	return all
}

func (w *Workload) legalPoint(path string, t *v1alpha1.ProfileThroughput) bool {
	share := t.SharePercent
	switch {
	case t.Model == "" || t.Model == v1alpha1.AnyModel:
		w.malformed(path+".model", t.Model, "it must be the product name of a GPU as in GPUNode")
	case share < 1 || share > maxSharePercent || share > 100 && share%100 != 0:
		w.malformed(path+".sharePercent", share, fmt.Sprintf("it must be from 1 to 100 percent of a device, or a multiple of 100 up to %d", maxSharePercent))
	case t.Rate == nil && t.Latency == nil:
		w.malformed(path, "", "a point tells a rate, a latency, or both")
	default:
		return true
	}
	return false
}

// rising returns the points of the curves that do not fall, sorted.
func (w *Workload) rising(what string, list []placement.Throughput) []placement.Throughput {
	slices.SortFunc(list, func(a, b placement.Throughput) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Share, b.Share), cmp.Compare(a.Rate, b.Rate))
	})
	falls := map[string]bool{}
	for i := 1; i < len(list); i++ {
		a, b := &list[i-1], &list[i]
		if a.Model != b.Model || falls[b.Model] || a.Share != b.Share && a.Rate <= b.Rate {
			continue
		}
		falls[b.Model] = true
		w.Malformed = append(w.Malformed, fmt.Sprintf("spec.throughputs: the %s on %s at %v is worse than at %v, or the share stands twice: "+
			"a larger share must not be slower; no %s of this model is used", what, b.Model, b.Share, a.Share, what))
	}
	return slices.DeleteFunc(list, func(t placement.Throughput) bool { return falls[t.Model] })
}

// label is the value of the label profile that names the workload in its namespace.
func (w *Workload) label() string {
	_, name, _ := strings.Cut(w.Name, "/")
	return name
}

// step returns the latency on a whole device of a model in seconds, and false without a declaration.
func (p *points) step(model string) (float64, bool) {
	i := slices.IndexFunc(p.latencies, func(t placement.Throughput) bool { return t.Model == model && t.Share == vgpu.WholeGPU })
	if i < 0 {
		return 0, false
	}
	return rateLatency(p.latencies[i].Rate).Seconds(), true
}

// Rates returns the throughputs of the workload, under the name that its pods' label profile has; nil where it has
// none. Prices are as for placement.NewRates. Without any price all models cost the same; with some, the result has no
// model without a price.
func (w *Workload) Rates(prices map[string]int64) (*placement.Rates, error) {
	return w.table(w.points.rates, prices)
}

// Rate returns the declared throughput of a share of a GPU model, and false where exactly that share has none.
func (w *Workload) Rate(model string, share vgpu.MilliGPU) (placement.Rate, bool) {
	for i := range w.points.rates {
		if p := &w.points.rates[i]; p.Model == model && p.Share == share {
			return p.Rate, true
		}
	}
	return 0, false
}

// Latencies returns the latencies of the workload as rates, for what WantedLatency returns; nil where it has none.
func (w *Workload) Latencies(prices map[string]int64) (*placement.Rates, error) {
	return w.table(w.points.latencies, prices)
}

func (w *Workload) table(points []placement.Throughput, prices map[string]int64) (*placement.Rates, error) {
	if len(prices) == 0 {
		prices = make(map[string]int64, len(points))
		for i := range points {
			prices[points[i].Model] = 1_000_000
		}
	}
	var priced []placement.Throughput
	for i := range points {
		if _, ok := prices[points[i].Model]; ok {
			priced = append(priced, points[i])
		}
	}
	if len(priced) == 0 {
		return nil, nil
	}
	rates, err := placement.NewRates(priced, prices)
	if err != nil {
		return nil, fmt.Errorf("read throughputs of WorkloadProfile %s: %w", w.Name, err)
	}
	return rates, nil
}
