package kube

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func gpuNode() *v1alpha1.GPUNode {
	return &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status: v1alpha1.GPUNodeStatus{Devices: []v1alpha1.GPUDevice{
			{
				ID: "GPU-0", Index: 0, Model: "A100", Memory: resource.MustParse("40Gi"), Slots: 10, Contexts: 48,
				Health: v1alpha1.Healthy,
				Links:  []v1alpha1.GPULink{{Peer: "GPU-1", Type: v1alpha1.LinkNVLink, Lanes: 12}, {Peer: "GPU-2", Type: "Quantum"}},
			},
			{ID: "GPU-1", Index: 1, Model: "A100", Memory: resource.MustParse("40Gi"), Slots: 4, Health: v1alpha1.Unhealthy},
		}},
	}
}

func TestDevices(t *testing.T) {
	got, err := Devices(gpuNode())
	must.OK(t, err)
	want := []vgpu.Device{
		{
			ID: "GPU-0", Model: "A100", Slots: 10, Memory: 40 * gib, Contexts: 48, Healthy: true,
			Links: []vgpu.Link{{Peer: "GPU-1", Class: vgpu.LinkNVLink, Lanes: 12}, {Peer: "GPU-2", Class: vgpu.LinkSYS}},
		},
		{ID: "GPU-1", Index: 1, Model: "A100", Slots: 4, Memory: 40 * gib},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Devices (-want +got):\n%s", diff)
	}
}

// A cordoned device takes no new shares; an ID that the node does not have is without effect.
func TestCordonedDevices(t *testing.T) {
	g := gpuNode()
	g.Status.Devices[1].Health = v1alpha1.Healthy
	for _, test := range []struct {
		list []v1alpha1.CordonedDevice
		want [2]bool
	}{
		{nil, [2]bool{true, true}},
		{[]v1alpha1.CordonedDevice{{ID: "GPU-1"}, {ID: "GPU-7"}}, [2]bool{true, false}},
		{[]v1alpha1.CordonedDevice{{ID: "GPU-0"}, {ID: "GPU-1"}}, [2]bool{false, false}},
	} {
		g.Spec.CordonedDevices = test.list
		devices, err := Devices(g)
		must.OK(t, err)
		if got := [2]bool{devices[0].Healthy, devices[1].Healthy}; got != test.want {
			t.Errorf("with %v cordoned the devices are healthy: %v", test.list, got)
		}
	}
}

func TestDevicesRefusesBrokenOnes(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.GPUDevice){
		"no ID":            func(d *v1alpha1.GPUDevice) { d.ID = "" },
		"an ID twice":      func(d *v1alpha1.GPUDevice) { d.ID = "GPU-0" },
		"no slots":         func(d *v1alpha1.GPUDevice) { d.Slots = 0 },
		"too many slots":   func(d *v1alpha1.GPUDevice) { d.Slots = 1001 },
		"no memory":        func(d *v1alpha1.GPUDevice) { d.Memory = resource.Quantity{} },
		"negative memory":  func(d *v1alpha1.GPUDevice) { d.Memory = resource.MustParse("-1") },
		"half a byte":      func(d *v1alpha1.GPUDevice) { d.Memory = resource.MustParse("500m") },
		"memory too large": func(d *v1alpha1.GPUDevice) { d.Memory = resource.MustParse("9Ei") },
		"contexts":         func(d *v1alpha1.GPUDevice) { d.Contexts = -1 },
		"index":            func(d *v1alpha1.GPUDevice) { d.Index = -1 },
	} {
		g := gpuNode()
		change(&g.Status.Devices[1])
		if _, err := Devices(g); err == nil || !strings.Contains(err.Error(), "GPUNode n1: status.devices[1]") {
			t.Errorf("%s: Devices = %v, want an error that names the device", name, err)
		}
	}
}
