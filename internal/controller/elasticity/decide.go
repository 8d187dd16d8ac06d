package elasticity

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// decision is what a gang should have, and why.
type decision struct {
	*elasticGang
	workers         int
	reason, message string
	// event says what changes, "" for nothing.
	event string
}

// decide asks package elastic for the size of each gang. Gangs with a problem keep their targets. The decisions are in
// the order in which they should be carried out: first the gangs that shrink.
func (p *pass) decide(c *snapshot.Cluster, gangs []*elasticGang) ([]decision, error) {
	jobs := make([]elastic.Job, 0, len(gangs))
	for _, g := range gangs {
		if g.problem != "" || g.missing != "" && !g.comesBack() {
			continue
		}
		profile := p.profiles.of(g.all[0])
		j, err := g.job(c, p.memory[g.Ref], profile, p.now)
		if err == nil {
			err = p.tune(g, &j, profile)
		}
		if err != nil {
			g.problem = err.Error()
			continue
		}
		m := p.memory[g.Ref]
		j.Remaining = p.lengths.remaining(g.all[0], g.MinCount, elastic.Had{Served: m.served, Projected: m.progress.Projected()})
		g.index = len(jobs)
		jobs = append(jobs, j)
	}
	jobs = append(jobs, waiting(c, p.objects.Pods, p.gangs, p.scheduler, p.lengths)...)
	plan, err := elastic.Workers(&c.Cluster, jobs, p.reserved(c), p.now.Unix(), p.config)
	if err != nil {
		return nil, err
	}
	decisions := make([]decision, 0, len(gangs))
	for _, g := range gangs {
		d := decision{elasticGang: g, workers: g.workers(), reason: string(elastic.Invalid), message: g.problem}
		switch {
		case g.index >= 0:
			d = p.follow(g, &plan.Targets[g.index])
		case g.problem == "":
			d.reason, d.message = reasonMissing, g.missing
		}
		d.countFirstGone(p.memory[g.Ref], p.now, p.admitWithin)
		decisions = append(decisions, d)
	}
	slices.SortStableFunc(decisions, func(a, b decision) int { return orderOf(plan.Order, a.index) - orderOf(plan.Order, b.index) })
	return decisions, nil
}

// orderOf returns the place of a job in the order of changes; those that do not change come last.
func orderOf(order []int, job int) int {
	if at := slices.Index(order, job); at >= 0 && job >= 0 {
		return at
	}
	return len(order)
}

// follow makes a decision of what package elastic says of a gang.
func (p *pass) follow(g *elasticGang, t *elastic.Target) decision {
	before, m, stuck := g.workers(), p.memory[g.Ref], ""
	if m.wrote == nil { // else sizeFields.unfollowed decides: the number goes back, and no smaller one is tried
		stuck = g.stuck(m.fullAt, p.now, p.admitWithin)
	}
	f := elastic.Follower{Sizes: g.Sizes, Size: before, Running: len(g.running), Stuck: stuck != ""}
	workers, refused := f.Follow(t)
	d := decision{elasticGang: g, reason: string(t.Why), message: because(t)}
	d.workers = workers
	switch {
	case !g.resizable.yes:
		d.workers, d.reason, d.message = g.kept(), reasonFixed, g.resizable.message
	case refused:
		d.reason, d.message = reasonNotAdmitted, stuck
		m.refuse(before, stuck, p.now)
	case t.Why == elastic.AtMost:
		d.whyNotMore(m, p.now)
	}
	if g.target != nil && d.workers != before && len(g.running) > 0 {
		if d.event = changed(before, d.workers, t); d.reason == reasonNotAdmitted || d.reason == reasonFixed {
			d.event = changedFor(before, d.workers, d.message)
		}
	}
	d.settle()
	return d
}

// countFirstGone makes the target so large that it counts as many members as must run, where the first ones have been gone for a while: they
// have ended for good, and the scheduler would hold the others back for ever.
func (d *decision) countFirstGone(m *memory, now time.Time, within time.Duration) {
	reach := d.workers
	if d.resizable.owner == nil {
		reach = membership.Reach(d.workersOf(), d.workers, d.Sizes[0])
	}
	if reach == d.workers {
		m.firstGone = time.Time{}
		return
	}
	if m.firstGone.IsZero() {
		m.firstGone = now
	}
	if at, _ := slices.BinarySearch(d.Sizes, reach); at < len(d.Sizes) && now.Sub(m.firstGone) > within {
		d.workers = d.Sizes[at]
		d.message += "; its first members are gone and do not come back, so the number counts them, for others to run"
	}
}

// whyNotMore says what holds a gang below its largest legal size, where it has the largest one that package elastic was asked about.
func (d *decision) whyNotMore(m *memory, now time.Time) {
	if r := &m.refusal; r.holds(now) {
		d.reason = reasonNotAdmitted
		d.message = fmt.Sprintf("it is not asked to have %d members or more before %s, since %s", r.size, r.until.UTC().Format("15:04 MST"), r.why)
	} else if most := d.Sizes[len(d.Sizes)-1]; d.workers < most {
		d.message = fmt.Sprintf("it has as many members as its owner makes, and %d would be legal", most)
	}
}

// stuck says why a gang has not got the members of its target for too long, "" where it has, or where that may still come. full is
// when it last had them all: a member that is made anew needs its time.
func (g *elasticGang) stuck(full, now time.Time, within time.Duration) string {
	if g.target == nil || g.target.Status.Since == nil || now.Sub(g.target.Status.Since.Time) <= within || now.Sub(full) <= within ||
		len(g.running) >= int(g.target.Spec.Workers) || len(g.running) < g.Sizes[0] {
		return ""
	}
	if s := g.target.Status.Scheduler; s != nil && s.Message != "" && s.Workers == g.target.Spec.Workers {
		return "the scheduler found no places for more members: " + s.Message
	}
	if o := g.resizable.owner; o != nil && o.Members() >= int(g.target.Spec.Workers) && len(g.all)+len(g.ended) < int(g.target.Spec.Workers) {
		return fmt.Sprintf("%s should have %d members, and its controller has made %d", o, o.Members(), len(g.all))
	}
	return ""
}

// spec returns the spec of the target for a decision.
func (d *decision) spec() v1alpha1.ElasticTargetSpec {
	return v1alpha1.ElasticTargetSpec{
		Source: string(d.Source), Min: int32(d.Sizes[0]), Max: int32(d.Sizes[len(d.Sizes)-1]), Workers: int32(d.workers),
	}
}

// maxMoves bounds the times of changes in a status: the schema allows no more.
const maxMoves = 16

// status returns the status of the target for a decision, without the part of the scheduler.
func (d *decision) status(m *memory, now time.Time) v1alpha1.ElasticTargetStatus {
	var before v1alpha1.ElasticTargetStatus
	if d.target != nil {
		before = *d.target.Status.DeepCopy()
	}
	s := v1alpha1.ElasticTargetStatus{
		Workers: int32(len(d.running)), Reason: d.reason, Message: d.message, Since: before.Since, Moves: before.Moves,
		Scheduler: before.Scheduler, Conditions: before.Conditions, Resizes: int32(m.learner.Pauses),
	}
	stamp := metav1.NewTime(now.Truncate(time.Second))
	if at := metav1.NewTime(m.moved.Truncate(time.Second)); !m.moved.IsZero() {
		s.Since = &at
	} else if s.Since == nil {
		s.Since = &stamp
	}
	if !m.moved.IsZero() && d.target != nil && len(d.running) > 0 {
		s.Moves = append(s.Moves, *s.Since)
		s.Moves = s.Moves[max(0, len(s.Moves)-maxMoves):]
	}
	if m.learner.Pauses > 0 {
		s.ResizeSeconds = new(int32(min(m.learner.Pause+.5, 1<<30)))
	}
	s.Rates = ratesIn(&m.learner)
	setCondition(&s, v1alpha1.ConditionResizable, d.resizable.yes, d.resizable.reason, d.resizable.message, stamp)
	meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionResizable).ObservedGeneration = d.resizable.generation
	admitted, why := d.admitted()
	if !admitted && m.budget != "" {
		why += "; " + m.budget
	}
	setCondition(&s, v1alpha1.ConditionAdmitted, admitted, map[bool]string{true: "AsManyAsTarget", false: "NotAsTarget"}[admitted], why, stamp)
	d.tuningStatus(&s, stamp)
	return s
}
