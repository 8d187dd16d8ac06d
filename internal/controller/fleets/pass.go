package fleets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/controller/passes"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// pass is one look at all fleets.
type pass struct {
	*Controller
	now    time.Time
	claims *claims
	// reports are what pods report of themselves.
	reports map[placed]float64
	// jobs are the members of elastic jobs with the highest priority, by GPU model.
	jobs map[string]ranked
}

// Pass looks at all fleets once, and carries out what package traffic decides. A fleet that cannot be read or written keeps its sizes and
// weights, and the others go on; the error names it.
func (c *Controller) Pass(ctx context.Context) error {
	var list v1alpha1.InferenceFleetList
	if err := c.options.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("read the fleets: %w", err)
	}
	fleets := make([]*v1alpha1.InferenceFleet, 0, len(list.Items))
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			fleets = append(fleets, &list.Items[i])
		}
	}
	p := &pass{Controller: c, now: c.now(), claims: claimsOf(fleets)}
	fleets = passes.InTurn(fleets, func(f *v1alpha1.InferenceFleet) string { return f.Namespace })
	p.forget(fleets)
	var nodes v1alpha1.GPUNodeList
	if err := c.options.Client.List(ctx, &nodes); err != nil {
		return fmt.Errorf("read the GPUNodes: %w", err)
	}
	p.reports = reportsOf(nodes.Items)
	c.learnSlots(nodes.Items)
	var err error
	if p.jobs, err = p.borrowers(nodes.Items); err != nil {
		return err
	}
	return p.decideAll(ctx, fleets)
}

// decideAll decides on the fleets as they are measured: always on the first in turn of those that are. A fleet whose Prometheus takes its time delays no other one.
func (p *pass) decideAll(ctx context.Context, fleets []*v1alpha1.InferenceFleet) error {
	measured, ready := p.measureAll(ctx, fleets, p.now)
	errs, waiting := make([]error, len(fleets)), make([]int, 0, len(fleets))
	for range fleets {
		if len(waiting) == 0 {
			waiting = append(waiting, <-ready)
		}
		for len(ready) > 0 {
			waiting = append(waiting, <-ready)
		}
		i := slices.Min(waiting)
		waiting = slices.DeleteFunc(waiting, func(k int) bool { return k == i })
		v := &visit{pass: p, object: fleets[i], memory: p.memory[fleets[i].UID], measured: measured[i]}
		if err := v.run(ctx); err != nil {
			errs[i] = fmt.Errorf("fleet %s: %w", nameOf(fleets[i]), err)
		}
	}
	return errors.Join(errs...)
}

// forget drops what is known of fleets that are gone, and begins the memory of new ones.
func (p *pass) forget(fleets []*v1alpha1.InferenceFleet) {
	there := make(map[types.UID]bool, len(fleets))
	names := make(map[string]bool, len(fleets))
	for _, f := range fleets {
		there[f.UID], names[nameOf(f)] = true, true
		if p.memory[f.UID] == nil {
			p.memory[f.UID] = remember(f)
		}
	}
	maps.DeleteFunc(p.memory, func(uid types.UID, _ *memory) bool { return !there[uid] })
	p.metrics.keep(names)
}

// run decides on a fleet and carries that out.
func (v *visit) run(ctx context.Context) error {
	replicas, problem, err := v.describe(ctx)
	if err != nil {
		return err
	}
	if problem == nil {
		problem = v.declare(replicas)
	}
	if problem != nil {
		return v.writeStatus(ctx, v.undeclared(problem))
	}
	if err := v.observe(ctx); err != nil {
		return err
	}
	v.plan, v.memory.decided, err = traffic.Decide(v.fleet, v.seen(), v.memory.decided, *v.config())
	if err != nil {
		return err
	}
	if !v.fleet.Paused {
		for _, parts := range v.planned() {
			v.weights = append(v.weights, traffic.Integers(parts, totalWeight))
		}
	}
	if v.weightsRefused != nil {
		v.keepServing()
	}
	v.metrics.decided(v)
	prioritized, err := v.prioritized()
	if err != nil {
		return err
	}
	outcome, failed := v.apply(ctx)
	return errors.Join(failed, v.writeStatus(ctx, v.status(outcome, prioritized)))
}

// declare reads the spec of the fleet into v.fleet. It returns a refusal where a field has an illegal value, and v.fleet stays as it was.
func (v *visit) declare(replicas []description) *refusal {
	fleet, err := declared(v.object, replicas)
	if err != nil {
		return &refusal{reasonInvalid, err.Error()}
	}
	if err := v.hold(fleet); err != nil {
		return &refusal{reasonInvalid, err.Error()}
	}
	v.fleet = fleet
	return nil
}

// config returns how to decide.
func (v *visit) config() *traffic.Config {
	return &traffic.Config{Interval: v.options.Every, Patience: v.options.Patience}
}

// planned returns the parts of the plan, by rule.
func (v *visit) planned() [][]float64 {
	if len(v.plan.Classes) > 0 {
		return v.plan.Classes
	}
	parts := make([]float64, len(v.plan.Variants))
	for i := range parts {
		parts[i] = v.plan.Variants[i].Part
	}
	return [][]float64{parts}
}
