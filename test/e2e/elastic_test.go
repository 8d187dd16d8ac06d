package e2e

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// elasticTraining: a training with parameter servers goes on while its workers become 6 of 3, since GPUs are idle, and 2 of 6,
// for a gang that waits, and while its parameter servers become 2 of 1 and 1 of 2. No step is lost, and no program begins anew.
// The controller goes by the rates that it has learned.
func elasticTraining(n *Tenant) {
	n.createSizes("other", slotsPerGPU, 4)
	n.running("other-0", "other-1")
	n.createTrainer()
	three := n.workers(trainerJob, 3)
	n.trainsWith(3, 1)
	n.scaleServers(2)
	n.trainsWith(3, 2)
	n.reportsWhatItDoes(three)

	begin := time.Now()
	n.delete("other-0", "other-1")
	six := n.workers(trainerJob, 6)
	n.t.Logf("grew to 6 workers %.1f s after there was room", time.Since(begin).Seconds())
	n.trainsWith(6, 2)
	n.reportsWhatItDoes(six)

	begin = time.Now()
	n.running(n.crowd("crowd", 16)...)
	n.t.Logf("the gang ran %.1f s after it was sent", time.Since(begin).Seconds())
	two := n.workers(trainerJob, 2)
	n.trainsWith(2, 2)
	n.scaleServers(1)
	n.wholeTraining(n.trainsWith(2, 1))
	curve := n.learned(trainerJob, 2, 3, 6)
	n.t.Logf("learned: %+v", curve.Points)
	n.goesBy(trainerJob, 6, 2, curve)
	n.noFailures(trainerJob)
	n.sameContainers(three, six[:3])
	n.sameContainers(six[:2], two)
}

// wholeTraining checks that each step was done once, one after the other, that no member was lost, and that the loss fell.
func (n *Tenant) wholeTraining(steps []step) {
	n.t.Helper()
	var done []step
	for _, s := range steps {
		switch s.Event {
		case "":
			done = append(done, s)
			if s.Step != len(done) {
				n.t.Errorf("the %d. step is number %d", len(done), s.Step)
			}
		case "worker-lost", "server-lost":
			n.t.Errorf("%s: %s at step %d", s.Event, s.Name, s.Step)
		}
	}
	first, last := done[0], done[len(done)-1]
	n.t.Logf("%d steps, each once; the loss fell from %.3f to %.3f", len(done), first.Loss, last.Loss)
	if last.Loss > .8*first.Loss {
		n.t.Errorf("the loss went from %.3f to %.3f, want a fall by a fifth at least", first.Loss, last.Loss)
	}
}

var expectedRate = regexp.MustCompile(`expected rate ([+-]\d+) %`)

// goesBy checks that the controller expected of a change what the learned curve says. The status holds the rates of the larger
// size as they were when the job left it; the smaller size may have been learned since, so the curve without it will do too.
// The numbers are those of the machine, so they may be near those of a job of which nothing is known; the log says so then.
func (n *Tenant) goesBy(job string, from, to int, curve elastic.Curve) {
	n.t.Helper()
	said := n.said(job, fmt.Sprintf("shrinks from %d to %d members", from, to))
	n.t.Logf("event: %s", said)
	match := expectedRate.FindStringSubmatch(said)
	if match == nil {
		n.t.Fatalf("the event %q expects no rate", said)
	}
	got, err := strconv.ParseFloat(match[1], 64)
	n.must(err)
	without := curve
	without.Points = slices.DeleteFunc(slices.Clone(curve.Points), func(p elastic.Point) bool { return p.Workers == to })
	change := func(c elastic.Curve) float64 { return 100 * (c.Rate(to, 1)/c.Rate(from, 1) - 1) }
	n.t.Logf("the learned curve says %.1f %%, without %d members %.1f %%; nothing learned would say %.1f %%",
		change(curve), to, change(without), change(elastic.Curve{}))
	// Three percent: the rates have three digits, and reports come in until the members have left.
	if math.Abs(got-change(curve)) > 3 && math.Abs(got-change(without)) > 3 {
		n.t.Errorf("the controller expected %+.0f %%, the learned curve says %+.1f %%, without %d members %+.1f %%", got, change(curve), to, change(without))
	}
}
