package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/resize"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestSizeWithoutPlaces: members that lost their places an hour after the last change have two minutes to find others. Then the size goes back to
// what runs, and is not tried for five minutes, as in a cluster. The simulator took it back at once, and tried it again at the next decision.
func TestSizeWithoutPlaces(t *testing.T) {
	e, g := trainOf4(ElasticConfig{})
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

// trainOf4 returns a gang of two or four members, of which four run.
func trainOf4(c ElasticConfig) (*engine, *group) {
	e := &engine{
		setup:   &Setup{Elastic: c.withDefaults(), Jobs: make([]Job, 4)},
		history: &History{Outcomes: make([]Outcome, 4), Gangs: make([]GangOutcome, 1)}, leaving: map[int]bool{},
	}
	g := &group{gang: &Gang{Name: "train"}, jobs: []int{0, 1, 2, 3}, sizing: newSizing(&Elastic{Sizes: []int{2, 4}})}
	e.joinElastic(g)
	for job := range g.jobs {
		e.history.Outcomes[job].State = Running
	}
	g.sizing.target = 4
	return e, g
}

// TestNoticeEndsWithTheGang: members of a gang that was evicted as a whole while some had a notice, and that runs again, get a whole notice.
func TestNoticeEndsWithTheGang(t *testing.T) {
	e, g := trainOf4(ElasticConfig{Notice: 30 * time.Second})
	for _, at := range []time.Duration{time.Minute, 2 * time.Minute} { // without a whole notice the second one evicts members
		e.sample.At = at
		must.OK(t, e.follow(g, &elastic.Target{Workers: 2, Why: elastic.ForWaiting}))
		if got := g.sizing.state.Phases()[0]; got != resize.Leaving {
			t.Errorf("after %v the members are %s", at, got)
		}
		g.sizing.restart(at)
		g.sizing.target = 4
	}
}
