package telemetry

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/reported"
	"github.com/tandem-gpu/tandem/internal/agent/resident"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// maxTenants is how many tenants of a device the GPUNode schema admits: more than MPS serves at once.
const maxTenants = 64

// tenants are the pods that hold shares of a device, with the use that the meter has measured of each.
type tenants struct {
	uses map[types.UID]*tenantUse
	// working are the tenants with a process on the device, in order, since a time. When another comes or one goes, all
	// averages begin anew: the use of a tenant beside others says nothing of its use without them.
	working []types.UID
	since   time.Time
}

// tenantUse is the known use of one pod on a device.
type tenantUse struct {
	// sm and memory are averages; nil before the first sample.
	sm, memory *float64
	measured   bool
	// rate is the average of the pod's reports, nil without a report since the working tenants last changed; told is
	// the time of the last report. works is since when the pod works with its present counter, zero where it is unknown,
	// and pause how long it did not before.
	rate  *float64
	told  time.Time
	works time.Time
	pause time.Duration
}

// join takes over who holds shares of the device now. Tenants that still hold their shares keep their averages.
func (t *tenants) join(residents []resident.Share) {
	uses := make(map[types.UID]*tenantUse, len(residents))
	for i := range residents {
		uid := residents[i].UID
		uses[uid] = t.uses[uid]
		if uses[uid] == nil {
			uses[uid] = &tenantUse{}
		}
	}
	t.uses = uses
}

// follow adds a sample of the device to the averages. uses are those of the residents, in their order.
func (t *tenants) follow(residents []resident.Share, uses []metrics.Use, now time.Time, since time.Duration) {
	whole := map[types.UID]metrics.Use{}
	for i, u := range uses {
		uid := residents[i].UID
		sum, met := whole[uid]
		if !met {
			sum.Source = metrics.SourceMeasured
		}
		sum.SM, sum.Memory, sum.Contexts = min(1, sum.SM+u.SM), sum.Memory+u.Memory, sum.Contexts+u.Contexts
		if u.Source != metrics.SourceMeasured {
			sum.Source = u.Source
		}
		whole[uid] = sum
	}
	var working []types.UID
	for uid, u := range whole {
		if u.Contexts > 0 {
			working = append(working, uid)
		}
	}
	slices.Sort(working)
	if !slices.Equal(working, t.working) {
		t.working, t.since = working, now
		t.begin()
	}
	for uid, u := range whole {
		m := t.uses[uid]
		part := weight(since)
		if age := now.Sub(t.since); age < smoothing {
			// The mean of all samples, while they are few: the first is partly of the time before the change.
			part = max(part, since.Seconds()/(age+since).Seconds())
		}
		m.sm, m.memory = approach(m.sm, u.SM, part), approach(m.memory, float64(u.Memory), part)
		m.measured = u.Source == metrics.SourceMeasured
	}
}

// begin drops all averages.
func (t *tenants) begin() {
	for _, m := range t.uses {
		*m = tenantUse{told: m.told}
	}
}

// forget drops the averages of the driver's measurements, since the driver has not answered for too long.
func (t *tenants) forget() {
	for _, m := range t.uses {
		m.sm, m.memory, m.measured = nil, nil, false
	}
}

// addRates adds the pods' own rates to the averages. A rate that is also about a time before the last change of the working
// tenants does not count. A pod that reports no more loses its average.
func (t *tenants) addRates(rate func(types.UID) (reported.Rate, bool)) {
	for uid, m := range t.uses {
		r, ok := rate(uid)
		if !ok || r.From.Before(t.since) {
			m.rate = nil
			continue
		}
		// The same reading once more is no time after itself, and moves nothing.
		m.rate = approach(m.rate, r.Value, weight(r.At.Sub(m.told)))
		m.told, m.works, m.pause = r.At, r.Since, r.Pause
	}
}

// list returns the tenants in the form of the GPUNode: by UID, and no more than its schema admits. utilization says
// whether the driver measures the utilisation of this device.
func (t *tenants) list(utilization bool) []v1alpha1.GPUTenant {
	list := make([]v1alpha1.GPUTenant, 0, len(t.uses))
	for uid, m := range t.uses {
		tenant := v1alpha1.GPUTenant{UID: string(uid)}
		if m.sm != nil && utilization {
			percent := int32(math.Round(100 * *m.sm))
			tenant.SMUtilizationPercent, tenant.Measured = &percent, m.measured
		}
		if m.memory != nil {
			tenant.MemoryUsed = resource.NewQuantity(int64(math.Round(*m.memory)), resource.BinarySI)
		}
		if m.rate != nil {
			tenant.Rate = rateQuantity(*m.rate)
			if !m.works.IsZero() {
				tenant.RateSince = new(metav1.NewTime(m.works.Truncate(time.Second)))
				if m.pause >= 0 {
					tenant.PauseSeconds = new(int32(min(m.pause.Round(time.Second).Seconds(), math.MaxInt32)))
				}
			}
		}
		list = append(list, tenant)
	}
	slices.SortFunc(list, func(a, b v1alpha1.GPUTenant) int { return cmp.Compare(a.UID, b.UID) })
	return list[:min(len(list), maxTenants)]
}

// approach returns the average after a value that it goes a part of the way to; nil begins it.
func approach(average *float64, value, part float64) *float64 {
	if average != nil {
		value = *average + part*(value-*average)
	}
	return &value
}

// rateDigits is the number of published digits of a rate. Fewer than six would hide a move of a thousandth.
const rateDigits = 6

// rateQuantity writes a rate from 0 to reported.MaxValue. Below a millionth of a millionth the result is 0.
func rateQuantity(rate float64) *resource.Quantity {
	if rate < 1e-9 {
		return resource.NewQuantity(0, resource.DecimalSI)
	}
	step := math.Pow10(int(math.Floor(math.Log10(rate))) + 1 - rateDigits)
	rate = math.Round(rate/step) * step
	q := resource.NewScaledQuantity(int64(math.Round(rate*1e9)), resource.Nano)
	if rate >= 1e6 { // more than 63 bits of nanos lie above 9.2e9
		q = resource.NewScaledQuantity(int64(math.Round(rate*1e3)), resource.Milli)
	}
	q.Format = resource.DecimalSI
	return q
}

// newsOfRate is of how many parts of itself a rate has to move by one to be published. More writes the GPUNode more
// often, for all watchers.
const newsOfRate = 20

// isTenantNews reports whether a tenant has come or gone, or differs far enough from its published use.
func isTenantNews(have, now []v1alpha1.GPUTenant, memory int64) bool {
	return !slices.EqualFunc(have, now, func(a, b v1alpha1.GPUTenant) bool {
		return a.UID == b.UID && a.Measured == b.Measured &&
			near(a.SMUtilizationPercent, b.SMUtilizationPercent, func(a, b int32) bool { return a-b < newsPercent && b-a < newsPercent }) &&
			near(a.MemoryUsed, b.MemoryUsed, func(a, b resource.Quantity) bool {
				moved := a.Value() - b.Value()
				return max(moved, -moved)*newsOfMemory < memory
			}) &&
			near(a.Rate, b.Rate, func(a, b resource.Quantity) bool {
				x, y := a.AsApproximateFloat64(), b.AsApproximateFloat64()
				return x == y || math.Abs(x-y)*newsOfRate < max(x, y)
			}) &&
			near(a.RateSince, b.RateSince, func(a, b metav1.Time) bool { return a.Equal(&b) })
	})
}

// near compares what may be unknown.
func near[T any](a, b *T, equal func(a, b T) bool) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equal(*a, *b)
}
