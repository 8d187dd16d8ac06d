package workloads

import (
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// GivenMix returns the mix of the usual requests that valid arguments of GPUShare give.
func GivenMix(requests []config.TypicalRequest) (*fragmentation.Mix, error) {
	kinds := make([]fragmentation.Kind, len(requests))
	for i := range requests {
		r := &requests[i]
		kinds[i] = fragmentation.Kind{
			MilliCPU: r.CPU.MilliValue(), Memory: vgpu.Bytes(r.Memory.Value()), Slots: vgpu.Slots(r.VGPU), DeviceMemory: vgpu.Bytes(r.VGPUMemory.Value()),
			Models: strings.Join(slices.Sorted(slices.Values(r.Models)), "|"), Weight: r.Weight,
		}
	}
	return fragmentation.NewMix(kinds)
}
