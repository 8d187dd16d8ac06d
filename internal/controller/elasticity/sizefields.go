package elasticity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/controller/sizefield"
	"github.com/tandem-gpu/tandem/pkg/contest"
	"github.com/tandem-gpu/tandem/pkg/resize"

	v1 "k8s.io/api/core/v1"
)

// mayWrite is for a gang whose size is written into the object that makes the members. The controller of that object makes and deletes them.
func (p *pass) mayWrite(ctx context.Context, g *elasticGang) (verdict, error) {
	owner, err := p.owners.Find(ctx, g.all)
	if err == nil {
		err = owner.Consents(g.Name, g.Source == podgroup.Label)
	}
	if refusal, is := errors.AsType[*sizefield.Refusal](err); is {
		return verdict{reason: refusal.Reason, message: refusal.Message}, nil
	} else if err != nil {
		return verdict{reason: reasonOwnerUnread, message: err.Error(), unread: true}, err
	}
	if by := p.listers.autoscaler(g.Namespace, owner.GroupKind.Kind, owner.Object.GetName()); by != "" {
		return verdict{reason: reasonOwnSize, message: by}, nil
	}
	if !owner.Fits(g.Sizes[0]) {
		return verdict{reason: reasonSizesDoNotFit, message: fmt.Sprintf("%s can make %s members, and the gang runs with %v: make the least number of both the same",
			owner, owner.Legal(), g.Sizes)}, nil
	}
	return verdict{yes: true, owner: owner, reason: reasonSizeFields, message: fmt.Sprintf("the controller writes %s of %s", owner.Field(), owner)}, nil
}

// ask asks the API server whether it would take the number, before the target changes and any member is told.
func (p *pass) ask(ctx context.Context, d *decision) error {
	owner := d.resizable.owner
	err := owner.Write(ctx, p.options.Dynamic, sizefield.Change{Members: d.workers, Leave: owner.Beyond(d.all, d.workers), Try: true})
	if !p.notTaken(d, err) {
		return err
	}
	d.event = ""
	return nil
}

// writeField writes a number into the owner's field.
func (p *pass) writeField(ctx context.Context, d *decision, number int) error {
	owner, change := d.resizable.owner, sizefield.Change{Members: number}
	if d.resizable.yes {
		change.Leave = owner.Beyond(d.all, number)
	}
	err := owner.Write(ctx, p.options.Dynamic, change)
	switch {
	case errors.Is(err, sizefield.ErrChanged), p.notTaken(d, err): // the next pass tells what follows
		return nil
	case err != nil:
		return err
	}
	p.memory[d.Ref].size.Step(resize.Written{View: d.view, Number: number, Generation: owner.Object.GetGeneration()}, p.now)
	return nil
}

// askAgain is how long the want of a right counts. A longer time makes users wait after they have given it, a shorter one makes more
// requests that come to nothing.
const askAgain = time.Minute

// notTaken makes a refusal of the API server the verdict on a gang, and reports whether there was one.
func (p *pass) notTaken(d *decision, err error) bool {
	refusal, is := errors.AsType[*sizefield.Refusal](err)
	if !is {
		return false
	}
	r := resize.Refusal{Kind: resize.ByServer, Code: refusal.Reason, Text: refusal.Message, Generation: d.resizable.owner.Object.GetGeneration()}
	if refusal.Reason == sizefield.NotAllowed { // a binding changes no object of the gang
		r.Undone = contest.Undone{Until: p.now.Add(askAgain)}
	}
	state := p.memory[d.Ref].size
	for _, e := range state.Step(resize.NotTaken{View: d.view, Refusal: r}, p.now) {
		if e, is := e.(resize.Set); is {
			d.takeOver(state)
			d.set(&e, nil)
		}
	}
	return true
}

// beside returns the annotations that go with the notice to a member.
func (d *decision) beside() map[string]string {
	if o := d.resizable.owner; o != nil && o.Leave == sizefield.Cheapest {
		return map[string]string{sizefield.CostAnnotation: leavesFirst}
	}
	return nil
}

// leavesFirst is the cost of the deletion of a member with a notice: that of no other pod of its owner is as low.
const leavesFirst = "-1000000"

// besideIn returns the annotations that went with the notice to a member. The owner that asked for them may have changed since, or be left alone.
func besideIn(pod *v1.Pod) map[string]string {
	if pod.Annotations[sizefield.CostAnnotation] == leavesFirst {
		return map[string]string{sizefield.CostAnnotation: ""}
	}
	return nil
}
