package settle

import (
	"math"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/results"
)

// Settling plays the worlds.
type Settling struct {
	// Loads are how long replicas load, and Noises the deviations of the logarithm of the measured latency. Each world is played with each of both.
	Loads  []time.Duration
	Noises []float64
	Span   time.Duration
	Seed   uint64
	// Progress is called after each run; it may be nil.
	Progress func(done, total int)
}

// Run plays all runs.
func (s *Settling) Run() results.Settling {
	var out results.Settling
	total := len(Worlds()) * len(s.Loads) * len(s.Noises)
	for _, w := range Worlds() {
		for _, load := range s.Loads {
			for _, noise := range s.Noises {
				w.Load, w.Noise, w.Seed = load, noise, s.Seed
				out.Runs = append(out.Runs, w.play(s.Span.Seconds()))
				if s.Progress != nil {
					s.Progress(len(out.Runs), total)
				}
			}
		}
	}
	return out
}

// play begins with one replica more than is right.
func (w World) play(span float64) results.Settled {
	p := New(w, 0)
	p.resize(p.Right(w.Rate(0), 1)+1, 0)
	p.Run(span)
	most := 0.0
	for at := 0.0; at < span; at += 60 {
		most = max(most, float64(p.Right(w.Rate(at), valueAt(w.Slower, at, 1))))
	}
	rest := event
	for _, c := range p.Since(event) {
		if c.At-rest > hour {
			break
		}
		rest = c.At
	}
	return results.Settled{
		World: w.Name, LoadSeconds: w.Load.Seconds(), Noise: w.Noise, Right: int(most), Most: p.Most(hour), RestMinutes: tenth((rest - event) / 60),
		ChangesPerDay: tenth(float64(len(p.Since(hour))) * 24 * hour / (span - hour)),
		BrokenPercent: tenth(100 * float64(p.Broken) / max(1, float64(p.Windows))), PartOfConstant: hundredth(p.ReplicaSeconds / (most * span)),
	}
}

func tenth(x float64) float64     { return math.Round(10*x) / 10 }
func hundredth(x float64) float64 { return math.Round(100*x) / 100 }
