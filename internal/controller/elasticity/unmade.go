package elasticity

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// variantOf names a variant of a fleet. A fleet that is made anew under its name is the same one.
type variantOf struct{ namespace, fleet, variant string }

// unmadeWait is how long a variant has lacked pods, and how many it had when they last became more.
type unmadeWait struct {
	since time.Time
	made  int
}

// unmade counts the replicas of fleets that have no pods yet.
type unmade struct {
	now    time.Time
	before map[variantOf]unmadeWait
	// waits are those of this pass.
	waits map[variantOf]unmadeWait
	// patience is how long GPUs are kept for a variant whose pods do not become more: something keeps them from being made, such as a quota.
	patience time.Duration
	// pods are the pods with vGPUs that run or wait in the namespaces of fleets.
	pods map[string][]*v1.Pod
	// checks is how many requirements of selectors may still be compared with a pod in this pass. Users choose selectors, variants and pods.
	checks int
}

// maxChecks bounds unmade.checks: some 10 ms. When they are used up, all replicas count as made.
const maxChecks = 200_000

func (p *pass) newUnmade() *unmade {
	u := &unmade{
		now: p.now, before: p.unmade, waits: map[variantOf]unmadeWait{}, patience: time.Duration(p.config.GiveBack * float64(time.Second)),
		pods: make(map[string][]*v1.Pod, len(p.fleets.Items)), checks: maxChecks,
	}
	for i := range p.fleets.Items {
		u.pods[p.fleets.Items[i].Namespace] = nil
	}
	if len(u.pods) == 0 {
		return u
	}
	for _, pod := range p.objects.Pods {
		ended := pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if all, has := u.pods[pod.Namespace]; has && !ended && kube.WantsVGPU(pod) {
			u.pods[pod.Namespace] = append(all, pod)
		}
	}
	return u
}

// count returns how many replicas of a variant have no pods yet, 0 where that is unknown or has lasted too long.
func (u *unmade) count(namespace, fleet string, s *v1alpha1.FleetVariantStatus) int {
	if s.Ready >= s.Replicas || s.Selector == "" {
		return 0
	}
	selector, err := labels.Parse(s.Selector)
	if err != nil {
		return 0
	}
	requirements, _ := selector.Requirements()
	pods := u.pods[namespace]
	if u.checks -= len(pods) * max(1, len(requirements)); u.checks < 0 {
		return 0
	}
	made := 0
	for _, pod := range pods {
		if selector.Matches(labels.Set(pod.Labels)) {
			made++
		}
	}
	lack := int(s.Replicas) - made
	if lack <= 0 {
		return 0
	}
	key := variantOf{namespace, fleet, s.Name}
	wait, waited := u.before[key]
	if !waited || made > wait.made {
		wait = unmadeWait{u.now, made}
	}
	u.waits[key] = wait
	if u.now.Sub(wait.since) >= u.patience {
		return 0
	}
	return lack
}
