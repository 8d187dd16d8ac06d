package workloads_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func TestGivenMix(t *testing.T) {
	m, err := workloads.GivenMix([]config.TypicalRequest{{
		CPU: resource.MustParse("1500m"), Memory: resource.MustParse("2Gi"), VGPU: 3, VGPUMemory: resource.MustParse("24Gi"),
		Models: []string{"T4", "A100"}, Weight: 7,
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []fragmentation.Kind{{MilliCPU: 1500, Memory: 2 * vgpu.GiB, Slots: 3, DeviceMemory: 24 * vgpu.GiB, Models: "A100|T4", Weight: 7}}
	if diff := cmp.Diff(want, m.Kinds()); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}
