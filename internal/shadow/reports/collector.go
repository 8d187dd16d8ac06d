package reports

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/tandem-gpu/tandem/internal/shadow/families"
	"github.com/tandem-gpu/tandem/pkg/shadow"
)

// values of the families with the label world; false where there is none.
var values = map[string]func(f *shadow.Figures) (float64, bool){
	"waiting_mean_seconds": func(f *shadow.Figures) (float64, bool) {
		return float64(f.Waiting.MeanMillis) / 1000, f.Waiting.Pods > 0
	},
	"waiting_p99_seconds": func(f *shadow.Figures) (float64, bool) {
		return float64(f.Waiting.P99Millis) / 1000, f.Waiting.Pods > 0
	},
	"waiting_pods":             func(f *shadow.Figures) (float64, bool) { return float64(f.Waiting.Still), true },
	"gpus_in_use":              func(f *shadow.Figures) (float64, bool) { return f.InUse, true },
	"allocated_ratio":          func(f *shadow.Figures) (float64, bool) { return f.Allocated / 100, true },
	"fragmented_ratio":         func(f *shadow.Figures) (float64, bool) { return f.Fragmented / 100, true },
	"partial_gang_gpu_seconds": func(f *shadow.Figures) (float64, bool) { return float64(f.PartialGPUSeconds), true },
	"slowdown_mean":            func(f *shadow.Figures) (float64, bool) { return f.Slowdown.Mean, f.Slowdown.KnownPercent > 0 },
}

// Register makes the program serve the metrics of the reports of a source.
func Register(s *Source) error { return legacyregistry.CustomRegister(newCollector(s)) }

// collector tells the last report.
type collector struct {
	metrics.BaseStableCollector
	source *Source
	descs  []*metrics.Desc // of the families
}

func newCollector(s *Source) *collector {
	c := &collector{source: s}
	for _, f := range families.All() {
		c.descs = append(c.descs, metrics.NewDesc(f.Name, f.Help, f.Labels, nil, metrics.ALPHA, ""))
	}
	return c
}

// DescribeWithStability lists the metrics.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// CollectWithStability writes the metrics where there is a report.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	r, err := c.source.Report()
	if err != nil {
		return // the report says why when somebody asks for it
	}
	for i, f := range families.All() {
		if len(f.Labels) == 0 {
			ch <- metrics.NewLazyConstMetric(c.descs[i], metrics.GaugeValue, float64(len(r.Unknown)))
			continue
		}
		of := values[f.Name[len(families.Prefix):]]
		for name, figures := range map[string]*shadow.Figures{"other": &r.Other, "tandem": &r.Tandem} {
			if v, some := of(figures); some {
				ch <- metrics.NewLazyConstMetric(c.descs[i], metrics.GaugeValue, v, name)
			}
		}
	}
}
