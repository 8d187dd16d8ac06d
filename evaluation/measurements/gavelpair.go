package measurements

import (
	"fmt"
	"strings"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// gavelNoFit is the status of two jobs of Gavel that did not run side by side: out of memory, or not measured.
const gavelNoFit = "oom_or_fail"

// gavelPair reads a row of Gavel's pairs: the rate of each job alone, at its first appearance, and the two together.
func gavelPair(t *csvtable.Table, all *File) {
	set, model := t.TextOr("file"), t.Text("gpu")
	for _, side := range []string{"a", "b"} {
		r := Rate{Line: t.Line(), Set: set, Model: model, App: t.Text("job_" + side), Workers: 1}
		r.Together = t.Decimal("iso_"+side, maxRate, stepsPerSecond)
		r.Spread = r.Together
		key := fmt.Sprintf("%q %q %q", r.Set, r.Model, r.App)
		first, known := t.Index(key, len(all.Rates))
		if !known {
			all.Rates = append(all.Rates, r)
		} else if before := &all.Rates[first]; before.Together != r.Together {
			t.Fail("iso_"+side, fmt.Sprintf("%v as in line %d: a job by itself has one rate", before.Together, before.Line))
		}
	}
	if t.Has("packed_a") && t.Has("packed_b") {
		all.CoRuns = append(all.CoRuns, gavelCoRun(t, set, model))
	}
}

// gavelCoRun takes a rate of 0, alone or together, for two jobs that do not fit.
func gavelCoRun(t *csvtable.Table, set, model string) CoRun {
	a, b := gavelRunner(t, "a"), gavelRunner(t, "b")
	c := CoRun{Line: t.Line(), Set: set, GPU: model, Fits: a.Speed > 0 && b.Speed > 0, A: a, B: b}
	if t.TextOr("status") == gavelNoFit {
		c.Fits = false
	}
	if !c.Fits {
		c.A.Speed, c.B.Speed = 0, 0
	}
	return c
}

func gavelRunner(t *csvtable.Table, side string) CoRunner {
	name := t.Text("job_" + side)
	model, _, _ := strings.Cut(name, " (batch size ")
	r := CoRunner{Workload: name, Family: model, Share: vgpu.WholeGPU}
	alone, together := t.Decimal("iso_"+side, maxRate, stepsPerSecond), t.Decimal("packed_"+side, maxRate, stepsPerSecond)
	if alone > 0 && together > 0 {
		r.Speed = speed(t, "packed_"+side, "iso_"+side, together, alone)
	}
	return r
}
