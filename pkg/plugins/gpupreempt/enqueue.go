package gpupreempt

import (
	"context"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// PreEnqueue keeps a preemptor out of the queue while the plugin evicts its victims: a try would be in vain. After the
// requests for the evictions the scheduler tries it like any other pod, since room may come elsewhere.
func (p *Plugin) PreEnqueue(ctx context.Context, pod *v1.Pod) *fwk.Status {
	if p.isEvicting(pod) {
		return verdict.New(fwk.UnschedulableAndUnresolvable, "the pods that make room for the pod are being evicted")
	}
	return p.plain.PreEnqueue(ctx, pod)
}

// EventsToRegister names the events after which the scheduler calls PreEnqueue again for a pod that it kept out.
// Everything else that ends the wait of a preemptor activates it. Its evictions are through or failed, its victims are
// gone, its pause or that of its victims is over, or a PodDisruptionBudget allows more.
func (p *Plugin) EventsToRegister(ctx context.Context) ([]fwk.ClusterEventWithHint, error) {
	return p.plain.EventsToRegister(ctx)
}

// watch follows the pods and the PodDisruptionBudgets until ctx ends.
func (p *Plugin) watch(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	options := cache.HandlerOptions{Logger: &logger}
	factory := p.handle.SharedInformerFactory()
	_, err := factory.Core().V1().Pods().Informer().AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
		UpdateFunc: p.podChanged,
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if pod, ok := object.(*v1.Pod); ok {
				p.podGone(pod)
			}
		},
	}, options)
	if err != nil {
		return err
	}
	_, err = factory.Policy().V1().PodDisruptionBudgets().Informer().AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, now any) {
			before, okBefore := old.(*policyv1.PodDisruptionBudget)
			budget, ok := now.(*policyv1.PodDisruptionBudget)
			if ok && okBefore && (budget.Status.DisruptionsAllowed > before.Status.DisruptionsAllowed || p.charges(stampOf(before)) > p.charges(stampOf(budget))) {
				p.budgetsEased(ctx)
			}
		},
		DeleteFunc: func(any) { p.budgetsEased(ctx) },
	}, options)
	return err
}

// podChanged handles a change of a pod: a preemptor has its node, or a watch that broke shows another pod of the name.
func (p *Plugin) podChanged(old, now any) {
	before, okBefore := old.(*v1.Pod)
	pod, ok := now.(*v1.Pod)
	switch {
	case !ok || !okBefore:
	case before.UID != pod.UID:
		p.podGone(before)
	case before.Spec.NodeName == "" && pod.Spec.NodeName != "":
		p.nominated.Delete(pod.UID)
		p.ended(pod, false)
	case before.Status.NominatedNodeName != pod.Status.NominatedNodeName:
		p.nominated.Delete(pod.UID)
	}
}

// podGone handles the end of a pod: a preemptor, whose remaining victims stay, or a victim. A budget allows more when a victim is gone
// that it did not count yet.
func (p *Plugin) podGone(pod *v1.Pod) {
	p.nominated.Delete(pod.UID)
	p.ended(pod, true)
	before := p.allCharges()
	p.machine.Step(func(machine.Locked) reservation.Event { return reservation.VictimGone{UID: kube.UIDOf(pod)} })
	if p.allCharges() < before {
		p.budgetsEased(context.Background())
	}
}

// isEvicting reports whether evictions for a preemptor are under way.
func (p *Plugin) isEvicting(pod *v1.Pod) (is bool) {
	p.machine.Lock(func(l machine.Locked) { is = l.State.Evicts(reservation.PodPreemptor(kube.UIDOf(pod))) })
	return is
}

// budgetsEased has the pods tried again that wait for a PodDisruptionBudget.
func (p *Plugin) budgetsEased(ctx context.Context) {
	p.machine.Step(func(machine.Locked) reservation.Event { return reservation.BudgetsEased{} })
	p.machine.Flush(ctx)
}
