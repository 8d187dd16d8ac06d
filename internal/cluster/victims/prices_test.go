package victims

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	configv1 "github.com/tandem-gpu/tandem/pkg/api/config/v1"
	"github.com/tandem-gpu/tandem/pkg/preemption"
)

// The prices of arguments without any are those of core, and each argument is the price of its name.
func TestPricesOf(t *testing.T) {
	var args configv1.GPUPreemptArgs
	configv1.SetDefaults_GPUPreemptArgs(&args)
	p := &args.Prices
	standard := PricesOf(&config.EvictionPrices{
		BudgetViolation: *p.BudgetViolation, PriorityStep: *p.PriorityStep, BrokenGang: *p.BrokenGang, ServingPod: *p.ServingPod, Victim: *p.Victim,
	})
	if diff := cmp.Diff(preemption.DefaultPrices(), standard); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	of := func(seconds int) metav1.Duration {
		return metav1.Duration{Duration: time.Duration(seconds) * time.Second}
	}
	got := PricesOf(&config.EvictionPrices{BudgetViolation: of(1), PriorityStep: of(2), BrokenGang: of(3), ServingPod: of(4), Victim: of(36_000_000)})
	want := preemption.Prices{Violation: 1000, Step: 2000, Broken: 3000, Serving: 4000, Victim: preemption.MaxPrice}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("one of each (-want +got):\n%s", diff)
	}
}
