package kube

import (
	"math"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func TestHost(t *testing.T) {
	asks := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	for name, c := range map[string]struct {
		first, second, overhead v1.ResourceList
		want                    vgpu.Room
		refused                 string
	}{
		"nothing":  {},
		"sum":      {first: asks("1", "1Gi"), second: asks("500m", "1Gi"), overhead: asks("1m", "1"), want: vgpu.Room{MilliCPU: 1501, Memory: 2*vgpu.GiB + 1}},
		"rounding": {first: asks("1u", "1m"), want: vgpu.Room{MilliCPU: 1, Memory: 1}},
		"the most": {first: asks("1", "1Pi"), second: asks("1", "1Pi"), want: vgpu.Room{MilliCPU: 2000, Memory: MaxHost.Memory}},
		"beyond 64 bits": {
			second: asks("1", "9223372036854775808"), want: MaxHost,
			refused: `spec.containers[1].resources.requests[memory]: "9223372036854775808" is not legal, it must be from 0 to 1Pi; the field is immutable: the pod must be replaced`,
		},
		"negative": {
			overhead: asks("-1", "0"), want: MaxHost,
			refused: `spec.overhead[cpu]: "-1" is not legal, it must be from 0 to 1Pi; the field is immutable: the pod must be replaced`,
		},
	} {
		p := pod("", "")
		p.Spec.Containers[0].Resources.Requests, p.Spec.Containers[1].Resources.Requests, p.Spec.Overhead = c.first, c.second, c.overhead
		got, err := Host(p)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != c.want || text != c.refused {
			t.Errorf("%s: %v, %s, want %v, %s", name, got, text, c.want, c.refused)
		}
	}
}

func TestBoundedHost(t *testing.T) {
	some := vgpu.Room{MilliCPU: 1500, Memory: vgpu.GiB}
	for counted, want := range map[vgpu.Room]vgpu.Room{
		{}:                                   {},
		some:                                 some,
		{MilliCPU: math.MinInt64, Memory: 1}: {MilliCPU: MaxHost.MilliCPU, Memory: 1},
		{MilliCPU: 1, Memory: -1}:            {MilliCPU: 1, Memory: MaxHost.Memory},
		{MilliCPU: math.MaxInt64, Memory: math.MaxInt64}: MaxHost,
	} {
		if got := BoundedHost(counted); got != want {
			t.Errorf("%v is bounded to %v, want %v", counted, got, want)
		}
	}
}
