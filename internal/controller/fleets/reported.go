package fleets

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// isReported reports whether the rates of a fleet's variants are what their pods report of themselves.
func (v *visit) isReported() bool {
	m := &v.object.Spec.Metrics
	return m.Preset == presetReported && (m.Queries == nil || m.Queries.VariantRate == "")
}

// placed is a pod on a node. A node reports only pods that are on it, so that a false agent spoils only what runs there.
type placed struct {
	node string
	uid  types.UID
}

// reportsOf returns what nodes report of pods.
func reportsOf(nodes []v1alpha1.GPUNode) map[placed]float64 {
	reports := map[placed]float64{}
	for i := range nodes {
		for k := range nodes[i].Status.Devices {
			for _, t := range nodes[i].Status.Devices[k].Tenants {
				if t.Rate != nil { // a pod on several devices tells the same of each
					reports[placed{nodes[i].Name, types.UID(t.UID)}] = t.Rate.AsApproximateFloat64()
				}
			}
		}
	}
	return reports
}

// sumReports makes the rate of a variant: the sum of what its ready replicas report. One that is new counts nothing until it reports. The rate
// is unknown where an older one reports none, and where none reports.
func (v *visit) sumReports(i int) {
	name := v.fleet.Variants[i].Name
	sum, known, silent := 0., false, []string(nil)
	for endpoint := range v.memory.readySince {
		of, pod, _ := strings.Cut(endpoint, "/")
		at, ready := v.endpoints[endpoint]
		if of != name || !ready {
			continue
		}
		rate, reports := v.reports[at]
		switch {
		case reports:
			sum, known = sum+rate, true
		case !v.memory.readySince[endpoint].After(v.now.Add(-2 * window(v.object))):
			silent = append(silent, strings.TrimPrefix(pod, string(at.uid)))
		}
	}
	m := &v.measured.variants[i]
	switch {
	case len(silent) > 0:
		m.rate, m.problem = math.NaN(), &refusal{reasonNotReported, fmt.Sprintf("pod %s reports no rate, or its node has no agent: see the guide for interference", slices.Min(silent))}
	case known && !(sum >= 0 && sum <= traffic.MaxRate):
		m.rate, m.problem = math.NaN(), &refusal{reasonNotANumber, fmt.Sprintf("its pods report %g requests a second: a number from 0 to %g is needed", sum, float64(traffic.MaxRate))}
	case known:
		m.rate, m.problem = sum, nil
	default:
		m.rate, m.problem = math.NaN(), &refusal{reasonNoSample, "no ready pod has reported a rate yet"}
	}
}
