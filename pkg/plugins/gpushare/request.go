package gpushare

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	"github.com/tandem-gpu/tandem/internal/kube"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// readRequest returns what a pod asks for, of devices and of its host.
func readRequest(pod *v1.Pod) (vgpu.Request, error) {
	r, err := kube.Request(pod)
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	r.Host = vgpu.Room{MilliCPU: requests.Cpu().MilliValue(), Memory: vgpu.Bytes(requests.Memory().Value())}
	if deadline := pod.Spec.ActiveDeadlineSeconds; deadline != nil {
		r.Ends = time.Now().Unix() + *deadline
	}
	return r, err
}

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
	k := fragmentation.KindOf(&r)
	if k.Slots == 0 {
		k = fragmentation.Kind{Weight: 1} // what is free is lost to it whatever its CPU
	}
	if countable(k) {
		p.arrivals.observe(k, pod.CreationTimestamp.Time)
	}
}

func comesWithNode(pod *v1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && slices.Contains([]string{"DaemonSet", "Node"}, owner.Kind)
}
