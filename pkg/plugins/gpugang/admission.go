package gpugang

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// admission says which nodes take which members by all that is not devices and room of the host, as far as a look tells: the
// in-tree plugins decide when the member is tried.
type admission struct {
	nodes []fwk.NodeInfo
	// most is how many members a node takes that refused one, by name.
	most  map[string]int
	kinds []kind
}

// kind is members that the same nodes take.
type kind struct {
	pod      *v1.Pod
	affinity nodeaffinity.RequiredNodeAffinity
	// but are the nodes where the pod may have devices, which it would get again.
	but []vgpu.Assignment
	// known is the answer per node, plus one; 0 where nobody asked.
	known []int32
}

// kind returns the number of the kind of a pod, which takes none of the nodes where it may have devices.
func (a *admission) kind(pod *v1.Pod, maybe []vgpu.Assignment) int {
	for i := range a.kinds {
		if len(maybe) == 0 && len(a.kinds[i].but) == 0 && alike(a.kinds[i].pod, pod) {
			return i
		}
	}
	a.kinds = append(a.kinds, kind{pod: pod, affinity: nodeaffinity.GetRequiredNodeAffinity(pod), but: maybe})
	return len(a.kinds) - 1
}

// alike reports whether the same nodes take both pods.
func alike(a, b *v1.Pod) bool {
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

// count returns how many members of a kind a node takes: all that it has places for pods for, or none.
func (a *admission) count(number, node int) int {
	k := &a.kinds[number]
	if k.known == nil {
		k.known = make([]int32, len(a.nodes))
	}
	if k.known[node] == 0 {
		k.known[node] = int32(a.look(k, a.nodes[node])) + 1
	}
	return int(k.known[node]) - 1
}

func (a *admission) look(k *kind, info fwk.NodeInfo) int {
	node := info.Node()
	most, capped := a.most[node.Name]
	if capped && most == 0 || slices.ContainsFunc(k.but, func(a vgpu.Assignment) bool { return a.Node == node.Name }) {
		return 0
	}
	unschedulable := v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}
	if node.Spec.Unschedulable && !corev1helpers.TolerationsTolerateTaint(klog.Background(), k.pod.Spec.Tolerations, &unschedulable, true) {
		return 0
	}
	if _, refused := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, k.pod.Spec.Tolerations, keepsOut, true); refused {
		return 0
	}
	if matches, err := k.affinity.Match(node); err != nil || !matches {
		return 0
	}
	places := max(0, info.GetAllocatable().GetAllowedPodNumber()-len(info.GetPods()))
	if capped {
		return min(places, most)
	}
	return places
}

func keepsOut(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}
