package elasticity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/controller/sizefield"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// sizeFields writes the size into the object that makes the members. The controller of that object makes and deletes them.
type sizeFields struct{ *pass }

// written is a change of an owner's field from one number of members to another.
type written struct {
	from, to int
	at       time.Time
}

func (s sizeFields) may(ctx context.Context, g *elasticGang) (verdict, error) {
	owner, err := s.owners.Find(ctx, g.all)
	if refusal, is := errors.AsType[*sizefield.Refusal](err); is {
		return verdict{reason: refusal.Reason, message: refusal.Message}, nil
	} else if err != nil {
		return verdict{reason: reasonOwnerUnread, message: err.Error(), unread: true}, err
	}
	if by := s.listers.autoscaler(g.Namespace, owner.GroupKind.Kind, owner.Object.GetName()); by != "" {
		return verdict{reason: reasonOwnSize, message: by}, nil
	}
	if !owner.Fits(g.Sizes[0]) {
		return verdict{reason: reasonSizesDoNotFit, message: fmt.Sprintf("%s can make %s members, and the gang runs with %v: make the least number of both the same",
			owner, owner.Legal(), g.Sizes)}, nil
	}
	if v := s.refusedBefore(g, owner); v != nil {
		return *v, nil
	}
	if v := s.unfollowed(g, owner); v != nil {
		return *v, nil
	}
	return verdict{yes: true, owner: owner, reason: reasonSizeFields, message: fmt.Sprintf("the controller writes %s of %s", owner.Field(), owner)}, nil
}

// refusedBefore returns the refusal of an earlier pass, or of an earlier process, as long as nobody has changed the owner since.
func (s sizeFields) refusedBefore(g *elasticGang, owner *sizefield.Owner) *verdict {
	m := s.memory[g.Ref]
	if g.target == nil { // whoever deletes a target wants another try
		m.refused, m.wrote = nil, nil
		return nil
	}
	if m.refused == nil {
		c := meta.FindStatusCondition(g.target.Status.Conditions, v1alpha1.ConditionResizable)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != sizefield.ChangeRefused && c.Reason != reasonNotFollowed {
			return nil
		}
		m.refused = &verdict{reason: c.Reason, message: c.Message, generation: c.ObservedGeneration}
	}
	if m.refused.generation != owner.Object.GetGeneration() || !m.refused.until.IsZero() && !s.now.Before(m.refused.until) {
		m.refused = nil
		return nil
	}
	v := *m.refused
	v.owner = owner
	return &v
}

// unfollowed says that the pods of an owner have not followed a change of its field within the time for that. No pod has come,
// or none has gone: an owner that is slow has done a part.
func (s sizeFields) unfollowed(g *elasticGang, owner *sizefield.Owner) *verdict {
	m := s.memory[g.Ref]
	if m.wrote == nil {
		return nil
	}
	w := *m.wrote
	exist := owner.Others + owner.Count(slices.Concat(g.all, g.ended))
	if owner.Members() != w.to || w.to > w.from && exist > w.from || w.to < w.from && exist < w.from {
		m.wrote = nil
		return nil
	}
	if s.now.Sub(w.at) < s.admitWithin {
		return nil
	}
	return &verdict{owner: owner, reason: reasonNotFollowed, generation: owner.Object.GetGeneration(), message: fmt.Sprintf(
		"%s of %s changed from %d to %d members %v ago, and its controller has not followed: the number goes back; change the object, or delete the ElasticTarget, "+
			"and the controller tries again", owner.Field(), owner, w.from, w.to, s.now.Sub(w.at).Round(time.Second))}
}

// prepare asks the API server whether it would take the change, before the target changes and any member is told.
func (s sizeFields) prepare(ctx context.Context, d *decision) error {
	if !d.resizable.yes || d.workers == d.resizable.owner.Members() {
		return nil
	}
	err := d.resizable.owner.Write(ctx, s.options.Dynamic, sizefield.Change{Members: d.workers, Leave: s.leave(d), Try: true})
	if !s.refuse(d, err) {
		return err
	}
	d.workers, d.reason, d.message, d.event = d.kept(), reasonFixed, d.resizable.message, ""
	return nil
}

// askAgain is how long the want of a right counts. A longer time makes users wait after they have given it, a shorter one makes more
// requests that come to nothing.
const askAgain = time.Minute

// refuse makes a refusal of the API server the verdict on a gang, and reports whether there was one.
func (s sizeFields) refuse(d *decision, err error) bool {
	refusal, is := errors.AsType[*sizefield.Refusal](err)
	if !is {
		return false
	}
	owner := d.resizable.owner
	d.resizable = verdict{reason: refusal.Reason, message: refusal.Message, owner: owner, generation: owner.Object.GetGeneration()}
	if refusal.Reason == sizefield.NotAllowed { // a binding changes no object of the gang
		d.resizable.until = s.now.Add(askAgain)
	}
	s.memory[d.Ref].refused = &d.resizable
	return true
}

// leave returns the members that are too many for a decision.
func (s sizeFields) leave(d *decision) []*v1.Pod {
	if !d.resizable.yes {
		return nil
	}
	return d.resizable.owner.Beyond(d.all, d.workers)
}

// resize tells the members that leave, and writes the field once their time has come. The field grows at once.
func (s sizeFields) resize(ctx context.Context, d *decision) error {
	if d.resizable.unread { // who was told that it leaves may still have to
		return nil
	}
	leave := s.leave(d)
	due, err := s.notify(ctx, d, leave)
	if err != nil {
		return err
	}
	owner := d.resizable.owner
	switch {
	case owner == nil:
		return nil
	case d.resizable.reason == reasonNotFollowed:
		return s.putBack(ctx, d)
	case !d.resizable.yes || d.workers == owner.Members():
		return nil
	case d.workers < owner.Members() && len(due) < len(told(leave)), d.workers > owner.Members() && d.endings():
		return nil
	}
	from := owner.Members()
	err = owner.Write(ctx, s.options.Dynamic, sizefield.Change{Members: d.workers, Leave: leave})
	switch {
	case errors.Is(err, sizefield.ErrChanged) || s.refuse(d, err): // the next pass tells what follows
		return nil
	case err != nil:
		return err
	}
	s.memory[d.Ref].wrote = &written{from: from, to: d.workers, at: s.now}
	return nil
}

// told returns those of the members that leave which have a node: they get a notice.
func told(leave []*v1.Pod) (all []*v1.Pod) {
	for _, pod := range leave {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			all = append(all, pod)
		}
	}
	return all
}

// putBack writes the number that a field had before a change that the owner's controller did not follow.
func (s sizeFields) putBack(ctx context.Context, d *decision) error {
	m, owner := s.memory[d.Ref], d.resizable.owner
	w := m.wrote
	if w == nil || owner.Members() != w.to {
		return nil
	}
	err := owner.Write(ctx, s.options.Dynamic, sizefield.Change{Members: w.from})
	if err != nil && !errors.Is(err, sizefield.ErrChanged) {
		return err
	}
	m.wrote = nil
	m.refused = &verdict{reason: d.resizable.reason, message: d.resizable.message, generation: owner.Object.GetGeneration()}
	return nil
}

// endings reports whether members that the field does not allow any more have not quite ended. Kubernetes' controller of Jobs
// would count them as failed if the field allowed them again now.
func (d *decision) endings() bool {
	for _, pod := range d.resizable.owner.Beyond(slices.Concat(d.all, d.ended), d.resizable.owner.Members()) {
		if pod.DeletionTimestamp != nil || len(pod.Finalizers) > 0 {
			return true
		}
	}
	return false
}

// beside returns the annotations that go with the notice to a member.
func (d *decision) beside() map[string]string {
	if o := d.resizable.owner; o != nil && o.Leave == sizefield.Cheapest {
		return map[string]string{sizefield.CostAnnotation: "-1000000"}
	}
	return nil
}
