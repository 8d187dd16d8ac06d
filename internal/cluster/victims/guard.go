package victims

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/preemption"
)

// Guards say which pods preemption must not evict, whatever the priority of the preemptor.
type Guards struct {
	namespaces map[string]bool
	selector   labels.Selector
	minimum    time.Duration
	byClass    map[string]time.Duration
	// grace is the longest grace period of a victim, 0 for the pod's own.
	grace time.Duration
}

// NewGuards returns the guards of legal arguments. The error says that a label selector is none.
func NewGuards(args *config.GPUPreemptArgs) (*Guards, error) {
	g := &Guards{
		namespaces: map[string]bool{}, selector: labels.Nothing(),
		minimum: args.MinimumRuntime.Duration, byClass: map[string]time.Duration{}, grace: args.MaximumGracePeriod.Duration,
	}
	for _, name := range args.Protected.Namespaces {
		g.namespaces[name] = true
	}
	if s := args.Protected.LabelSelector; s != nil {
		var err error
		if g.selector, err = metav1.LabelSelectorAsSelector(s); err != nil {
			return nil, fmt.Errorf("read selector of protected pods: %w", err)
		}
	}
	for _, class := range args.MinimumRuntimes {
		if class.Runtime != nil {
			g.byClass[class.PriorityClassName] = class.Runtime.Duration
		}
	}
	return g, nil
}

// Of returns the guard of a pod, the most lasting reason first, "" for none.
//
// Mirror pods are foreign: they stand for a static pod that its kubelet runs from a file, and go on after a deletion.
// Pods of DaemonSets are not: as in the stock scheduler their priority decides. Their controller makes them anew for
// the same node, where they wait for room behind the preemptor.
func (g *Guards) Of(pod *v1.Pod, now time.Time) preemption.Guard {
	if lasting := g.lasting(pod); lasting != "" {
		return lasting
	}
	r := run{}
	if r.start, r.started = startOf(pod); r.shorter(g.least(pod), now) {
		return preemption.TooYoung
	}
	return ""
}

// lasting returns the guard of a pod that holds however long the pod runs.
func (g *Guards) lasting(pod *v1.Pod) preemption.Guard {
	switch {
	case isMirror(pod):
		return preemption.Foreign
	case g.namespaces[pod.Namespace] || g.selector.Matches(labels.Set(pod.Labels)):
		return preemption.Protected
	}
	return ""
}

func isMirror(pod *v1.Pod) bool {
	_, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]
	return mirror
}

// OldEnough returns when a pod has run for the minimum of its priority class, zero for an unknown start.
func (g *Guards) OldEnough(pod *v1.Pod) time.Time {
	start, started := startOf(pod)
	if !started {
		return time.Time{}
	}
	return start.Add(g.least(pod))
}

// least returns how long a pod runs at least.
func (g *Guards) least(pod *v1.Pod) time.Duration {
	if least, named := g.byClass[pod.Spec.PriorityClassName]; named {
		return least
	}
	return g.minimum
}
