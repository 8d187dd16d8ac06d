package workloads

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/internal/spelling"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// mostNamed bounds how many curves and models a text names: it becomes part of an event.
const mostNamed = 4

// Unusable says which declared curves count for nothing on the devices offered, and what is legal in their place: curves that fall or are not
// legal otherwise, and those of models that none of the devices has. The result is "" where all count. A nil Workload has no curves.
func (w *Workload) Unusable(offers []vgpu.Offer) string {
	if w == nil {
		return ""
	}
	texts := make([]string, 0, len(w.Malformed))
	for _, text := range w.Malformed {
		if strings.HasPrefix(text, "spec.throughputs") {
			texts = append(texts, text)
		}
	}
	have := make([]string, 0, len(offers))
	for i := range offers {
		have = append(have, offers[i].Device.Model)
	}
	slices.Sort(have)
	have = slices.Compact(have)
	var foreign []string
	for _, t := range slices.Concat(w.points.rates, w.points.latencies) {
		if !slices.Contains(have, t.Model) {
			foreign = append(foreign, t.Model)
		}
	}
	slices.Sort(foreign)
	for _, model := range slices.Compact(foreign) {
		text := fmt.Sprintf("spec.throughputs: no GPU of the cluster has the model %q", model)
		if near, some := spelling.Nearest(model, have); some {
			text += fmt.Sprintf(", did you mean %q", near)
		} else if len(have) > 0 {
			text += ", those of the cluster are " + first(have, ", ")
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return ""
	}
	return "these curves of WorkloadProfile " + w.Name + " do not count: " + first(texts, "; ")
}

// first joins the first texts of a list.
func first(list []string, by string) string {
	if len(list) <= mostNamed {
		return strings.Join(list, by)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:mostNamed], by), len(list)-mostNamed)
}
