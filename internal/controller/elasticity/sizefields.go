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
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/controller/sizefield"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// sizeFields writes the size into the object that makes the members. The controller of that object makes and deletes them.
type sizeFields struct{ *pass }

// written is a change of an owner's field from one number of members to another.
type written struct {
	from, to int
	at       time.Time
	// old are the members beyond the old number, which have ended, and surplus is how many of those that run are beyond the new one.
	old     map[types.UID]bool
	surplus int
}

// writtenNow returns a change that was written just now, or was found written.
func (s sizeFields) writtenNow(g *elasticGang, owner *sizefield.Owner, from int) *written {
	w := &written{from: from, to: owner.Members(), at: s.now, old: map[types.UID]bool{}, surplus: surplusOf(g, owner)}
	for _, pod := range w.made(g, owner) {
		w.old[pod.UID] = true
	}
	return w
}

// made returns the members beyond the old number. Members that have ended count where the owner numbers its pods: the index says which they are.
func (w *written) made(g *elasticGang, owner *sizefield.Owner) []*v1.Pod {
	if owner.Leave == sizefield.HighestIndex {
		return owner.Beyond(slices.Concat(g.all, g.ended), w.from)
	}
	return owner.Beyond(g.all, w.from)
}

// surplusOf returns how many members beyond the number of an owner are not being deleted.
func surplusOf(g *elasticGang, owner *sizefield.Owner) (count int) {
	for _, pod := range owner.Beyond(g.all, owner.Members()) {
		if pod.DeletionTimestamp == nil {
			count++
		}
	}
	return count
}

// followed reports whether the owner's controller has done a part of a change at least: it has made a member, or deleted one.
func (w *written) followed(g *elasticGang, owner *sizefield.Owner) bool {
	if w.to > w.from {
		return slices.ContainsFunc(w.made(g, owner), func(pod *v1.Pod) bool { return !w.old[pod.UID] })
	}
	return w.surplus == 0 || surplusOf(g, owner) < w.surplus
}

func (s sizeFields) may(ctx context.Context, g *elasticGang) (verdict, error) {
	owner, err := s.owners.Find(ctx, g.all)
	if err == nil {
		err = owner.Consents(g.Name, g.Source == podgroup.Label)
	}
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
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != sizefield.ChangeRefused && c.Reason != reasonNotFollowed ||
			owner.Object.GetCreationTimestamp().After(c.LastTransitionTime.Time) { // another object had the name
			return nil
		}
		m.refused = &verdict{reason: c.Reason, message: c.Message, generation: c.ObservedGeneration, owner: owner}
		if c.Reason == reasonNotFollowed {
			m.refused.until = c.LastTransitionTime.Add(followAgain)
		}
	}
	if m.refused.owner.Object.GetUID() != owner.Object.GetUID() || m.refused.generation != owner.Object.GetGeneration() ||
		!m.refused.until.IsZero() && !s.now.Before(m.refused.until) {
		m.refused = nil
		return nil
	}
	v := *m.refused
	v.owner = owner
	return &v
}

// followAgain is how long the controller leaves an owner alone that did not follow. What kept it from that may have ended, a quota for example.
const followAgain = 30 * time.Minute

// unfollowed says that the pods of an owner have not followed a change of its field within the time for that. No pod has come,
// or none has gone: an owner that is slow has done a part.
func (s sizeFields) unfollowed(g *elasticGang, owner *sizefield.Owner) *verdict {
	m := s.memory[g.Ref]
	s.lookBack(g, owner)
	if m.wrote == nil {
		return nil
	}
	w := *m.wrote
	if owner.Members() != w.to || w.followed(g, owner) {
		m.wrote = nil
		return nil
	}
	if s.now.Sub(w.at) < s.admitWithin {
		return nil
	}
	until := s.now.Add(followAgain)
	return &verdict{owner: owner, reason: reasonNotFollowed, generation: owner.Object.GetGeneration(), until: until, message: fmt.Sprintf(
		"%s of %s changed from %d to %d members %v ago, and its controller has not followed: the number goes back; the controller tries again at %s, "+
			"or once the object changes or the ElasticTarget is deleted", owner.Field(), owner, w.from, w.to, s.now.Sub(w.at).Round(time.Second),
		until.UTC().Format("15:04 MST"))}
}

// lookBack looks, once for each gang, for a change to fewer members that an earlier process wrote and that the owner has not followed. After a
// change to more members nothing needs to be found: the target says that members are missing, and goes back to what runs.
func (s sizeFields) lookBack(g *elasticGang, owner *sizefield.Owner) {
	m := s.memory[g.Ref]
	if m.lookedBack {
		return
	}
	m.lookedBack = true
	if g.target != nil && int(g.target.Spec.Workers) == owner.Members() && surplusOf(g, owner) > 0 {
		m.wrote = s.writtenNow(g, owner, owner.Others+owner.Count(g.all))
	}
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
	s.memory[d.Ref].wrote = s.writtenNow(d.elasticGang, owner, from)
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
	m.refused = &verdict{reason: d.resizable.reason, message: d.resizable.message, generation: owner.Object.GetGeneration(), owner: owner, until: d.resizable.until}
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
