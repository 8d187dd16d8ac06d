package gpupreempt

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/kube"
	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// candidates returns the pods of the nodes as possible victims of a preemptor with a priority, and the pods in the same order.
// Shares are read from the ledgers. Pods that stay anyway are not listed: those of the priority or a higher one, unless they
// are members of gangs or leave, and those that should be gone and are not.
func (p *Plugin) candidates(nodes []fwk.NodeInfo, ledgers []*vgpu.Node, priority int32) (*preemption.Candidates, []*v1.Pod, error) {
	budgets, err := p.budgets.List(labels.Everything())
	if err != nil {
		return nil, nil, fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	shares := kube.SharesOf(ledgers)
	r := roster{gangs: p.gangsOrNil(), number: map[podgroup.Ref]int{}}
	var placed []kube.Placed
	var pods []*v1.Pod
	now := p.now()
	for _, info := range nodes {
		for _, at := range info.GetPods() {
			pod := at.GetPod()
			if pod.Spec.NodeName == "" || p.stays(pod, priority, &r) {
				continue
			}
			host := at.CalculateResource().Resource
			placed = append(placed, kube.Placed{
				Pod: pod, Share: shares[uidOf(pod)],
				Host: vgpu.Room{MilliCPU: host.GetMilliCPU(), Memory: vgpu.Bytes(host.GetMemory())},
			})
			pods = append(pods, pod)
		}
	}
	c := p.guards.Candidates(placed, budgets, r.of, now)
	c.Gangs = r.list
	for i := range c.Pods {
		c.Pods[i].Leaving = c.Pods[i].Leaving || p.state.leaves(c.Pods[i].UID, now)
	}
	return c, pods, nil
}

// stays reports whether a pod need not be listed.
func (p *Plugin) stays(pod *v1.Pod, priority int32, r *roster) bool {
	if pod.DeletionTimestamp != nil {
		return kube.Overdue(pod, p.now())
	}
	return corev1helpers.PodPriority(pod) >= priority && r.of(pod) < 0 && !p.state.leaves(uidOf(pod), p.now())
}

// roster numbers the gangs of pods.
type roster struct {
	gangs  Gangs
	number map[podgroup.Ref]int
	list   []preemption.Gang
}

// of returns the number of a pod's gang, −1 for none.
func (r *roster) of(pod *v1.Pod) int {
	if r.gangs == nil {
		return -1
	}
	ref, member := r.gangs.Of(pod)
	if !member {
		return -1
	}
	number, known := r.number[ref]
	if !known {
		number = len(r.list)
		r.number[ref] = number
		r.list = append(r.list, preemption.Gang{Name: ref.String(), MinCount: r.gangs.Least(ref)})
	}
	return number
}

// seen returns a pod as the informer has it, nil where it has none of that UID.
func (p *Plugin) seen(pod *v1.Pod) *v1.Pod {
	now, err := p.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID {
		return nil
	}
	return now
}

func pathOf(pod *v1.Pod) string { return klog.KObj(pod).String() }
