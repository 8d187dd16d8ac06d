package proposal

import (
	"fmt"
	"strconv"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// FleetSizes are the sizes that an inference fleet would have at another rate.
type FleetSizes struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Demand is how many requests a second the fleet is sized for now, Asked how many in the question, and Capacity what it would serve of those.
	Demand   float64 `json:"demand"`
	Asked    float64 `json:"asked"`
	Capacity float64 `json:"capacity"`
	// Variants in the order of the fleet.
	Variants []VariantSize `json:"variants"`
}

// VariantSize is how many replicas a variant should have now, and would have.
type VariantSize struct {
	Name  string `json:"name"`
	Now   int    `json:"now"`
	Would int    `json:"would"`
}

// Fleet returns the sizes that a fleet would have at its present rate times a factor: by the capacities that its controller has learned, and by the
// search that its controller uses for fleets without classes. The sizes are those at which the fleet would come to rest. A variant whose capacity is
// unknown keeps its size, since it has no replica that serves. The error says which fleets the command cannot tell of.
func Fleet(f *v1alpha1.InferenceFleet, factor float64) (*FleetSizes, error) {
	switch held := f.Annotations[v1alpha1.AnnotationSize]; {
	case len(f.Spec.Classes) > 0:
		return nil, fmt.Errorf("fleet %s/%s has classes of requests: this command knows the sizes of fleets without classes only", f.Namespace, f.Name)
	case held != "":
		return nil, fmt.Errorf("fleet %s/%s has the annotation %s=%.100q, which holds sizes: remove it, or ask about a copy without it", f.Namespace, f.Name, v1alpha1.AnnotationSize, held)
	}
	demand, err := strconv.ParseFloat(f.Status.Demand, 64)
	if err != nil {
		return nil, fmt.Errorf("fleet %s/%s: its status has no demand, since it is unknown how many requests arrive: kubectl describe inferencefleet %s says why",
			f.Namespace, f.Name, f.Name)
	}
	now := make(map[string]*v1alpha1.FleetVariantStatus, len(f.Status.Variants))
	for i := range f.Status.Variants {
		now[f.Status.Variants[i].Name] = &f.Status.Variants[i]
	}
	out := &FleetSizes{Namespace: f.Namespace, Name: f.Name, Demand: demand, Asked: demand * factor}
	options := make([]traffic.Option, len(f.Spec.Variants))
	for i := range options {
		v := &f.Spec.Variants[i]
		s := now[v.Name]
		if s == nil {
			return nil, fmt.Errorf("fleet %s/%s: its status does not have variant %s yet; try again in a minute", f.Namespace, f.Name, v.Name)
		}
		o := traffic.Option{Cost: v.Cost, Least: int(v.MinReplicas), Most: int(v.MaxReplicas)}
		if o.Cost == 0 {
			o.Cost = max(1, int64(v.Slots))
		}
		if o.Capacity, _ = strconv.ParseFloat(s.Capacity, 64); o.Capacity <= 0 { // empty is unknown
			o.Least, o.Most = int(s.Replicas), int(s.Replicas)
		}
		options[i] = o
		out.Variants = append(out.Variants, VariantSize{Name: v.Name, Now: int(s.Replicas)})
	}
	choice := traffic.Cheapest(options, out.Asked)
	out.Capacity = choice.Capacity
	for i, n := range choice.Replicas {
		out.Variants[i].Would = n
	}
	return out, nil
}
