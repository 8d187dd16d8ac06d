package deploy

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

func TestGPUNodeSchema(t *testing.T) {
	stored := createGPUNode(t, "n2")
	// largest is a node with as many devices and links as the schema allows: the cost of its rules must stay legal.
	var largest []v1alpha1.GPUDevice
	for i := range 128 {
		d := device(fmt.Sprintf("GPU-%d", i))
		for j := range 128 {
			if j != i {
				d.Links = append(d.Links, v1alpha1.GPULink{Peer: fmt.Sprintf("GPU-%d", j), Type: v1alpha1.LinkSYS})
			}
		}
		largest = append(largest, d)
	}
	change := func(f func(*v1alpha1.GPUDevice)) []v1alpha1.GPUDevice {
		d := device("GPU-1")
		f(&d)
		return []v1alpha1.GPUDevice{d}
	}
	tests := []struct {
		name    string
		devices []v1alpha1.GPUDevice
		want    string // "" when legal
	}{
		{name: "no devices"},
		{name: "one device", devices: []v1alpha1.GPUDevice{device("GPU-1")}},
		{name: "MIG instance", devices: []v1alpha1.GPUDevice{device("MIG-1a2b")}},
		{name: "as large as can be", devices: largest},
		{name: "too many devices", devices: append(largest[:128:128], device("GPU-x")), want: "status.devices: Too many"},
		{name: "two of one ID", devices: []v1alpha1.GPUDevice{device("GPU-1"), device("GPU-1")}, want: "status.devices[1]: Duplicate value"},
		{name: "malformed ID", devices: []v1alpha1.GPUDevice{device("0")}, want: "status.devices[0].id"},
		{name: "ID with a slot", devices: []v1alpha1.GPUDevice{device("GPU-1::3")}, want: "status.devices[0].id"},
		{name: "long ID", devices: []v1alpha1.GPUDevice{device("GPU-" + strings.Repeat("a", 61))}, want: "status.devices[0].id: Too long"},
		{name: "negative index", devices: change(func(d *v1alpha1.GPUDevice) { d.Index = -1 }), want: "status.devices[0].index"},
		{name: "no slots", devices: change(func(d *v1alpha1.GPUDevice) { d.Slots = 0 }), want: "status.devices[0].slots"},
		{name: "too many slots", devices: change(func(d *v1alpha1.GPUDevice) { d.Slots = 1001 }), want: "status.devices[0].slots"},
		{name: "no model", devices: change(func(d *v1alpha1.GPUDevice) { d.Model = "" }), want: "status.devices[0].model"},
		{name: "no memory", devices: change(func(d *v1alpha1.GPUDevice) { d.Memory = resource.MustParse("0") }), want: "status.devices[0].memory"},
		{name: "negative memory", devices: change(func(d *v1alpha1.GPUDevice) { d.Memory = resource.MustParse("-1Gi") }), want: "status.devices[0].memory"},
		{name: "part of a byte", devices: change(func(d *v1alpha1.GPUDevice) { d.Memory = resource.MustParse("1m") }), want: "status.devices[0].memory"},
		{name: "negative contexts", devices: change(func(d *v1alpha1.GPUDevice) { d.Contexts = -1 }), want: "status.devices[0].contexts"},
		{name: "malformed capability", devices: change(func(d *v1alpha1.GPUDevice) { d.ComputeCapability = "8" }), want: "computeCapability"},
		{name: "unknown health", devices: change(func(d *v1alpha1.GPUDevice) { d.Health = "Fine" }), want: "status.devices[0].health"},
		{name: "unknown enforcement", devices: change(func(d *v1alpha1.GPUDevice) { d.Enforcement = "strict" }), want: "status.devices[0].enforcement"},
		{name: "sick without a reason", devices: change(func(d *v1alpha1.GPUDevice) { d.Health = v1alpha1.Unhealthy }), want: "an unhealthy device names a reason"},
		{name: "sick with a reason", devices: change(func(d *v1alpha1.GPUDevice) { d.Health, d.Reason = v1alpha1.Unhealthy, "XID79" })},
		{name: "link to itself", devices: change(func(d *v1alpha1.GPUDevice) {
			d.Links = []v1alpha1.GPULink{{Peer: d.ID, Type: v1alpha1.LinkPIX}}
		}), want: "a device has no link to itself"},
		{name: "two links to one device", devices: change(func(d *v1alpha1.GPUDevice) {
			d.Links = []v1alpha1.GPULink{{Peer: "GPU-2", Type: v1alpha1.LinkPIX}, {Peer: "GPU-2", Type: v1alpha1.LinkSYS}}
		}), want: "status.devices[0].links[1]: Duplicate value"},
		{name: "tenants", devices: tenants(64)},
		{name: "too many tenants", devices: tenants(65), want: "status.devices[0].tenants: Too many"},
		{name: "a tenant twice", devices: change(func(d *v1alpha1.GPUDevice) {
			d.Tenants = []v1alpha1.GPUTenant{{UID: "u"}, {UID: "u"}}
		}), want: "status.devices[0].tenants[1]: Duplicate value"},
		{name: "a tenant without a UID", devices: change(func(d *v1alpha1.GPUDevice) {
			d.Tenants = []v1alpha1.GPUTenant{{}}
		}), want: "status.devices[0].tenants[0].uid"},
		{name: "a tenant above 100 percent", devices: change(func(d *v1alpha1.GPUDevice) {
			d.Tenants = []v1alpha1.GPUTenant{{UID: "u", SMUtilizationPercent: new(int32(101))}}
		}), want: "status.devices[0].tenants[0].smUtilizationPercent"},
		{name: "a tenant with a negative rate", devices: change(func(d *v1alpha1.GPUDevice) {
			d.Tenants = []v1alpha1.GPUTenant{{UID: "u", Rate: new(resource.MustParse("-1"))}}
		}), want: "status.devices[0].tenants[0].rate"},
		{name: "unknown link", devices: change(func(d *v1alpha1.GPUDevice) {
			d.Links = []v1alpha1.GPULink{{Peer: "GPU-2", Type: "PCIe"}}
		}), want: "status.devices[0].links[0].type"},
	}
	nodes := gpuNodes(t, cluster.Admin())
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			object := stored.DeepCopy()
			object.Object["status"] = unstruct(t, gpuNode("n2", test.devices...)).Object["status"]
			_, err := nodes.UpdateStatus(t.Context(), object, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			if test.want != "" {
				wantRefusal(t, err, test.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// tenants returns a device with n tenants, all fields set.
func tenants(n int) []v1alpha1.GPUDevice {
	d := device("GPU-1")
	for i := range n {
		d.Tenants = append(d.Tenants, v1alpha1.GPUTenant{
			UID: fmt.Sprintf("8f1f9c1e-%04d", i), SMUtilizationPercent: new(int32(100)), Measured: true,
			MemoryUsed: new(resource.MustParse("1536Mi")), Rate: new(resource.MustParse("0.123456789")),
		})
	}
	return []v1alpha1.GPUDevice{d}
}

// The spec has the list of cordoned devices and nothing else.
func TestGPUNodeSpec(t *testing.T) {
	list := func(entries ...any) map[string]any { return map[string]any{"cordonedDevices": entries} }
	entry := func(id, reason string) map[string]any { return map[string]any{"id": id, "reason": reason} }
	many := make([]any, 129)
	for i := range many {
		many[i] = map[string]any{"id": fmt.Sprintf("GPU-%d", i)}
	}
	for name, test := range map[string]struct {
		spec map[string]any
		want string
	}{
		"another field":      {map[string]any{"slots": int64(10)}, `unknown field "spec.slots"`},
		"two devices":        {list(entry("GPU-1", "fan"), map[string]any{"id": "MIG-2"}), ""},
		"no ID":              {list(map[string]any{"reason": "fan"}), "spec.cordonedDevices[0].id: Required value"},
		"an index":           {list(entry("g3", "")), "spec.cordonedDevices[0].id in body should match"},
		"a device twice":     {list(entry("GPU-1", "a"), entry("GPU-1", "b")), "spec.cordonedDevices[1]: Duplicate value"},
		"the longest reason": {list(entry("GPU-1", strings.Repeat("x", 256))), ""},
		"a longer reason":    {list(entry("GPU-1", strings.Repeat("x", 257))), "spec.cordonedDevices[0].reason: Too long"},
		"128 devices":        {list(many[:128]...), ""},
		"129 devices":        {list(many...), "spec.cordonedDevices: Too many"},
	} {
		t.Run(name, func(t *testing.T) {
			object := unstruct(t, gpuNode("n2"))
			object.Object["spec"] = test.spec
			_, err := gpuNodes(t, cluster.Admin()).Create(t.Context(), object,
				metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}})
			if test.want != "" {
				wantRefusal(t, err, test.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
