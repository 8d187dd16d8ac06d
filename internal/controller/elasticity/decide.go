package elasticity

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/controller/passes"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/resize"
)

// decision is what a gang should have, and why.
type decision struct {
	*elasticGang
	workers         int
	reason, message string
	// event says what changes, "" for nothing.
	event string
	// asks says that the API server has to be asked whether it would take the number.
	asks bool
}

// decide asks package elastic for the size of each gang. Gangs with a problem keep their targets. The decisions are in
// the order in which they should be carried out: first the gangs that shrink.
func (p *pass) decide(c *snapshot.Cluster, gangs []*elasticGang) ([]decision, error) {
	jobs := make([]elastic.Job, 0, len(gangs))
	for _, g := range gangs {
		if g.problem != "" || g.missing != "" && !g.comesBack() {
			continue
		}
		profile := p.profiles.Of(g.all[0])
		j, err := p.job(c, g, profile)
		if err == nil {
			err = p.tune(g, &j, profile)
		}
		if err != nil {
			g.problem = err.Error()
			continue
		}
		m := p.memory[g.Ref]
		j.Remaining = p.lengths.remaining(g.all[0], g.Sizes[0], elastic.Had{Served: m.served, Projected: m.progress.Projected()})
		g.index = len(jobs)
		jobs = append(jobs, j)
	}
	jobs = append(jobs, p.waiting(c)...)
	plan, err := elastic.Workers(&c.Cluster, jobs, p.reserved(c), p.now.Unix(), p.config)
	if err != nil {
		return nil, err
	}
	decisions := make([]decision, 0, len(gangs))
	for _, g := range gangs {
		var target *elastic.Target
		if g.index >= 0 {
			target = &plan.Targets[g.index]
		}
		decisions = append(decisions, p.follow(g, target))
	}
	decisions = passes.InTurn(decisions, func(d decision) string { return d.Namespace }) // what does not change is written in turns
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

// follow makes a decision of what package elastic says of a gang, nil where it was not asked.
func (p *pass) follow(g *elasticGang, t *elastic.Target) decision {
	d := decision{elasticGang: g}
	for _, e := range p.memory[g.Ref].size.Step(resize.Planned{View: g.view, Target: t}, p.now) {
		switch e := e.(type) {
		case resize.Ask:
			d.asks = true
		case resize.Set:
			d.set(&e, t)
		}
	}
	return d
}

// set puts the number of a gang into words.
func (d *decision) set(e *resize.Set, t *elastic.Target) {
	d.workers = e.Number
	switch most := d.Sizes[len(d.Sizes)-1]; {
	case e.Why == resize.NotPlanned && d.problem == "":
		d.reason, d.message = reasonMissing, d.missing
	case e.Why == resize.NotPlanned:
		d.reason, d.message = string(elastic.Invalid), d.problem
	case e.Why == resize.Held:
		d.reason, d.message = d.held()
	case e.Why == resize.NotResizable:
		d.reason, d.message = reasonFixed, d.resizable.message
	case e.Why == resize.NoPlaces:
		d.reason, d.message = reasonNotAdmitted, e.Bar.Why
	case e.Why == resize.SizeBarred:
		d.reason = reasonNotAdmitted
		d.message = fmt.Sprintf("it is not asked to have %d members or more before %s, since %s", e.Bar.Size, e.Bar.Until.UTC().Format("15:04 MST"), e.Bar.Why)
	case t.Why == elastic.AtMost && d.workers < most:
		d.reason, d.message = string(t.Why), fmt.Sprintf("it has as many members as its owner makes, and %d would be legal", most)
	default:
		d.reason, d.message = string(t.Why), because(t)
	}
	rated := e.Why == resize.AsPlanned && !e.FirstGone && d.settle()
	if e.FirstGone {
		d.message += "; its first members are gone and do not come back, so the number counts them, for others to run"
	}
	if before := d.elasticGang.workers(); d.target != nil && d.workers != before && len(d.running) > 0 {
		if d.event = changedFor(before, d.workers, d.message); e.Why == resize.AsPlanned && !e.FirstGone && !rated {
			d.event = changed(before, d.workers, t)
		}
	}
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
	moved, isMoved := m.size.Moved()
	if at := metav1.NewTime(moved.Truncate(time.Second)); isMoved {
		s.Since = &at
	} else if s.Since == nil {
		s.Since = &stamp
	}
	if isMoved && d.target != nil && len(d.running) > 0 {
		s.Moves = append(s.Moves, *s.Since)
		s.Moves = s.Moves[max(0, len(s.Moves)-maxMoves):]
	}
	if m.learner.Pauses > 0 {
		s.ResizeSeconds = new(int32(min(m.learner.Pause+.5, 1<<30)))
	}
	s.Rates = ratesIn(&m.learner)
	if !d.paused || !remembers(&s) {
		setCondition(&s, v1alpha1.ConditionResizable, d.resizable.yes, d.resizable.reason, d.resizable.message, stamp)
		meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionResizable).ObservedGeneration = d.resizable.generation
	}
	admitted, why := d.admitted()
	if kept := m.size.Kept(); !admitted && kept != "" {
		why += "; " + kept
	}
	setCondition(&s, v1alpha1.ConditionAdmitted, admitted, map[bool]string{true: "AsManyAsTarget", false: "NotAsTarget"}[admitted], why, stamp)
	d.tuningStatus(&s, stamp)
	return s
}
