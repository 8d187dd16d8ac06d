package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestSizeWithoutPlaces: members that lost their places an hour after the last change have two minutes to find others. Then the size goes back to
// what runs, and is not tried for five minutes, as in a cluster. The simulator took it back at once, and tried it again at the next decision.
func TestSizeWithoutPlaces(t *testing.T) {
	e := &engine{
		setup:   &Setup{Elastic: ElasticConfig{}.withDefaults(), Jobs: make([]Job, 4)},
		history: &History{Outcomes: make([]Outcome, 4), Gangs: make([]GangOutcome, 1)}, leaving: map[int]bool{},
	}
	g := &group{gang: &Gang{Name: "train"}, jobs: []int{0, 1, 2, 3}, sizing: newSizing(&Elastic{Sizes: []int{2, 4}})}
	e.joinElastic(g)
	for job := range g.jobs {
		e.history.Outcomes[job].State = Running
	}
	g.sizing.target = 4
	decide := func(at time.Duration, why elastic.Why, want int, offer ...int) {
		t.Helper()
		e.sample.At = at
		e.look(g)
		if j := e.elasticJob(g); !slices.Equal(j.Sizes, offer) {
			t.Errorf("after %v the sizes %v may be chosen, want %v", at, j.Sizes, offer)
		}
		must.OK(t, e.follow(g, &elastic.Target{Workers: offer[len(offer)-1], Why: why}))
		if g.sizing.target != want {
			t.Errorf("after %v the target is %d, want %d", at, g.sizing.target, want)
		}
	}
	decide(time.Hour, elastic.AtMost, 4, 2, 4)
	e.history.Outcomes[2].State, e.history.Outcomes[3].State, g.sizing.short = Held, Held, true
	for _, after := range []time.Duration{10 * time.Second, 2 * time.Minute} {
		decide(time.Hour+after, elastic.Settling, 4, 2, 4)
	}
	decide(time.Hour+130*time.Second, elastic.Steady, 2, 2, 4)
	decide(time.Hour+140*time.Second, elastic.AtMost, 2, 2)
	decide(time.Hour+430*time.Second, elastic.Idle, 4, 2, 4)
}
