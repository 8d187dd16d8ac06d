package fleets

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Reasons of the condition Prioritized.
const (
	reasonPrioritized      = "Prioritized"
	reasonPriorityNotAbove = "PriorityNotAbove"
	reasonPriorityUnknown  = "NoPods"
	reasonLendsNothing     = "LendsNothing"
)

// ranked is a pod with its priority.
type ranked struct {
	pod      *v1.Pod
	priority int32
}

func rankOf(pod *v1.Pod) ranked {
	r := ranked{pod: pod}
	if p := pod.Spec.Priority; p != nil {
		r.priority = *p
	}
	return r
}

// String names the pod and where its priority comes from: "pod ns/bert-0 has the priority 0, without a PriorityClass".
func (r *ranked) String() string {
	class := "without a PriorityClass"
	if name := r.pod.Spec.PriorityClassName; name != "" {
		class = "of PriorityClass " + name
	}
	return fmt.Sprintf("pod %s/%s has the priority %d, %s", r.pod.Namespace, r.pod.Name, r.priority, class)
}

// borrowers returns the member of elastic jobs with the highest priority on each GPU model. These jobs use what fleets on the model lend.
func (p *pass) borrowers(nodes []v1alpha1.GPUNode) (map[string]ranked, error) {
	models := map[string]map[string]bool{} // by node
	for i := range nodes {
		of := map[string]bool{}
		for k := range nodes[i].Status.Devices {
			of[nodes[i].Status.Devices[k].Model] = true
		}
		models[nodes[i].Name] = of
	}
	pods, err := p.pods.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	highest := map[string]ranked{}
	for _, pod := range pods {
		if _, elastic := pod.Annotations[v1alpha1.AnnotationElasticWorkers]; !elastic || hasEnded(pod) {
			continue
		}
		for model := range models[pod.Spec.NodeName] {
			r := rankOf(pod)
			if other, some := highest[model]; !some || cmp.Or(cmp.Compare(r.priority, other.priority), cmp.Compare(named(other.pod), named(r.pod))) > 0 {
				highest[model] = r
			}
		}
	}
	return highest, nil
}

func hasEnded(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

func named(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

// maxChecks bounds how many requirements of selectors are compared with pods for one fleet: some 10 ms. Users choose selectors and pods. The
// controller knows no pod of the variants beyond it.
const maxChecks = 200_000

// lowest returns the pod of a variant with the lowest priority, nil where it has none.
func (v *visit) lowest(i int) (*ranked, error) {
	t := v.targets[i]
	if t == nil || t.selector == nil {
		return nil, nil
	}
	pods, err := v.pods.Pods(v.object.Namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list the pods of variant %s: %w", v.fleet.Variants[i].Name, err)
	}
	requirements, _ := t.selector.Requirements()
	if v.checked += len(pods) * max(1, len(requirements)); v.checked > maxChecks {
		return nil, nil
	}
	var all []ranked
	for _, pod := range pods {
		if !hasEnded(pod) && t.selector.Matches(labels.Set(pod.Labels)) {
			all = append(all, rankOf(pod))
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	least := slices.MinFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	return &least, nil
}

// prioritized says whether the pods of the variants that lend GPUs have a priority above that of the elastic jobs on these GPUs.
func (v *visit) prioritized() (condition, error) {
	c := condition{kind: v1alpha1.ConditionPrioritized, status: metav1.ConditionTrue, reason: reasonLendsNothing,
		message: "no elastic job runs on a GPU model of a variant with gpuModel and slots"}
	known := false
	for i := range v.object.Spec.Variants {
		declared := &v.object.Spec.Variants[i]
		job, lends := v.jobs[declared.GPUModel]
		if !lends || declared.Slots == 0 {
			continue
		}
		pod, err := v.lowest(i)
		switch {
		case err != nil:
			return c, err
		case pod == nil && known:
		case pod == nil:
			c.status, c.reason, c.message = metav1.ConditionUnknown, reasonPriorityUnknown, "no variant that lends GPUs to elastic jobs has a pod, which would show its priority"
		case pod.priority > job.priority:
			known = true
			c.status, c.reason, c.message = metav1.ConditionTrue, reasonPrioritized, "the replicas have a priority above that of the elastic jobs on their GPU models"
		default:
			ref := &declared.ScaleTargetRef
			return condition{c.kind, metav1.ConditionFalse, reasonPriorityNotAbove, fmt.Sprintf("variant %s: %s, and %s, of an elastic job on %s: "+
				"the scheduler takes no GPU from the job for a replica. Set priorityClassName in the pod template of %s %s to a class with a value above %d, or give the job a lower one",
				declared.Name, pod, &job, declared.GPUModel, ref.Kind, ref.Name, job.priority)}, nil
		}
	}
	return c, nil
}
