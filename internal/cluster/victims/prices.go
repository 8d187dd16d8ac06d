package victims

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// PricesOf returns legal prices as those of core: the time that one GPU works, in thousandths of a GPU times seconds.
func PricesOf(p *config.EvictionPrices) preemption.Prices {
	work := func(d metav1.Duration) int64 { return int64(vgpu.WholeGPU) * int64(d.Duration/time.Second) }
	return preemption.Prices{
		Violation: work(p.BudgetViolation), Step: work(p.PriorityStep), Broken: work(p.BrokenGang), Serving: work(p.ServingPod), Victim: work(p.Victim),
	}
}
