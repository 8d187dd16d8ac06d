package experiment_test

import (
	"testing"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/evaluation/results"
)

// TestShapes: the regret of a shape is that against its best policy, over the seeds; sums are over the shapes of a sort.
func TestShapes(t *testing.T) {
	x := experiment.Shapes{Numbers: []int{10, 12, 11}, Policies: []string{"spread", "bestfit"}, Seeds: []int64{0, 1}}
	out, err := x.Run()
	if err != nil {
		t.Fatal(err)
	}
	spread, bestfit := out.Results[0], out.Results[1]
	if spread.Policy != "spread" || bestfit.Policy != "bestfit" || len(out.Shapes) != 3 {
		t.Fatalf("results %+v", out)
	}
	worse := func(i int) float64 { return out.Shapes[i].Allocated["bestfit"] - out.Shapes[i].Allocated["spread"] }
	for i, f := range out.Shapes[:2] {
		if f.AtMost < f.Allocated["bestfit"] || f.AtMost > 100 || f.Gap < 0 || f.Gap > 5 {
			t.Errorf("shape %d: at most %v with a gap of %v, bestfit allocates %v", i, f.AtMost, f.Gap, f.Allocated["bestfit"])
		}
	}
	if worse(0) <= 1 || worse(1) <= .1 {
		t.Fatalf("spread fills as well as bestfit: %+v", out.Shapes)
	}
	if got, want := spread.Fills.Mean, (worse(0)+worse(1))/2; got < want-.001 || got > want+.001 {
		t.Errorf("mean regret %v, want %v", got, want)
	}
	if got, want := spread.Fills.Worst, max(worse(0), worse(1)); got < want-.001 || got > want+.001 {
		t.Errorf("worst regret %v, want %v", got, want)
	}
	if *bestfit.Fills != (results.Regret{WorstShape: 10, NearPercent: 100}) || spread.Fills.NearPercent != 0 {
		t.Errorf("bestfit %+v, spread %+v", *bestfit.Fills, *spread.Fills)
	}
	flow := out.Shapes[2].JCT
	if got, want := spread.Flows.Mean, 100*(flow["spread"]/min(flow["spread"], flow["bestfit"])-1); got < want-.001 || got > want+.001 {
		t.Errorf("mean regret of flows %v, want %v", got, want)
	}
}

func TestShapesOfNothing(t *testing.T) {
	if _, err := (&experiment.Shapes{Numbers: []int{0}, Policies: []string{"fgd"}}).Run(); err == nil || err.Error() != "play shapes: no shape, policy or seed" {
		t.Errorf("error %v", err)
	}
}
