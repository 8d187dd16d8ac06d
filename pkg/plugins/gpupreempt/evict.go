package gpupreempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	apipod "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// evictTimeout bounds each of the two requests that evict a pod, with all its retries. Longer keeps a preemptor out of
// the queue that the scheduler could try elsewhere while the API server does not answer. The time begins when the
// plugin may send the request: a wait for the limit of this scheduler's requests says nothing of the API server.
const evictTimeout = 15 * time.Second

// evictRetry is the pauses between tries of one request: 50 ms, 200 ms, 800 ms, 3.2 s.
var evictRetry = wait.Backoff{Steps: 5, Duration: 50 * time.Millisecond, Factor: 4, Jitter: 0.1}

// preemptor is the pod or gang that gets the room.
type preemptor struct {
	// id names it to the machine, and pod is it where it is a pod.
	id  reservation.Preemptor
	pod reservation.PodRef
	// name is "pod namespace/name" or "gang namespace/name".
	name string
	// object is what events of the victims relate to.
	object   runtime.Object
	priority int32
	// needs says what it needs: "needs 2 whole GPUs".
	needs string
}

// eviction is a plan with its progress.
type eviction struct {
	preemptor
	// node is where the preemptor goes, "" for several.
	node string
	plan *preemption.Plan
	// from is what the units of the plan index, and pods are its pods.
	from *preemption.Candidates
	pods []*v1.Pod
	// asked holds the UIDs of the pods that leave: the API server has taken their deletion.
	asked sync.Map
	// number is the machine's number of it. ctx ends when the evictions must stop, and forget drops the number.
	number reservation.Evictions
	ctx    context.Context //nolint:containedctx // it is that of the evictions, which outlive the cycle
	forget func()
}

// begin notes that the machine has the victims evicted; nil says that there are none.
func (e *eviction) begin(ctx context.Context, l machine.Locked, a *reservation.BeginEvictions) {
	if a != nil {
		e.number = a.Number
		e.ctx, e.forget = l.Evictions(context.WithoutCancel(ctx), a.Number)
	}
}

// evict carries a plan out, beside the scheduling cycle. Before the cycle goes on, evict blocks places for other
// members of gangs that go whole: the scheduler would place one that comes back, and the evictions leave it behind.
func (p *Plugin) evict(e *eviction) {
	if e.ctx.Err() == nil {
		p.blockPlacement(e)
	}
	go func() { _ = p.evictVictims(e) }() // the machine gets the error
}

// evictVictims evicts the victims of a plan. No unit of a plan could stay, so the first failure ends it: the victims that were not
// evicted by then stay.
func (p *Plugin) evictVictims(e *eviction) error {
	err := p.evictAll(e.ctx, e)
	e.forget()
	if err != nil {
		klog.FromContext(e.ctx).Error(err, "Preemption ended early", "preemptor", e.name)
	} else {
		p.metrics.lost.Add(float64(e.plan.Cost.Lost) / float64(vgpu.WholeGPU))
	}
	ended := e.ended(p, err)
	p.machine.Step(func(machine.Locked) reservation.Event { return ended })
	p.machine.Flush(e.ctx)
	return err
}

// ended says how evictions ended.
func (e *eviction) ended(p *Plugin, err error) reservation.EvictionsEnded {
	out := reservation.EvictionsEnded{Preemptor: e.id, Pod: e.pod, Number: e.number}
	if err != nil {
		out.Why = err.Error()
	}
	for _, u := range e.plan.Evict {
		for _, at := range u.Pods {
			uid := kube.UIDOf(e.pods[at])
			out.Evict = append(out.Evict, uid)
			if _, asked := e.asked.Load(uid); asked {
				out.Asked = append(out.Asked, uid)
			}
			if pod := p.seen(e.pods[at]); pod != nil && pod.DeletionTimestamp == nil {
				out.Stay = append(out.Stay, uid)
			}
		}
	}
	return out
}

// maxSequential is how many victims the plugin evicts one unit after the other, before it evicts the rest at once:
// where the API server refuses them, few have left in vain. More are slower, for large gangs.
const maxSequential = 8

// evictAll evicts the units of a plan.
func (p *Plugin) evictAll(ctx context.Context, e *eviction) error {
	units, evicted := e.plan.Evict, 0
	for len(units) > 0 && evicted < maxSequential {
		if err := p.evictUnit(ctx, e, &units[0]); err != nil {
			return err
		}
		evicted += len(units[0].Pods)
		units = units[1:]
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(units))
	p.handle.Parallelizer().Until(context.WithoutCancel(ctx), len(units), func(i int) {
		if errs[i] = p.evictUnit(ctx, e, &units[i]); errs[i] != nil {
			cancel()
		}
	}, Name)
	failures := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, errStopped) })
	if err := errors.Join(failures...); err != nil || len(failures) == len(errs) {
		return err
	}
	return errStopped
}

// errStopped says that the evictions stopped before they came to a unit.
var errStopped = errors.New("the other victims stay, since the evictions were stopped")

// evictUnit evicts the pods of a unit: after the first eviction all of them, since a gang without some members is lost.
func (p *Plugin) evictUnit(ctx context.Context, e *eviction, u *preemption.Unit) error {
	if ctx.Err() != nil {
		return errStopped
	}
	if first := e.pods[u.Pods[0]]; u.Kind == preemption.Surplus && !p.isSurplus(first) {
		return fmt.Errorf("evict pod %s: its gang does not run on without it any more", klog.KObj(first))
	}
	ctx = context.WithoutCancel(ctx) // the API server may have carried out a request without an answer, and its pod would have no event
	if err := p.evictOne(ctx, e, u, u.Pods[0]); err != nil {
		return err
	}
	rest := u.Pods[1:]
	errs := make([]error, len(rest))
	p.handle.Parallelizer().Until(ctx, len(rest), func(i int) { errs[i] = p.evictOne(ctx, e, u, rest[i]) }, Name)
	return errors.Join(errs...)
}

// evictOne evicts one pod of a plan.
func (p *Plugin) evictOne(ctx context.Context, e *eviction, u *preemption.Unit, at int) error {
	inMemory, err := p.evictPod(ctx, e.pods[at], e.reason(u))
	if err != nil {
		return fmt.Errorf("evict pod %s: %w", klog.KObj(e.pods[at]), err)
	}
	if inMemory {
		withdrawn := reservation.VictimWithdrawn{Preemptor: e.id, UID: kube.UIDOf(e.pods[at])}
		p.machine.Step(func(machine.Locked) reservation.Event { return withdrawn })
	} else {
		e.asked.Store(kube.UIDOf(e.pods[at]), true)
	}
	p.metrics.victims.WithLabelValues(kindName(u.Kind)).Inc()
	return nil
}

// reason names the preemptor of a unit's eviction, and why.
func (e *eviction) reason(u *preemption.Unit) cause {
	text := fmt.Sprintf("Preempted by %s (priority %d)", e.name, e.priority)
	if e.node != "" {
		text += " on node " + e.node
	}
	if e.needs != "" {
		text += ", which " + e.needs
	}
	switch u.Kind {
	case preemption.Surplus:
		text += "; its gang runs on without it"
	case preemption.Whole:
		text += "; all of gang " + u.Name + " go"
	}
	return cause{preemptor: &e.preemptor, text: text}
}

// cause is the preemptor of an eviction, in words for the pod's event.
type cause struct {
	*preemptor
	text string
}

// evictPod evicts one pod, and reports whether that needed no request: a pod without a node goes back to the queue. A
// pod that is gone already is no failure.
func (p *Plugin) evictPod(ctx context.Context, victim *v1.Pod, why cause) (inMemory bool, err error) {
	logger := klog.FromContext(ctx)
	if p.withdraw(ctx, victim) {
		p.victimEvent(victim, why, " (before it was bound)")
		return true, nil
	}
	if err := p.mark(ctx, victim, why); apierrors.IsInvalid(err) {
		// The pod's own fields make every update illegal: it goes without the condition.
		logger.Error(err, "Marking a victim failed, it is evicted all the same", "pod", klog.KObj(victim))
	} else if err != nil {
		return false, ignoreGone(err)
	}
	err = p.send(ctx, func(ctx context.Context) error {
		return p.requests.CoreV1().Pods(victim.Namespace).Delete(ctx, victim.Name, p.deletion(victim))
	})
	if err != nil {
		return false, ignoreGone(err)
	}
	logger.V(2).Info("Preempted a pod", "pod", klog.KObj(victim), "preemptor", why.name, "node", victim.Spec.NodeName)
	p.victimEvent(victim, why, "")
	return false, nil
}

// deletion returns the options of a victim's deletion: it and no other of its name, with its own grace period unless
// that is above the longest.
func (p *Plugin) deletion(victim *v1.Pod) metav1.DeleteOptions {
	uid := victim.UID
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	if grace, cut := p.guards.GracePeriod(victim); cut {
		seconds := int64(grace / time.Second)
		options.GracePeriodSeconds = &seconds
	}
	return options
}

// send sends a request when it is its turn, and again while the API server is busy.
func (p *Plugin) send(ctx context.Context, request func(context.Context) error) error {
	if err := p.requests.Turn(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	return retry.OnError(evictRetry, transient, func() error { return request(ctx) })
}

// withdraw takes back a pod without a node, which then waits for another place, and reports whether it could.
func (p *Plugin) withdraw(ctx context.Context, victim *v1.Pod) bool {
	if p.withdrawMember(ctx, victim) {
		return true
	}
	if waiting := p.handle.GetWaitingPod(victim.UID); waiting != nil {
		return waiting.Preempt(Name, "preempted")
	}
	if binding := p.handle.GetPodInPreBind(victim.UID); binding != nil {
		return binding.CancelPod("preempted by " + Name)
	}
	return false
}

// mark adds the condition DisruptionTarget, by which the owners of pods distinguish preemption from failure.
func (p *Plugin) mark(ctx context.Context, victim *v1.Pod, why cause) error {
	condition := &v1.PodCondition{
		Type:               v1.DisruptionTarget,
		ObservedGeneration: apipod.CalculatePodConditionObservedGeneration(&victim.Status, victim.Generation, v1.DisruptionTarget),
		Status:             v1.ConditionTrue,
		Reason:             v1.PodReasonPreemptionByScheduler,
		Message:            why.text,
	}
	status := victim.Status.DeepCopy()
	if !apipod.UpdatePodCondition(status, condition) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": victim.UID}, // not another pod of the name
		"status":   map[string]any{"conditions": []*v1.PodCondition{condition}},
	})
	if err != nil {
		return err
	}
	return p.send(ctx, func(ctx context.Context) error {
		_, err := p.requests.CoreV1().Pods(victim.Namespace).Patch(ctx, victim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
}

// ignoreGone drops the errors which say that the pod is gone, or that another one has its name.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// transient reports whether another try of a request may succeed: the API server is busy, or did not answer. A second
// try does no harm for either request.
func transient(err error) bool {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

// victimEvent writes the event of a victim.
func (p *Plugin) victimEvent(victim *v1.Pod, why cause, how string) {
	if recorder := p.handle.EventRecorder(); recorder != nil {
		recorder.Eventf(victim, why.object, v1.EventTypeNormal, "Preempted", "Preempting", "%s", shorten(why.text+how))
	}
}
