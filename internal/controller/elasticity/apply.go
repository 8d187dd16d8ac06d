package elasticity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/resize"
)

// carryOut writes a decision into the target of its gang, tells it, and brings the members to the size. The target is
// written first: otherwise the scheduler would place the members again that leave.
func (p *pass) carryOut(ctx context.Context, d *decision) error {
	if d.asks {
		if err := p.ask(ctx, d); err != nil {
			return err
		}
	}
	target, err := p.writeTarget(ctx, d)
	if err != nil {
		return err
	}
	if d.event != "" {
		p.metrics.moved(d)
		p.options.Recorder.Eventf(d.about(), nil, v1.EventTypeNormal, d.eventReason(), resizing(d.elasticGang.workers(), d.workers), "%s", d.event)
	}
	if err := p.writeStatus(ctx, d, target); err != nil {
		return err
	}
	errs := []error{p.resize(ctx, d)}
	if !d.paused {
		errs = append(errs, p.scaleServers(ctx, d))
	}
	return errors.Join(errs...)
}

// eventReason is the reason of the event of a change.
func (d *decision) eventReason() string {
	if d.workers < d.elasticGang.workers() {
		return "ElasticShrink"
	}
	return "ElasticGrow"
}

// about returns the object of the events of a gang: its PodGroup, else the owner of its first member.
func (g *elasticGang) about() *v1.ObjectReference {
	if g.Object != nil {
		return g.Object
	}
	return ownerOrPod(g.all[0])
}

// ownerOrPod returns the owner of a pod, the pod itself where it has none.
func ownerOrPod(pod *v1.Pod) *v1.ObjectReference {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return &v1.ObjectReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: pod.Namespace, Name: owner.Name, UID: owner.UID}
	}
	return &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// writeTarget makes the ElasticTarget of a gang, or changes its spec, and returns it.
func (p *pass) writeTarget(ctx context.Context, d *decision) (*v1alpha1.ElasticTarget, error) {
	if d.target == nil {
		target := &v1alpha1.ElasticTarget{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}, Spec: d.spec()}
		if err := p.options.Client.Create(ctx, target); err != nil {
			return nil, fmt.Errorf("make its ElasticTarget: %w", err)
		}
		p.memory[d.Ref].size.Step(resize.Numbered{}, p.now)
		return target, nil
	}
	target := d.target.DeepCopy()
	if target.Spec == d.spec() {
		return target, nil
	}
	target.Spec = d.spec()
	if err := p.options.Client.Update(ctx, target); err != nil { // refused where somebody else has changed it
		return nil, fmt.Errorf("change its ElasticTarget: %w", err)
	}
	if int(d.target.Spec.Workers) != d.workers {
		p.memory[d.Ref].size.Step(resize.Numbered{}, p.now)
	}
	return target, nil
}

// ratesEvery bounds how often learned rates alone are written into a target.
const ratesEvery = time.Minute

// writeStatus writes the status of a target where it has changed, without the part of the scheduler.
func (p *pass) writeStatus(ctx context.Context, d *decision, target *v1alpha1.ElasticTarget) error {
	m := p.memory[d.Ref]
	before := target.DeepCopy()
	target.Status = d.status(m, p.now)
	fresh := p.now.Sub(m.ratesAt) < ratesEvery
	if fresh {
		target.Status.Rates = before.Status.Rates
	}
	if equality.Semantic.DeepEqual(before.Status, target.Status) {
		m.size.Step(resize.Told{}, p.now)
		return nil
	}
	if err := p.options.Client.Status().Patch(ctx, target, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("change the status of its ElasticTarget: %w", err)
	}
	m.size.Step(resize.Told{}, p.now)
	if !fresh {
		m.ratesAt = p.now
	}
	return nil
}

// resizing names a change for its event. Events of one object with the same names become a series, which has the text of the first one.
func resizing(from, to int) string { return fmt.Sprintf("Resize%dTo%d", from, to) }

// resize brings the members to the size of a decision, as far as that goes now. A member that could not be told is not evicted, and an owner's
// field not written then.
func (p *pass) resize(ctx context.Context, d *decision) error {
	state := p.memory[d.Ref].size
	pods := make(map[string]*v1.Pod, len(d.all))
	for _, pod := range d.all {
		pods[string(pod.UID)] = pod
	}
	var errs []error
	untold, kept := map[string]bool{}, ""
	for _, e := range state.Step(resize.Due{View: d.view, Number: d.workers}, p.now) {
		var err error
		switch e := e.(type) {
		case resize.Notify:
			err = p.tell(ctx, pods[e.ID], e.At.UTC().Format(time.RFC3339), d.beside())
			if err != nil {
				untold[e.ID] = true
				state.Step(resize.Untold{ID: e.ID}, p.now)
			}
		case resize.Withdraw:
			err = p.tell(ctx, pods[e.ID], "", besideIn(pods[e.ID]))
		case resize.Evict:
			if untold[e.ID] {
				continue
			}
			err = p.evict(ctx, pods[e.ID])
			if why := refusalIn(err); why != "" && kept == "" {
				kept = fmt.Sprintf("pod %s must leave, and stays: %s", pods[e.ID].Name, why)
			}
		case resize.Write:
			if len(errs) == 0 {
				err = p.writeField(ctx, d, e.Number)
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if !d.resizable.unread {
		p.warn(d, state.Step(resize.Evicted{Number: d.workers, Kept: kept}, p.now))
	}
	return errors.Join(errs...)
}

// tell writes into a pod when it leaves, or takes that back where at is empty. The annotations in others go with the notice.
func (p *pass) tell(ctx context.Context, pod *v1.Pod, at string, others map[string]string) error {
	annotations := map[string]any{v1alpha1.AnnotationLeaving: at}
	for key, value := range others {
		annotations[key] = value
	}
	if at == "" {
		for key := range annotations {
			annotations[key] = nil
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = p.options.Kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("tell pod %s that it leaves: %w", pod.Name, err)
	}
	return nil
}

// evict evicts a member as far as its disruption budgets allow; the next pass tries again.
func (p *pass) evict(ctx context.Context, pod *v1.Pod) error {
	err := p.options.Kube.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(pod.UID)}},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	p.metrics.evicted(err)
	if err != nil {
		return fmt.Errorf("evict pod %s: %w", pod.Name, err)
	}
	return nil
}

// forgetAfter is how long a gang must be gone before its target is removed. In a shorter time the members of a gang that
// was evicted as a whole might not be back, and its history would be lost.
const forgetAfter = 10 * time.Minute

// removeOld says of the targets of gangs that no longer exist that they are gone, removes them later, and forgets what was learned of them.
func (p *pass) removeOld(ctx context.Context, targets map[string]*v1alpha1.ElasticTarget) error {
	var errs []error
	kept := map[podgroup.Ref]bool{} // the next pass tries again
	for key, target := range targets {
		ref := podgroup.Ref{Source: podgroup.Source(target.Spec.Source), Namespace: target.Namespace, Name: target.Name}
		m := p.memory[ref]
		if m == nil {
			m = &memory{seen: p.now} // it was there before this controller
			p.memory[ref] = m
		}
		if p.now.Sub(m.seen) < forgetAfter {
			if m.seen != p.now || m.at.IsZero() {
				errs = append(errs, p.writeGone(ctx, target, ref, m.seen.Add(forgetAfter)))
			}
			continue
		}
		if err := p.options.Client.Delete(ctx, target); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove ElasticTarget %s: %w", key, err))
			kept[ref] = true
		}
	}
	for _, ref := range slices.SortedFunc(maps.Keys(p.memory), podgroup.Ref.Compare) {
		if m := p.memory[ref]; p.now.Sub(m.seen) >= forgetAfter && !kept[ref] {
			p.learnStop(ref, m)
			delete(p.memory, ref)
		}
	}
	return errors.Join(errs...)
}

// writeGone writes into the status of a target that there is no elastic gang for it, and when the target will be removed.
func (p *pass) writeGone(ctx context.Context, target *v1alpha1.ElasticTarget, ref podgroup.Ref, removal time.Time) error {
	gone := target.DeepCopy()
	s, why, unless := &gone.Status, "no member of this gang exists", "members come back"
	if s.Reason = reasonGone; len(p.members[ref]) > 0 {
		s.Reason, unless = string(elastic.Invalid), "that changes"
		why = "the gang has members and is not elastic, or what it declares is not legal: the events of its pods say more"
	} else {
		s.Workers = 0
	}
	s.Message = why + "; the target is removed at " + removal.UTC().Format("15:04:05 MST") + " unless " + unless
	setCondition(s, v1alpha1.ConditionAdmitted, false, s.Reason, why, metav1.NewTime(p.now.Truncate(time.Second)))
	if equality.Semantic.DeepEqual(target.Status, gone.Status) {
		return nil
	}
	if err := p.options.Client.Status().Patch(ctx, gone, client.MergeFrom(target)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("change the status of ElasticTarget %s/%s: %w", target.Namespace, target.Name, err)
	}
	return nil
}
