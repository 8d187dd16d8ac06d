package workloads

import (
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// Scaling is how the speed of a gang follows the number of its members, as a user declared it.
type Scaling struct {
	// Points of its curve without parameter servers, nil without a declaration.
	Points []elastic.Point
	// Combinations are the rates with parameter servers: of those with one number of members and of servers the least,
	// whatever their hosts. It is nil without a declaration.
	Combinations []elastic.CombinationRate
	// ResizeTime is the time without work after a change, negative without a declaration.
	ResizeTime time.Duration
}

// maxResizeTime is the longest legal time without work after a change of size.
const maxResizeTime = 24 * time.Hour

// Scaling returns what is declared of the workload. The caller must not change the points.
func (w *Workload) Scaling() Scaling { return w.scaling }

// readScaling reads the rates by the number of members.
func (w *Workload) readScaling(s *v1alpha1.ProfileScaling) {
	w.scaling.ResizeTime = -1
	if s == nil {
		return
	}
	if t := s.ResizeTime; t != nil {
		if t.Duration < 0 || t.Duration > maxResizeTime {
			w.malformed("spec.scaling.resizeTime", t.Duration, "it must be from 0s to 24h")
		} else {
			w.scaling.ResizeTime = t.Duration
		}
	}
	for i := range s.Rates {
		r, path := &s.Rates[i], fmt.Sprintf("spec.scaling.rates[%d]", i)
		p := elastic.Point{Workers: int(r.Workers), Hosts: int(r.Hosts), Rate: r.Rate.AsApproximateFloat64()}
		twice := slices.ContainsFunc(s.Rates[:i], func(o v1alpha1.ScalingRate) bool {
			return o.Workers == r.Workers && o.Hosts == r.Hosts && o.Servers == r.Servers
		})
		switch {
		case p.Workers < 1 || p.Workers > membership.MaxMinMembers || twice:
			w.malformed(path+".workers", p.Workers, "it must be a number from 1 to 10000, and no other entry may have it with these hosts and servers")
		case p.Hosts < 0 || p.Hosts > p.Workers:
			w.malformed(path+".hosts", p.Hosts, "it must be a number from 1 to the number of workers, or 0 for any")
		case !(p.Rate > 0 && p.Rate <= config.MaxRate):
			w.malformed(path+".rate", kube.ShownQuantity(r.Rate), "it must be a decimal above 0, at most 1T")
		case r.Servers < 0 || r.Servers > elastic.MaxServers:
			w.malformed(path+".servers", r.Servers, "it must be a number from 1 to 256, or 0 for a gang without parameter servers")
		case r.Servers > 0:
			at := elastic.Combination{Workers: p.Workers, Servers: int(r.Servers)}
			w.scaling.Combinations = append(w.scaling.Combinations, elastic.CombinationRate{Combination: at, Rate: p.Rate})
		default:
			w.scaling.Points = append(w.scaling.Points, p)
		}
	}
	if w.scaling.Combinations != nil {
		w.scaling.Combinations = elastic.LeastRates(w.scaling.Combinations)
	}
}
