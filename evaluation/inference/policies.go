package inference

import (
	"math"
	"time"

	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// Tandem sizes as the controller does.
type Tandem struct {
	Config traffic.Config
	memory traffic.Memory
	Plan   *traffic.Plan
}

// Decide calls traffic.Decide.
func (t *Tandem) Decide(f *traffic.Fleet, seen traffic.Seen, _ []float64) (replicas []int, parts []float64) {
	plan, memory, err := traffic.Decide(f, seen, &t.memory, t.Config)
	if err != nil {
		panic(err)
	}
	t.memory, t.Plan = *memory, plan
	for _, s := range plan.Variants {
		replicas, parts = append(replicas, s.Replicas), append(parts, s.Part)
	}
	return replicas, parts
}

// HPA sizes the one variant of a fleet as Kubernetes' HorizontalPodAutoscaler does: replicas × measured ÷ target, rounded up, but for
// changes below a tenth; the highest wish of five minutes counts.
type HPA struct {
	// Utilisation or Rate for each replica is the target; the other one is 0.
	Utilisation, Rate float64
	wishes            []wish
}

type wish struct {
	at time.Time
	n  int
}

const (
	tolerance     = .1
	stabilisation = 5 * time.Minute
)

// Decide follows the target.
func (h *HPA) Decide(f *traffic.Fleet, seen traffic.Seen, busy []float64) (replicas []int, parts []float64) {
	v := &f.Variants[0]
	ratio := busy[0] / h.Utilisation
	if h.Rate > 0 {
		ratio = seen.Rate / (h.Rate * float64(max(1, v.Ready)))
	}
	n := v.Wanted
	if !math.IsNaN(ratio) && v.Ready > 0 && math.Abs(ratio-1) > tolerance {
		n = int(math.Ceil(ratio*float64(v.Ready) - 1e-9))
		if ratio > 1 {
			n = max(n, v.Wanted)
		}
	}
	n = min(max(n, v.Least, 1), v.Most)
	h.wishes = append(h.wishes, wish{seen.At, n})
	for seen.At.Sub(h.wishes[0].at) > stabilisation {
		h.wishes = h.wishes[1:]
	}
	for _, w := range h.wishes {
		if n < v.Wanted {
			n = max(n, min(w.n, v.Wanted))
		}
	}
	return []int{n}, []float64{1}
}

// Static keeps a number of replicas.
type Static struct{ Replicas []int }

// Decide changes nothing.
func (s *Static) Decide(f *traffic.Fleet, _ traffic.Seen, _ []float64) (replicas []int, parts []float64) {
	rate := 0.0
	for i := range f.Variants {
		rate += float64(s.Replicas[i]) * f.Variants[i].Replica.Rate
	}
	for i := range f.Variants {
		parts = append(parts, float64(s.Replicas[i])*f.Variants[i].Replica.Rate/rate)
	}
	return s.Replicas, parts
}
