package telemetry

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/reported"
	"github.com/tandem-gpu/tandem/internal/agent/resident"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const mi = int64(1) << 20

// The agent publishes which tenants come or go, and what each uses; never sooner than the least time after the last
// publication.
func TestTenantsArePublished(t *testing.T) {
	s := newStage(t)
	s.enter("a", 3)
	s.enter("b", 4)
	a, b := work{"a", 0.4, 2048 * mi, false}, work{"b", 0.25, 512 * mi, false}
	if !s.round(0, a, b) {
		t.Error("the first tenants are not published")
	}
	s.want("two tenants", "uid-a 40% measured 2Gi, uid-b 25% measured 512Mi")
	if s.round(time.Minute, a, b) {
		t.Error("nothing changed, and it is published")
	}
	s.enter("c", 1)
	if s.round(time.Second, a, b, work{"c", 0.01, 0, false}) != true {
		t.Error("a newcomer two minutes after the last publication is not published")
	}
	s.want("three", "uid-a 40% measured 2Gi, uid-b 25% measured 512Mi, uid-c 1% measured 0")
	s.leave("a")
	if s.round(59*time.Second, b) {
		t.Error("published before the least time between two writes")
	}
	if !s.round(time.Second, b) {
		t.Error("one that left is not published")
	}
	s.want("a and c's process are gone", "uid-b 25% measured 512Mi, uid-c 0% measured 0")
	for range 20 {
		s.round(time.Minute, work{"b", 0.29, 512 * mi, false})
	}
	s.want("a move of four points is not published", "uid-b 25% measured 512Mi, uid-c 0% measured 0")
	for range 20 {
		s.round(time.Minute, work{"b", 0.3, 512 * mi, false})
	}
	s.want("one of five is", "uid-b 30% measured 512Mi, uid-c 0% measured 0")
	s.round(time.Minute, work{"b", 0.3, 512*mi + 2*fixture.GiB, false})
	if devices, _ := s.inv.Snapshot(); devices[0].Tenants[0].MemoryUsed.Value() != 512*mi {
		t.Error("a move of less than a twentieth of the device's memory is published")
	}
	s.round(10*time.Minute, work{"b", 0.3, 512*mi + 3*fixture.GiB, false})
	if devices, _ := s.inv.Snapshot(); devices[0].Tenants[0].MemoryUsed.Value() < 3*fixture.GiB {
		t.Error("a move of more is not published")
	}
	s.leave("b")
	s.leave("c")
	s.round(time.Minute)
	s.want("nobody is left", "")
}

// The agent marks a figure that the driver tells of the device alone, and leaves out a figure that the driver does not
// tell.
func TestTenantsThatAreNotMeasured(t *testing.T) {
	s := newStage(t)
	s.enter("a", 4)
	s.enter("b", 4)
	s.round(0, work{"a", 0.3, fixture.GiB, true}, work{"b", 0.3, fixture.GiB, true})
	s.want("halves of 60 %", "uid-a 30% 1Gi, uid-b 30% 1Gi")
	s.drv.mu.Lock()
	delete(s.drv.samples, fixture.G0)
	s.drv.mu.Unlock()
	s.now = s.now.Add(time.Minute)
	s.report("a", 5, 0)
	s.m.measure(t.Context(), s.now)
	s.want("the driver does not answer", "uid-a 5/s, uid-b")
	mig := tenants{uses: map[types.UID]*tenantUse{"u": {sm: new(float64), measured: true}}}
	if got := mig.list(false); got[0].SMUtilizationPercent != nil || got[0].Measured {
		t.Errorf("a MIG instance: %+v, want no utilisation", got)
	}
}

// Averages begin anew when the tenants at work change, and a rate from before it counts for nothing.
func TestAveragesBeginAnewBesideOthers(t *testing.T) {
	s := newStage(t)
	s.enter("a", 3)
	alone := work{"a", 0.8, 0, false}
	s.round(0, alone)
	s.now = s.now.Add(10 * time.Second)
	s.report("a", 100, 10*time.Second)
	s.round(time.Minute, alone)
	s.want("alone", "uid-a 80% measured 0 100/s")
	s.enter("b", 3)
	s.round(time.Minute, alone)
	s.want("b has not begun", "uid-a 80% measured 0 100/s, uid-b 0% measured 0")
	s.report("a", 100, 10*time.Second)
	together := []work{{"a", 0.5, 0, false}, {"b", 0.4, 0, false}}
	s.round(time.Minute, together...)
	s.want("both work, and the rate is from before", "uid-a 50% measured 0, uid-b 40% measured 0")
	s.now = s.now.Add(20 * time.Second)
	s.report("a", 60, 30*time.Second)
	s.round(time.Minute, together...)
	s.want("the rate is partly from before", "uid-a 50% measured 0, uid-b 40% measured 0")
	s.report("a", 60, 10*time.Second)
	s.round(time.Minute, together...)
	s.want("the rate is of the time since then", "uid-a 50% measured 0 60/s, uid-b 40% measured 0")
	delete(s.rates, "uid-a")
	s.round(time.Minute, together...)
	s.want("it reports no more", "uid-a 50% measured 0, uid-b 40% measured 0")
}

// A minute after a change the first sample, which is partly of the time before, weighs no more than the others: the mean
// of 40, 20, 20, 20, 20, 20 and 20. Later the average follows as that of the device.
func TestFirstSampleAfterAChangeWeighsLikeOthers(t *testing.T) {
	var c tenants
	residents := []resident.Share{{UID: "u", Name: "a"}}
	c.join(residents)
	now := time.Unix(1000, 0)
	for _, percent := range []float64{40, 20, 20, 20, 20, 20, 20} {
		c.follow(residents, []metrics.Use{{Rates: metrics.Rates{SM: percent / 100}, Contexts: 1, Source: metrics.SourceMeasured}}, now, 10*time.Second)
		now = now.Add(10 * time.Second)
	}
	if got, want := *c.uses["u"].sm, (0.4+6*0.2)/7; math.Abs(got-want) > 0.001 {
		t.Errorf("average %v, want about %v", got, want)
	}
}

// The time since which a pod works with its counter is published when it changes, though the rate does not move.
func TestBreaksArePublished(t *testing.T) {
	s := newStage(t)
	s.enter("a", 3)
	w := work{"a", 0.5, 0, false}
	s.round(0, w)
	since := func() *metav1.Time {
		devices, _ := s.inv.Snapshot()
		return devices[0].Tenants[0].RateSince
	}
	began, pause := s.now.Add(1500*time.Millisecond), time.Duration(-1)
	report := func(works time.Time) bool {
		s.now = s.now.Add(time.Minute)
		s.rates["uid-a"] = reported.Rate{Value: 100, From: s.now, At: s.now, Since: works, Pause: pause}
		return s.round(0, w)
	}
	if !report(began) || since() == nil || since().Unix() != began.Unix() {
		t.Errorf("since %v, want the whole second of %v", since(), began)
	}
	if report(began) {
		t.Error("nothing changed, and it is published")
	}
	seconds := func() *int32 {
		devices, _ := s.inv.Snapshot()
		return devices[0].Tenants[0].PauseSeconds
	}
	if seconds() != nil {
		t.Errorf("a pause of %d s before the first counter", *seconds())
	}
	pause = 14600 * time.Millisecond
	if again := began.Add(2 * time.Minute); !report(again) || since().Unix() != again.Unix() || seconds() == nil || *seconds() != 15 {
		t.Errorf("since %v, a pause of %v s, want %v and 15 s", since(), seconds(), again)
	}
	if !report(time.Time{}) || since() != nil {
		t.Errorf("since %v of a pod that does not work", since())
	}
}

// A rate is smoothed and published where it moved by five percent; a reading counts once.
func TestRatesArePublishedWhereTheyMoved(t *testing.T) {
	s := newStage(t)
	s.enter("a", 3)
	w := work{"a", 0.5, 0, false}
	s.round(0, w)
	s.report("a", 100, 0)
	s.round(time.Minute, w)
	s.want("at first", "uid-a 50% measured 0 100/s")
	// One reading of 200 after a minute goes 63 % of the way, however often it is looked at.
	s.now = s.now.Add(-time.Minute)
	at := s.now
	s.rates["uid-a"] = reported.Rate{Value: 200, From: at.Add(time.Minute), At: at.Add(time.Minute)}
	for range 5 {
		s.round(time.Minute, w)
	}
	s.want("163.212", "uid-a 50% measured 0 163212m/s")
	for range 30 {
		s.now = s.now.Add(time.Minute)
		s.report("a", 171, 0)
		s.round(0, w)
	}
	s.want("a move of 4.6 %", "uid-a 50% measured 0 163212m/s")
	for range 30 {
		s.now = s.now.Add(time.Minute)
		s.report("a", 172, 0)
		s.round(0, w)
	}
	if got := s.published(); got == "uid-a 50% measured 0 163212m/s" {
		t.Errorf("a move of 5.4 %% is not published")
	}
	for range 30 {
		s.now = s.now.Add(time.Minute)
		s.report("a", 0, 0)
		s.round(0, w)
	}
	if devices, _ := s.inv.Snapshot(); devices[0].Tenants[0].Rate.AsApproximateFloat64() > 1e-6 {
		t.Errorf("standing still: %s", s.published())
	}
}

// The cases show what makes a list of tenants news, beside the rounds above.
func TestWhatIsNewsOfTenants(t *testing.T) {
	tenant := func(uid string, change ...func(*v1alpha1.GPUTenant)) []v1alpha1.GPUTenant {
		percent := int32(50)
		g := v1alpha1.GPUTenant{UID: uid, SMUtilizationPercent: &percent, Measured: true, MemoryUsed: resource.NewQuantity(fixture.GiB, resource.BinarySI), Rate: rateQuantity(100)}
		for _, c := range change {
			c(&g)
		}
		return []v1alpha1.GPUTenant{g}
	}
	percent := func(n int32) func(*v1alpha1.GPUTenant) {
		return func(g *v1alpha1.GPUTenant) { g.SMUtilizationPercent = &n }
	}
	rate := func(r float64) func(*v1alpha1.GPUTenant) {
		return func(g *v1alpha1.GPUTenant) { g.Rate = rateQuantity(r) }
	}
	for name, c := range map[string]struct {
		now  []v1alpha1.GPUTenant
		news bool
	}{
		"the same":                       {tenant("a"), false},
		"another in its place":           {tenant("b"), true},
		"nobody":                         {nil, true},
		"apportioned":                    {tenant("a", func(g *v1alpha1.GPUTenant) { g.Measured = false }), true},
		"no utilisation":                 {tenant("a", func(g *v1alpha1.GPUTenant) { g.SMUtilizationPercent = nil }), true},
		"no memory":                      {tenant("a", func(g *v1alpha1.GPUTenant) { g.MemoryUsed = nil }), true},
		"no rate":                        {tenant("a", func(g *v1alpha1.GPUTenant) { g.Rate = nil }), true},
		"four points":                    {tenant("a", percent(46)), false},
		"five points down":               {tenant("a", percent(45)), true},
		"five points up":                 {tenant("a", percent(55)), true},
		"a rate 5 % below":               {tenant("a", rate(95)), true},
		"a rate less than 5 % below":     {tenant("a", rate(95.1)), false},
		"a rate more than 5 % above":     {tenant("a", rate(105.4)), true},
		"a rate of 0":                    {tenant("a", rate(0)), true},
		"less than 2 GiB more of 40":     {tenant("a", func(g *v1alpha1.GPUTenant) { g.MemoryUsed.Add(resource.MustParse("2047Mi")) }), false},
		"2 GiB more of 40, which is 5 %": {tenant("a", func(g *v1alpha1.GPUTenant) { g.MemoryUsed.Add(resource.MustParse("2Gi")) }), true},
	} {
		if got := isTenantNews(tenant("a"), c.now, 40*fixture.GiB); got != c.news {
			t.Errorf("%s: news %v, want %v", name, got, c.news)
		}
	}
	if isTenantNews(tenant("a", rate(0)), tenant("a", rate(0)), fixture.GiB) {
		t.Error("standing still is news")
	}
}

var rateForm = regexp.MustCompile(`^[0-9]{1,18}(\.[0-9]{1,9})?(n|u|m|k|M|G|T)?$`)

// The published form of any rate keeps to the schema and is right to six digits.
func TestRateQuantityProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.OneOf(rapid.Float64Range(0, reported.MaxValue), rapid.Float64Range(0, 1), rapid.Float64Range(1e5, 1e7), rapid.Just(999_999.96)).Draw(t, "rate")
		q := rateQuantity(rate)
		if !rateForm.MatchString(q.String()) {
			t.Fatalf("%v is written %s", rate, q)
		}
		back := resource.MustParse(q.String())
		if off := back.AsApproximateFloat64() - rate; max(off, -off) > 1e-5*rate+1e-9 {
			t.Fatalf("%v is written %s", rate, q)
		}
	})
}

// The list is bounded, in order, and the same whatever the order of a map.
func TestTenantsAreBoundedAndInOrder(t *testing.T) {
	c := tenants{uses: map[types.UID]*tenantUse{}}
	for i := range 3 * maxTenants {
		c.uses[types.UID(fmt.Sprintf("uid-%03d", i))] = &tenantUse{}
	}
	list := c.list(true)
	if len(list) != maxTenants || list[0].UID != "uid-000" || !slices.IsSortedFunc(list, func(a, b v1alpha1.GPUTenant) int { return strings.Compare(a.UID, b.UID) }) {
		t.Errorf("%d tenants from %s", len(list), list[0].UID)
	}
	if diff := cmp.Diff(list, c.list(true)); diff != "" {
		t.Error(diff)
	}
}

// The containers of a pod are one tenant.
func TestContainersAreOneTenant(t *testing.T) {
	var c tenants
	residents := []resident.Share{{UID: "u", Name: "a"}, {UID: "u", Name: "b"}, {UID: "v", Name: "a"}}
	c.join(residents)
	use := func(sm float64, memory int64, source string) metrics.Use {
		return metrics.Use{Memory: memory, Rates: metrics.Rates{SM: sm}, Contexts: 1, Source: source}
	}
	c.follow(residents, []metrics.Use{use(0.7, fixture.GiB, metrics.SourceMeasured), use(0.6, fixture.GiB, metrics.SourceApportioned), use(0.1, 0, metrics.SourceMeasured)}, time.Unix(9, 0), 0)
	list := c.list(true)
	if *list[0].SMUtilizationPercent != 100 || list[0].MemoryUsed.String() != "2Gi" || list[0].Measured || !list[1].Measured || len(list) != 2 {
		t.Errorf("tenants %+v", list)
	}
}
