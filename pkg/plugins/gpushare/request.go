package gpushare

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// readRequest returns the request of a pod that begins now.
func readRequest(pod *v1.Pod) (vgpu.Request, error) { return kube.WholeRequest(pod, time.Now()) }

// arrived counts a pod for the mix, where it has one to learn. Pods that come with a node rather than with the load do
// not count: those of DaemonSets and static ones. Pods without vGPUs count where the plugin scores nodes for them.
func (p *Plugin) arrived(pod *v1.Pod) {
	if p.arrivals == nil || comesWithNode(pod) || !p.scoresAll && !kube.WantsVGPU(pod) {
		return
	}
	r, err := readRequest(pod)
	if err != nil {
		return
	}
	p.arrivals.observe(pod.Namespace, fragmentation.KindOf(&r), pod.CreationTimestamp.Time)
}

func comesWithNode(pod *v1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && slices.Contains([]string{"DaemonSet", "Node"}, owner.Kind)
}
