package traces

import (
	"fmt"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// gavelNoFit is the status of two jobs of Gavel that did not run side by side: out of memory, or not measured.
const gavelNoFit = "oom_or_fail"

// gavelPair reads a row of Gavel's pairs: the rate of each job alone, the first time that it is met, and the two together.
func gavelPair(t *table, all *Trace) {
	set, model := t.textOr("file"), t.text("gpu")
	for _, side := range []string{"a", "b"} {
		r := Rate{Line: t.line(), Set: set, Model: model, App: t.text("job_" + side), Workers: 1}
		r.Together = t.decimal("iso_"+side, maxRate, stepsPerSecond)
		r.Spread = r.Together
		key := fmt.Sprintf("%q %q %q", r.Set, r.Model, r.App)
		first, known := t.seen[key]
		if !known {
			t.seen[key] = len(all.Rates)
			all.Rates = append(all.Rates, r)
		} else if before := &all.Rates[first]; before.Together != r.Together {
			t.fail("iso_"+side, fmt.Sprintf("%v as in line %d: a job by itself has one rate", before.Together, before.Line))
		}
	}
	if t.has("packed_a") && t.has("packed_b") {
		all.CoRuns = append(all.CoRuns, t.gavelCoRun(set, model))
	}
}

// gavelCoRun takes a rate of 0, alone or together, for two jobs that do not fit.
func (t *table) gavelCoRun(set, model string) CoRun {
	a, b := t.gavelRunner("a"), t.gavelRunner("b")
	c := CoRun{Line: t.line(), Set: set, GPU: model, Fits: a.Speed > 0 && b.Speed > 0, A: a, B: b}
	if t.textOr("status") == gavelNoFit {
		c.Fits = false
	}
	if !c.Fits {
		c.A.Speed, c.B.Speed = 0, 0
	}
	return c
}

func (t *table) gavelRunner(side string) CoRunner {
	name := t.text("job_" + side)
	model, _, _ := strings.Cut(name, " (batch size ")
	r := CoRunner{Workload: name, Family: model, Share: vgpu.WholeGPU}
	alone, together := t.decimal("iso_"+side, maxRate, stepsPerSecond), t.decimal("packed_"+side, maxRate, stepsPerSecond)
	if alone > 0 && together > 0 {
		r.Speed = t.speed("packed_"+side, "iso_"+side, together, alone)
	}
	return r
}
