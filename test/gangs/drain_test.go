package gangs

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusedAgain is how long `kubectl drain` waits before it asks again for an eviction that the API server refused.
const refusedAgain = 5 * time.Second

// drain does what `kubectl drain` does: it cordons a node, and evicts one after the other of the pods that are there now. A pod that is
// bound there later stays. Jobs and other owners make their pods again, elsewhere; pods without an owner are gone.
func (w *world) drain(s step) error {
	h := w.hosts[s.name]
	if h == nil || h.lost || h.cordoned {
		return nil
	}
	if err := w.cordon(h, true); err != nil {
		return err
	}
	var left []*v1.Pod
	for _, pod := range w.pods() {
		if pod.Spec.NodeName == h.name {
			left = append(left, pod)
		}
	}
	w.evictFrom(h, h.cordons, left, s.span("every"))
	return nil
}

// uncordon lets pods go to a node again. A drain of it that is not over ends.
func (w *world) uncordon(s step) error {
	h := w.hosts[s.name]
	if h == nil || h.lost || !h.cordoned {
		return nil
	}
	return w.cordon(h, false)
}

func (w *world) cordon(h *host, cordoned bool) error {
	w.mu.Lock()
	h.cordoned = cordoned
	h.cordons++
	w.mu.Unlock()
	_, err := w.api.core.CoreV1().Nodes().Update(w.ctx, h.node(), metav1.UpdateOptions{})
	return err
}

// evictFrom evicts the first of some pods, and the others later, while the node stays cordoned as it was when the drain began.
func (w *world) evictFrom(h *host, cordons int, left []*v1.Pod, every time.Duration) {
	w.mu.Lock()
	ended := h.lost || h.cordons != cordons
	w.mu.Unlock()
	if len(left) == 0 || ended || w.ctx.Err() != nil {
		return
	}
	pod := left[0]
	if now := w.api.pod(pod.Name); now != nil && now.UID == pod.UID && now.DeletionTimestamp == nil {
		w.outside(pod.Name, "drained")
		err := w.api.core.PolicyV1().Evictions(namespace).Evict(w.ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: pod.Name},
			DeleteOptions: metav1.NewPreconditionDeleteOptions(string(pod.UID)),
		})
		if apierrors.IsTooManyRequests(err) {
			time.AfterFunc(refusedAgain, func() { w.evictFrom(h, cordons, left, every) })
			return
		}
		w.mu.Lock()
		w.tally.drained++
		w.mu.Unlock()
	}
	time.AfterFunc(every, func() { w.evictFrom(h, cordons, left[1:], every) })
}

// evictedByRequest reports whether the Eviction API ends a pod: a drain, or the controller, which makes an elastic gang smaller.
func evictedByRequest(pod *v1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.DisruptionTarget && c.Reason == "EvictionByEvictionAPI" {
			return true
		}
	}
	return false
}

// ownerGoesOn has the owner of a pod that was drained make it again. jobGoesOn does so for elastic gangs.
func (w *world) ownerGoesOn(t *team, pod *v1.Pod, what string) {
	if what == "gone" && t.elastic == "" && (t.again || t.ofJob) && evictedByRequest(pod) {
		w.makeAgain(t, pod)
	}
}

// disrupted returns a pod with the condition that the API server gives one that is evicted by request.
func disrupted(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: fmt.Sprintf("Eviction API: evicting %s", pod.Name),
		LastTransitionTime: moment(),
	})
	return pod
}
