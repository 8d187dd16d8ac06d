package workloads

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// extremeProfile has as many entries as the CustomResourceDefinition lets a profile have.
func extremeProfile() *v1alpha1.WorkloadProfile {
	p := &v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "w"}}
	model := func(i int) string { return fmt.Sprintf("%063d", i) }
	rate := func(i int) resource.Quantity {
		return resource.MustParse(fmt.Sprintf("%018d.%06d", 100_000_000_000+i, i))
	}
	for i := range 64 {
		p.Spec.Uses = append(p.Spec.Uses, v1alpha1.DeclaredUse{Model: model(i), SMUtilizationPercent: new(int32(i)), MemoryBandwidthPercent: new(int32(i))})
		p.Status.Learned = append(p.Status.Learned, v1alpha1.LearnedUse{Model: model(i), SMUtilizationPercent: new(int32(100 - i)), SoloObservations: 100})
	}
	for i := range 256 {
		r := rate(i)
		p.Spec.Throughputs = append(p.Spec.Throughputs, v1alpha1.ProfileThroughput{
			Model: model(i % 4), SharePercent: int32(1 + i/4), Rate: &r, Latency: &metav1.Duration{Duration: time.Hour - time.Duration(i)*time.Second},
		})
	}
	for i := range 8 {
		p.Spec.Spread = append(p.Spec.Spread, v1alpha1.ProfileSpread{TopologyKey: fmt.Sprintf("example.com/level-%d", i), Slowdown: intstr.FromString("1.002")})
	}
	p.Spec.Scaling = &v1alpha1.ProfileScaling{}
	for i := range 64 {
		p.Spec.Scaling.Rates = append(p.Spec.Scaling.Rates, v1alpha1.ScalingRate{Workers: int32(100 + i), Servers: int32(i % 16), Rate: rate(i)})
	}
	return p
}

// BenchmarkExtremes is what a change of a profile of the most entries costs: to read it, to make its curves, and to know its use on each model.
func BenchmarkExtremes(b *testing.B) {
	p := extremeProfile()
	b.Run("WorkloadProfile/most-entries", func(b *testing.B) {
		for b.Loop() {
			w := ReadProfile(p)
			_, err := w.Rates(nil)
			must.OK(b, err)
			_, err = w.Latencies(nil)
			must.OK(b, err)
			for i := range p.Spec.Uses {
				w.On(p.Spec.Uses[i].Model)
			}
			w.Condition(1)
		}
	})
}
