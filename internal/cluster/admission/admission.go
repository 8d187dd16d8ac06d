// Package admission says which nodes take a pod, apart from devices, room of the host and other pods: by selectors,
// affinity to nodes, taints, cordons.
//
// The check keeps hopeless nodes out of a search. The scheduler's in-tree plugins decide.
package admission

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Demand is what a pod demands of its node.
type Demand struct {
	pod      *v1.Pod
	affinity nodeaffinity.RequiredNodeAffinity
}

// Of returns the demand of a pod. The demand refers to the pod.
func Of(pod *v1.Pod) Demand {
	return Demand{pod: pod, affinity: nodeaffinity.GetRequiredNodeAffinity(pod)}
}

// Alike reports whether the same nodes take both pods.
func Alike(a, b *v1.Pod) bool {
	return equality.Semantic.DeepEqual(a.Spec.NodeSelector, b.Spec.NodeSelector) &&
		equality.Semantic.DeepEqual(nodeAffinity(a), nodeAffinity(b)) &&
		equality.Semantic.DeepEqual(a.Spec.Tolerations, b.Spec.Tolerations)
}

func nodeAffinity(pod *v1.Pod) *v1.NodeAffinity {
	if pod.Spec.Affinity == nil {
		return nil
	}
	return pod.Spec.Affinity.NodeAffinity
}

// MetBy reports whether the node may take the pod. An affinity that cannot be read is met by no node.
func (d *Demand) MetBy(node *v1.Node) bool { return d.Bar(node) == "" }

// Results of Bar, in the words of the in-tree plugins. An untolerated taint has its name beside.
const (
	unschedulable = "node(s) were unschedulable"
	untolerated   = "node(s) had untolerated taint"
	unmatched     = "node(s) didn't match Pod's node affinity/selector"
)

// Bar returns why the node does not take the pod, in the words of the scheduler's events, "" where it may take it. Among
// several reasons Bar returns the one that the in-tree plugins give first.
func (d *Demand) Bar(node *v1.Node) string {
	tolerations := d.pod.Spec.Tolerations
	cordon := v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}
	if node.Spec.Unschedulable && !corev1helpers.TolerationsTolerateTaint(klog.Background(), tolerations, &cordon, true) {
		return unschedulable
	}
	if t, refused := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, tolerations, keepsOut, true); refused {
		return untolerated + " {" + t.Key + ": " + t.Value + "}"
	}
	if matches, err := d.affinity.Match(node); err != nil || !matches {
		return unmatched
	}
	return ""
}

func keepsOut(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}
