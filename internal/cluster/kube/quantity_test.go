package kube

import (
	"fmt"
	"math/big"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/pods"
)

// endless are quantities that the API server accepts and that take seconds or hours to calculate with.
var endless = []string{"1e3000000", "1e2000000000", "0.5e2000000000", "7e31", "1" + strings.Repeat("0", 100_000)}

// allocated returns the bytes that a function allocates. They are what its arithmetic needs, whatever the machine: a number of
// three million digits has 1.2 MB.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestEndlessQuantities: the readers of a pod do not calculate with a quantity that is none of an amount, and refuse it by the
// name of its field.
func TestEndlessQuantities(t *testing.T) {
	set := func(list *v1.ResourceList, name v1.ResourceName) func(q resource.Quantity) {
		return func(q resource.Quantity) { *list = v1.ResourceList{name: q} }
	}
	for _, text := range endless {
		q := resource.MustParse(text)
		for field, put := range map[string]func(p *v1.Pod) func(q resource.Quantity){
			"spec.containers[0].resources.limits[tandem-gpu.io/vgpu]": func(p *v1.Pod) func(q resource.Quantity) {
				return set(&p.Spec.Containers[0].Resources.Limits, v1alpha1.ResourceVGPU)
			},
			"spec.containers[0].resources.limits[tandem-gpu.io/vgpu-memory]": func(p *v1.Pod) func(q resource.Quantity) {
				return set(&p.Spec.Containers[0].Resources.Limits, v1alpha1.ResourceMemory)
			},
			"spec.containers[0].resources.requests[cpu]": func(p *v1.Pod) func(q resource.Quantity) {
				return set(&p.Spec.Containers[0].Resources.Requests, v1.ResourceCPU)
			},
			"spec.containers[0].resources.limits[example.com/x]": func(p *v1.Pod) func(q resource.Quantity) {
				return set(&p.Spec.Containers[0].Resources.Limits, "example.com/x")
			},
			"spec.initContainers[0].resources.requests[memory]": func(p *v1.Pod) func(q resource.Quantity) {
				return set(&p.Spec.InitContainers[0].Resources.Requests, v1.ResourceMemory)
			},
			"spec.overhead[memory]": func(p *v1.Pod) func(q resource.Quantity) { return set(&p.Spec.Overhead, v1.ResourceMemory) },
			"spec.resources.requests[cpu]": func(p *v1.Pod) func(q resource.Quantity) {
				p.Spec.Resources = &v1.ResourceRequirements{}
				return set(&p.Spec.Resources.Requests, v1.ResourceCPU)
			},
		} {
			p := pods.New("1")
			p.Spec.InitContainers = []v1.Container{pods.Container("first", "")}
			put(p)(q)
			var err error
			bytes := allocated(func() {
				WantsVGPU(p)
				if _, err = Request(p); err == nil {
					_, err = Host(p)
				}
			})
			if err == nil || !strings.HasPrefix(err.Error(), field+": ") {
				t.Errorf("%.12s in %s: the error is %v", text, field, err)
			}
			if bytes > 400_000 { // four copies of a number of 100,000 digits
				t.Errorf("%.12s in %s: %d bytes were allocated", text, field, bytes)
			}
		}
	}
}

// TestAmountOf: an amount is the quantity in its unit, rounded up, and cut at 0 and the most.
func TestAmountOf(t *testing.T) {
	const most = 1 << 50
	rapid.Check(t, func(t *rapid.T) {
		digits := rapid.StringMatching(`-?[0-9]{1,25}`).Draw(t, "digits")
		exponent := rapid.IntRange(-40, 40).Draw(t, "exponent")
		unit := rapid.SampledFrom([]resource.Scale{resource.Milli, 0}).Draw(t, "unit")
		q, err := resource.ParseQuantity(fmt.Sprintf("%se%d", digits, exponent))
		if err != nil {
			t.Fatal(err)
		}
		at, value := partsOf(q) // with at most nine decimals
		want := new(big.Rat).SetInt(value)
		scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(max(at-int64(unit), int64(unit)-at)), nil))
		if at < int64(unit) {
			want.Quo(want, scale)
		} else {
			want.Mul(want, scale)
		}
		up := new(big.Int).Div(new(big.Int).Sub(new(big.Int).Add(want.Num(), want.Denom()), big.NewInt(1)), want.Denom())
		expected := int64(most)
		if up.Cmp(big.NewInt(most)) < 0 {
			expected = max(0, up.Int64())
		}
		if up.Sign() < 0 {
			expected = 0
		}
		if got := amountOf(q, unit, most); got != expected {
			t.Fatalf("%s in 10^%d is %d, want %d", q.String(), unit, got, expected)
		}
	})
}
