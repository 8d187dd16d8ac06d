package fragmentation_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func TestKindOf(t *testing.T) {
	r := testkit.Request("a", 4)
	r.Containers[0].Memory = 9 * vgpu.GiB
	r.Host = vgpu.Room{MilliCPU: 1500, Memory: vgpu.GiB}
	r.Variants = []vgpu.Variant{{Model: "T4"}, {Model: "A100"}}
	want := fragmentation.Kind{MilliCPU: 1500, Memory: vgpu.GiB, Slots: 4, DeviceMemory: 9 * vgpu.GiB, Models: "A100|T4", Weight: 1}
	if diff := cmp.Diff(want, fragmentation.KindOf(r)); diff != "" {
		t.Errorf("KindOf (-want +got):\n%s", diff)
	}
	if got := fragmentation.KindOf(&vgpu.Request{}); got != (fragmentation.Kind{Weight: 1}) {
		t.Errorf("KindOf a pod without GPUs = %+v", got)
	}
}
