package placement

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// BenchmarkPrediction is what a candidate device with four tenants costs: who is there, what they are, how fast they will
// be beside the pod, and whether a promise breaks. It allocates nothing.
func BenchmarkPrediction(b *testing.B) {
	n, err := vgpu.NewNode("n1", []vgpu.Device{{ID: "GPU-0", Model: "A100", Slots: 10, Memory: 40 << 30, Healthy: true}})
	must.OK(b, err)
	var known [6]interference.Profile
	for w := range known {
		known[w] = interference.Profile{SM: .3 + .1*float64(w), Bandwidth: .2, Class: interference.ClassTraining}
	}
	among := &Neighbours{
		Model: defaultModel(b), Weights: EvenWeights,
		Tenant: func(w interference.Workload, _ string, part vgpu.MilliGPU) interference.Tenant {
			return known[w].On(part)
		},
	}
	for k := range 4 {
		name := fmt.Sprintf("t%d", k)
		share := vgpu.Share{Devices: 1, Slots: 2, Memory: 8 << 30, ComputeLimit: 200, MemoryLimit: 8 << 30}
		a := vgpu.Assignment{
			UID: vgpu.UID(name), Pod: name, Node: "n1", Tenancy: vgpu.Tenancy{Workload: uint32(k + 1), MaxSlowdown: 2000},
			Containers: []vgpu.ContainerAssignment{{Name: "main", Devices: []vgpu.DeviceID{"GPU-0"}, Share: share}},
		}
		must.OK(b, n.Add(a))
	}
	r := &vgpu.Request{UID: "new", Pod: "new", Tenancy: vgpu.Tenancy{Workload: 5, MaxSlowdown: 2000}}
	b.ReportAllocs()
	for b.Loop() {
		if !among.keepsPromises(n, 0, r, 200) {
			b.Fatal("the promise breaks")
		}
	}
}

func defaultModel(t testing.TB) interference.Model {
	m, err := interference.ByName("default")
	must.OK(t, err)
	return m
}
