package gpushare

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/learning"
	"github.com/tandem-gpu/tandem/internal/spelling"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// missingGrace is how long a pod may be older than the WorkloadProfile that it names. Shorter warns of profiles
	// that a user creates at the same time as the pod; longer writes the event when the user does not look any more.
	missingGrace = 5 * time.Second
	// missingStep is the time between two looks at the pods whose grace has passed.
	missingStep = time.Second
	// mostCompared bounds the names that are compared with a missing one, the first by the alphabet: 1,000 take 4 ms. Tenants may
	// have as many profiles and pods as they like.
	mostCompared = 1000
)

// missing holds the pods that name an unknown WorkloadProfile, until they are gone. The zero value is empty.
type missing struct {
	mu   sync.Mutex
	pods map[vgpu.UID]*naming
}

// naming is a pod that names a profile, since when, and whether an event has said that there is none.
type naming struct {
	pod        *v1.Pod
	since      time.Time
	isReported bool
}

// note takes in a pod before its placement. A pod that names another profile than before begins anew.
func (m *missing) note(pod *v1.Pod, now time.Time) {
	name := pod.Labels[v1alpha1.LabelProfile]
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.pods[kube.UIDOf(pod)]
	switch {
	case name == "":
		delete(m.pods, kube.UIDOf(pod))
	case known == nil || known.pod.Labels[v1alpha1.LabelProfile] != name:
		if m.pods == nil {
			m.pods = map[vgpu.UID]*naming{}
		}
		m.pods[kube.UIDOf(pod)] = &naming{pod: pod, since: now}
	}
}

func (m *missing) remove(uid vgpu.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
}

// due returns the pods to report, each once, and drops those without a problem.
func (m *missing) due(now time.Time, settled func(*v1.Pod) bool) []*v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	var pods []*v1.Pod
	for uid, known := range m.pods {
		switch {
		case known.isReported || now.Sub(known.since) < missingGrace:
		case settled(known.pod):
			delete(m.pods, uid)
		default:
			known.isReported = true
			pods = append(pods, known.pod)
		}
	}
	return pods
}

// reportMissing writes events on pods which name a WorkloadProfile that does not exist, once for each pod and name. It
// waits for the first list of the profiles, and only the leading scheduler does it.
func (p *Plugin) reportMissing(ctx context.Context) {
	if !p.profilesKnown.Load() || !p.leads.Load() {
		return
	}
	know := p.state.learner.Snapshot()
	for _, pod := range p.missing.due(p.now(), func(pod *v1.Pod) bool { return p.hasProfile(pod, know) || !p.exists(pod) }) {
		if recorder := p.handle.EventRecorder(); recorder != nil {
			text := explainMissing(pod, know.Profiles(pod.Namespace))
			recorder.WithLogger(klog.FromContext(ctx)).Eventf(pod, nil, v1.EventTypeWarning, "WorkloadProfileNotFound", kube.EventAction(text), "%s", text)
		}
	}
}

// exists reports whether the informer shows a pod: one that had gone before note would stay for ever.
func (p *Plugin) exists(pod *v1.Pod) bool {
	seen, err := p.state.pods.Pods(pod.Namespace).Get(pod.Name)
	return err == nil && seen.UID == pod.UID
}

// hasProfile reports whether the profile of a pod exists: a WorkloadProfile of its namespace, or the throughputs of the
// arguments.
func (p *Plugin) hasProfile(pod *v1.Pod, know *learning.Snapshot) bool {
	return know.Workload(know.Number(pod)) != nil || p.state.curves.Rates.Knows(pod.Labels[v1alpha1.LabelProfile])
}

// explainMissing says that the profile that a pod names does not exist, what becomes of the pod without it, and which of those that
// exist was probably meant.
func explainMissing(pod *v1.Pod, exist []string) string {
	name := pod.Labels[v1alpha1.LabelProfile]
	text := fmt.Sprintf("metadata.labels[%s]: the WorkloadProfile %s/%s does not exist", v1alpha1.LabelProfile, pod.Namespace, name)
	slices.Sort(exist)
	if nearest, near := spelling.Nearest(name, exist[:min(len(exist), mostCompared)]); near {
		text += fmt.Sprintf(", the nearest that does is %s", nearest)
	}
	for _, wanted := range []string{v1alpha1.AnnotationRate, v1alpha1.AnnotationMaxLatency} {
		if _, ok := pod.Annotations[wanted]; ok {
			return text + fmt.Sprintf(": the pod waits, since the scheduler looks up there which share keeps its %s; "+
				"correct the label, or create the WorkloadProfile", wanted)
		}
	}
	return text + ": the scheduler places the pod as one of an unknown workload, which is taken to use all SMs that it may, and " +
		"forgets what it learns of it when it restarts; correct the label, or create the WorkloadProfile"
}
