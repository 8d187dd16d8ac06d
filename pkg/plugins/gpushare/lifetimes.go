package gpushare

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/lifetime"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// lifetimes is a lifetime.Learner with a lock: how long pods run, as the plugin learns it from those that ended.
type lifetimes struct {
	mu      sync.Mutex
	learner *lifetime.Learner
	// told is what pods have said of their progress, and left are those of them that have left, the first ones first.
	told map[types.UID]*toldPod
	left []types.UID
}

func newLifetimes() (*lifetimes, error) {
	learner, err := lifetime.NewLearner(lifetime.Defaults())
	return &lifetimes{learner: learner, told: map[types.UID]*toldPod{}}, err
}

// These say how a pod ended beside what was predicted at its start.
const (
	endEarly    = "early"
	endExpected = "expected"
	endLate     = "late"
	endStopped  = "stopped"
)

// The interval in which four of five pods end, where the predictions are right.
const (
	soonest = .1
	latest  = .9
)

// observe learns from a pod that ended, and returns how it ended beside the prediction at its start, when it had made no progress.
func (l *lifetimes) observe(o lifetime.Observation) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	start := o.Pod
	start.Projected = 0
	curve, err := l.learner.Predict(start, 0)
	if err != nil {
		return "", err
	}
	if err := l.learner.Observe(o); err != nil {
		return "", err
	}
	switch {
	case o.Stopped:
		return endStopped, nil
	case o.Length < curve.Quantile(soonest):
		return endEarly, nil
	case o.Length > curve.Quantile(latest):
		return endLate, nil
	}
	return endExpected, nil
}

// lifetimeOf returns what is known of a pod before it ends. Workloads of one name in two namespaces need not be alike, and users of one
// namespace must not find out what runs in another.
func lifetimeOf(pod *v1.Pod, model string) lifetime.Pod {
	p := lifetime.Pod{User: pod.Namespace, Workload: pod.Namespace + "/" + workloadOf(pod), Model: model}
	if r, err := kube.Request(pod); err == nil {
		p.Size = int(r.PeakSlots())
	}
	if bound := pod.Spec.ActiveDeadlineSeconds; bound != nil {
		p.Declared = float64(*bound)
	}
	return p
}

// observationOf returns how long a pod ran that has ended, and when it ended. It reports false for a pod that does not count: it has no
// share, runs still, ran for no time that is known, or could not end by itself. A pod is stopped that was deleted, or evicted by anybody, before its end.
func observationOf(pod *v1.Pod, model string) (o lifetime.Observation, end time.Time, counts bool) {
	if pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
		return o, end, false
	}
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if t := list[i].State.Terminated; t != nil && t.FinishedAt.After(end) {
				end = t.FinishedAt.Time
			}
		}
	}
	if pod.Status.StartTime == nil || !end.After(pod.Status.StartTime.Time) || !kube.WantsVGPU(pod) || !ends(pod) {
		return o, end, false
	}
	o.Pod, o.Length = lifetimeOf(pod, model), end.Sub(pod.Status.StartTime.Time).Seconds()
	o.Stopped = deletedBefore(pod, end) || disrupted(pod)
	return o, end, true
}

// ends reports whether a pod ends by itself: others run until somebody deletes them, or as long as their node.
func ends(pod *v1.Pod) bool {
	return !comesWithNode(pod) && (pod.Spec.RestartPolicy != v1.RestartPolicyAlways || pod.Spec.ActiveDeadlineSeconds != nil)
}

// deletedBefore reports whether somebody deleted a pod before its end. Its time of deletion is that of the request and the grace.
func deletedBefore(pod *v1.Pod, end time.Time) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	asked := pod.DeletionTimestamp.Time
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		asked = asked.Add(-time.Duration(*grace) * time.Second)
	}
	return !asked.After(end)
}

// disrupted reports whether a pod was evicted: by a preemption, a taint, the eviction API, or its kubelet.
func disrupted(pod *v1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue {
			return true
		}
	}
	return false
}

// modelOf returns the GPU model of the first device of a pod, "" where that is not known.
func (p *Plugin) modelOf(pod *v1.Pod) string {
	a, err := kube.AssignmentOf(pod)
	if err != nil || len(a.Containers) == 0 || len(a.Containers[0].Devices) == 0 {
		return ""
	}
	p.state.mu.RLock()
	defer p.state.mu.RUnlock()
	n := p.state.nodes[a.Node]
	if n == nil || n.empty == nil {
		return ""
	}
	return modelOn(n.empty, a.Containers[0].Devices[0])
}

// modelOn returns the model of a device of a node, "" where the node has no such device.
func modelOn(n *vgpu.Node, id vgpu.DeviceID) string {
	devices := n.Devices()
	for i := range devices {
		if devices[i].ID == id {
			return devices[i].Model
		}
	}
	return ""
}

// learnEnd learns from a pod that ended.
func (p *Plugin) learnEnd(logger klog.Logger, e *endedPod) {
	result, err := p.lifetimes.observe(e.seen)
	if err != nil {
		logger.V(2).Info("Learning how long a pod ran failed", "pod", klog.KObj(e), "err", err)
		return
	}
	p.metrics.ended.WithLabelValues(result).Inc()
}
