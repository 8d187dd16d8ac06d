package recorder

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// resourceGPU is what NVIDIA's device plugin advertises: whole GPUs.
const resourceGPU = "nvidia.com/gpu"

// Labels of GPU feature discovery.
const (
	labelCount    = "nvidia.com/gpu.count"
	labelProduct  = "nvidia.com/gpu.product"
	labelMemory   = "nvidia.com/gpu.memory"
	labelReplicas = "nvidia.com/gpu.replicas"
	labelStrategy = "nvidia.com/gpu.sharing-strategy"
	prefixMIG     = "nvidia.com/mig-"
)

// slots of each GPU that labels describe: the agent's default. A pod that asks for k GPUs asks for so many slots of each of k.
const slots = 10

// devicesOf returns the GPUs of a node. A node that has some, and of which they are not known, has a reason instead; one without GPUs has
// neither.
func devicesOf(n *v1.Node, g *v1alpha1.GPUNode) (devices []vgpu.Device, why string) {
	if g != nil {
		devices, err := kube.Devices(g)
		if err != nil {
			return nil, "its GPUNode is broken: " + err.Error()
		}
		for i := range devices { // the scheduler places no pods where the agent is not ready
			devices[i].Healthy = devices[i].Healthy && meta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionReady)
		}
		return devices, ""
	}
	allocatable, advertised := n.Status.Allocatable[resourceGPU]
	if n.Labels[labelCount] == "" && n.Labels[labelProduct] == "" && !advertised && !hasMIG(n) {
		return nil, ""
	}
	if why := unclear(n); why != "" {
		return nil, why
	}
	count, err := number(n, labelCount, kube.MaxDevices)
	if err != nil {
		return nil, err.Error()
	}
	memory, err := number(n, labelMemory, kube.MaxMemory>>20)
	if err != nil {
		return nil, err.Error()
	}
	for i := range count {
		devices = append(devices, vgpu.Device{
			ID: vgpu.DeviceID(fmt.Sprintf("%s/g%d", n.Name, i)), Index: int(i), Model: n.Labels[labelProduct], Slots: slots,
			Memory: vgpu.Bytes(memory) << 20, Healthy: i < allocatable.Value(),
		})
	}
	return devices, ""
}

// hasMIG reports whether a node advertises MIG instances.
func hasMIG(n *v1.Node) bool {
	for name := range n.Status.Allocatable {
		if strings.HasPrefix(string(name), prefixMIG) {
			return true
		}
	}
	return strings.Contains(n.Labels[labelProduct], "-MIG-")
}

// unclear returns why it is not known what a pod gets of the node's GPUs, "" where it is.
func unclear(n *v1.Node) string {
	if hasMIG(n) {
		return "it has MIG instances, which shadow mode does not place"
	}
	product := n.Labels[labelProduct]
	if product == "" {
		return "it has no label " + labelProduct + " of GPU feature discovery"
	}
	replicas, strategy := n.Labels[labelReplicas], n.Labels[labelStrategy]
	shared := replicas != "" && replicas != "0" && replicas != "1"
	if shared || strings.HasSuffix(product, "-SHARED") || strategy != "" && strategy != "none" {
		return fmt.Sprintf("its GPUs are shared (%s=%q, %s=%q, product %s): how much of a GPU a pod gets is unknown", labelStrategy, strategy, labelReplicas, replicas, product)
	}
	return ""
}

// number reads a label.
func number(n *v1.Node, label string, most int64) (int64, error) {
	value, there := n.Labels[label]
	if !there {
		return 0, fmt.Errorf("it has no label %s of GPU feature discovery", label)
	}
	k, err := strconv.ParseInt(value, 10, 64)
	if err != nil || k < 1 || k > most {
		return 0, fmt.Errorf("its label %s is %q, legal is a whole number from 1 to %d", label, kube.Shown(value), most)
	}
	return k, nil
}
