package kube

import (
	"math"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/pods"
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
		"more CPUs than a trillion": {
			first: asks("1000000000001", "1"), want: MaxHost,
			refused: `spec.containers[0].resources.requests[cpu]: "1000000000001" is not legal, it must be from 0 to 1T; the field is immutable: the pod must be replaced`,
		},
		"negative": {
			overhead: asks("-1", "0"), want: MaxHost,
			refused: `spec.overhead[cpu]: "-1" is not legal, it must be from 0 to 1T; the field is immutable: the pod must be replaced`,
		},
	} {
		p := pods.New("", "")
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

// The scheduler's count for a pod holds where its amounts are such that 64 bits hold their sum.
func TestBoundedHost(t *testing.T) {
	some := vgpu.Room{MilliCPU: 1500, Memory: vgpu.GiB}
	for name, c := range map[string]struct {
		memory        string
		containers    int
		counted, want vgpu.Room
	}{
		"nothing":              {memory: "0", containers: 1},
		"what was counted":     {memory: "1Gi", containers: 1, counted: some, want: some},
		"many containers":      {memory: "1Pi", containers: 4000, counted: vgpu.Room{MilliCPU: 1, Memory: 1 << 62}, want: vgpu.Room{MilliCPU: 1, Memory: MaxHost.Memory}},
		"too many":             {memory: "1Pi", containers: 16384, counted: some, want: MaxHost},
		"2^63, which is below": {memory: "9223372036854775808", containers: 1, counted: vgpu.Room{Memory: math.MinInt64}, want: MaxHost},
		"2^64+1, which is one": {memory: "18446744073709551617", containers: 1, counted: vgpu.Room{Memory: 1}, want: MaxHost},
		"2^64-32Gi":            {memory: "18446744039349813248", containers: 1, counted: vgpu.Room{Memory: -32 * vgpu.GiB}, want: MaxHost},
		"a negative amount":    {memory: "-1", containers: 1, counted: some, want: MaxHost},
		"a huge exponent":      {memory: "1e3000000", containers: 1, want: MaxHost},
		"a huge zero":          {memory: "0e2000000000", containers: 1, want: MaxHost},
	} {
		p := &v1.Pod{}
		for range c.containers {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(c.memory)},
			}})
		}
		if got := BoundedHost(p, c.counted); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A look at the amounts of a pod costs no allocation where they are whole.
func TestLookAtAmountsCostsNoAllocation(t *testing.T) {
	p := pods.New("", "")
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("32Gi"), v1.ResourceEphemeralStorage: resource.MustParse("1k"),
	}
	if got := testing.AllocsPerRun(100, func() { BoundedHost(p, vgpu.Room{}) }); got != 0 {
		t.Errorf("%v allocations, want none", got)
	}
}

// The sums of what is legal are far within 64 bits, whatever the resource.
func TestSumsOfLegalAmountsFit(t *testing.T) {
	if maxParts > math.MaxInt64/2/int64(MaxMemory) || maxParts > math.MaxInt64/2/(1000*maxCPU) {
		t.Errorf("%d parts of %d bytes or %d CPUs go beyond 64 bits", maxParts, MaxMemory, int64(maxCPU))
	}
}
