package fleets

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// isReported reports whether the rates of a fleet's variants are what their pods report of themselves.
func (v *visit) isReported() bool {
	m := &v.object.Spec.Metrics
	return m.Preset == presetReported && (m.Queries == nil || m.Queries.VariantRate == "")
}

// readReports reads what pods report to the agents of their nodes, once in a pass.
func (p *pass) readReports(ctx context.Context) error {
	if p.reports != nil {
		return nil
	}
	var nodes v1alpha1.GPUNodeList
	if err := p.options.Client.List(ctx, &nodes); err != nil {
		return fmt.Errorf("read the GPUNodes: %w", err)
	}
	p.reports = map[types.UID]float64{}
	for i := range nodes.Items {
		for k := range nodes.Items[i].Status.Devices {
			for _, t := range nodes.Items[i].Status.Devices[k].Tenants {
				if t.Rate != nil { // a pod on several devices tells the same of each
					p.reports[types.UID(t.UID)] = t.Rate.AsApproximateFloat64()
				}
			}
		}
	}
	return nil
}

// sumReports makes the rate of a variant: the sum of what its ready replicas report. One that is new counts nothing until it reports. The rate
// is unknown where an older one reports none, and where none reports.
func (v *visit) sumReports(i int) {
	name := v.fleet.Variants[i].Name
	sum, known, silent := 0., false, []string(nil)
	for endpoint := range v.memory.readySince {
		of, pod, _ := strings.Cut(endpoint, "/")
		uid, ready := v.pods[endpoint]
		if of != name || !ready {
			continue
		}
		rate, reports := v.reports[uid]
		switch {
		case reports:
			sum, known = sum+rate, true
		case !v.memory.readySince[endpoint].After(v.now.Add(-2 * window(v.object))):
			silent = append(silent, strings.TrimPrefix(pod, string(uid)))
		}
	}
	m := &v.measured.variants[i]
	switch {
	case len(silent) > 0:
		m.rate, m.problem = math.NaN(), &refusal{reasonNotReported, fmt.Sprintf("pod %s reports no rate, or its node has no agent: see the guide for interference", slices.Min(silent))}
	case known:
		m.rate, m.problem = sum, nil
	default:
		m.rate, m.problem = math.NaN(), &refusal{reasonNoSample, "no ready pod has reported a rate yet"}
	}
}
