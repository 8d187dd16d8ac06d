package experiment

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// shared is a table of made-up configurations 0, 1, …, each with its SM utilisation and GiB, and their speeds beside each
// other by row.
func shared(configs [][2]float64, speeds ...[]float64) *sharingTable {
	t := &sharingTable{speed: speeds}
	for i, c := range configs {
		t.configs = append(t.configs, configuration{name: fmt.Sprintf("c%d", i), family: fmt.Sprintf("f%d", i), profile: interference.Profile{
			SM: c[0], Bandwidth: c[0] / 2, Memory: vgpu.Bytes(c[1] * float64(vgpu.GiB)),
		}})
		t.excess = append(t.excess, make([]vgpu.Bytes, len(configs)))
	}
	return t
}

// shareDevices plays jobs of these configurations and durations on devices.
func shareDevices(t testing.TB, table *sharingTable, policy string, devices int, configs []int, work ...float64) *sharingRun {
	t.Helper()
	p, err := sharingPolicyOf(policy, table)
	must.OK(t, err)
	r := newSharingRun(table, p, devices, batch{configs, work})
	must.OK(t, r.play())
	return r
}

var near = func() cmp.Option {
	return cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
}()

// TestSharingOfTwo works out two jobs of 100 s that slow each other down to 0.5 and 0.8.
func TestSharingOfTwo(t *testing.T) {
	table := shared([][2]float64{{.6, 4}, {.7, 4}}, []float64{.9, .5}, []float64{.8, .9})
	// The second ends after 100/.8 = 125 s, when the first has done 62.5 s of its work. It does the other 37.5 s alone.
	r := shareDevices(t, table, "least-loaded-3", 1, []int{0, 1}, 100, 100)
	// Both: 1 of 0.6 + 0.7 for 125 s; the first: 0.6 for 37.5 s.
	got := []float64{r.view.now, r.slowdowns[0], r.slowdowns[1], r.utilization()}
	if diff := cmp.Diff([]float64{162.5, 1.625, 1.25, (125 + .6*37.5) / 162.5}, got, near); diff != "" {
		t.Errorf("end, slowdowns and utilisation (-want +got):\n%s", diff)
	}
	r = shareDevices(t, table, "fifo", 1, []int{0, 1}, 100, 100)
	if diff := cmp.Diff([]float64{200, 1, 1, .65}, []float64{r.view.now, r.slowdowns[0], r.slowdowns[1], r.utilization()}, near); diff != "" {
		t.Errorf("one after the other (-want +got):\n%s", diff)
	}
	// A third job of 10 s starts when a place is free: at 125 s, and ends at 125 + 10/.9.
	r = shareDevices(t, table, "horus-2", 1, []int{0, 1, 0}, 100, 100, 10)
	// The first has 37.5 s left at 125 s, loses a tenth of 11.1 s, and ends 1.11 s later than alone.
	if diff := cmp.Diff([]float64{125 + 37.5 + 10/.9 - 10, 1 / .9}, []float64{r.view.now, r.slowdowns[2]}, near); diff != "" {
		t.Errorf("end and slowdown of the third (-want +got):\n%s", diff)
	}
}

// TestSharingOfThree: the speed of a job is the product of what it reaches beside each of the two others.
func TestSharingOfThree(t *testing.T) {
	table := shared([][2]float64{{.1, 1}, {.1, 1}, {.1, 1}}, []float64{1, .9, .8}, []float64{.7, 1, .6}, []float64{1, .5, .4})
	speeds := table.speeds(jobsOf(table, 0, 1, 2), nil)
	if diff := cmp.Diff([]float64{.72, .42, .5}, speeds, near); diff != "" {
		t.Errorf("three (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{.4 * .4, .4 * .4, .4 * .4}, table.speeds(jobsOf(table, 2, 2, 2), speeds), near); diff != "" {
		t.Errorf("three of a kind (-want +got):\n%s", diff)
	}
}

func jobsOf(table *sharingTable, configs ...int) []sharedJob {
	var jobs []sharedJob
	for i, c := range configs {
		jobs = append(jobs, sharedJob{id: i, config: c, profile: &table.configs[c].profile})
	}
	return jobs
}

// TestSharingWithoutMemory: two of 12 GiB fit by their profiles, and do not where they hold more together. The one that
// comes last fails, is counted, and runs from its start when the other has ended.
func TestSharingWithoutMemory(t *testing.T) {
	table := shared([][2]float64{{.5, 12}}, []float64{.5})
	if r := shareDevices(t, table, "least-loaded-3", 1, []int{0, 0}, 10, 20); r.oom != 0 || r.slowdowns[0] != 2 {
		t.Errorf("%d failed, slowdown %v, want none and 2", r.oom, r.slowdowns[0])
	}
	table.excess[0][0] = 1
	r := shareDevices(t, table, "least-loaded-3", 1, []int{0, 0, 0}, 10, 20, 30)
	// The second and the third fail at 0, the third once more at 10 s.
	got := []float64{float64(r.oom), r.view.now, r.slowdowns[0], r.slowdowns[1], r.slowdowns[2]}
	if diff := cmp.Diff([]float64{3, 60, 1, 1, 1}, got); diff != "" {
		t.Errorf("failures, end and slowdowns (-want +got):\n%s", diff)
	}
	for _, policy := range []string{"oracle", "tandem", "tandem-measured"} {
		if r := shareDevices(t, table, policy, 1, []int{0, 0, 0}, 10, 20, 30); r.oom != 0 || r.view.now != 60 {
			t.Errorf("%s: %d failed, end at %v", policy, r.oom, r.view.now)
		}
	}
}

// TestSharingFailedQueuesInItsPlace: a job that failed is before those that arrived after it.
func TestSharingFailedQueuesInItsPlace(t *testing.T) {
	table := shared([][2]float64{{.5, 12}, {.1, 1}}, []float64{1, 1}, []float64{1, 1})
	table.excess[0][0] = 1
	// The second fails beside the first, the third takes its place. At 10 s the second starts, at 30 s the fourth.
	r := newSharingRun(table, &firstFit{most: 2, cost: fewest}, 1, batch{[]int{0, 0, 1, 0}, []float64{10, 20, 100, 5}})
	must.OK(t, r.play())
	if diff := cmp.Diff([]float64{0, 10, 0, 30}, r.began); diff != "" || r.oom != 1 {
		t.Errorf("starts (-want +got):\n%s\n%d failed, want 1", diff, r.oom)
	}
}

// TestSharingEndsAtOnce: of jobs that end together that on the first device is taken first, and nobody is told of no time.
func TestSharingEndsAtOnce(t *testing.T) {
	table := shared([][2]float64{{.5, 1}}, []float64{1})
	p, err := sharingPolicyOf("fifo", table)
	must.OK(t, err)
	w := &watched{sharingPolicy: p, done: make([]float64, 4)}
	r := newSharingRun(table, w, 2, batch{[]int{0, 0, 0, 0}, []float64{10, 10, 5, 7}})
	r.fill()
	if device, tenant, seconds := r.nextEnd(); device != 0 || tenant != 0 || seconds != 10 {
		t.Errorf("ends next: tenant %d of device %d in %v s", tenant, device, seconds)
	}
	if err := r.play(); err != nil || len(w.wrong) > 0 || r.view.now != 17 {
		t.Errorf("%v, %v, end at %v", err, w.wrong, r.view.now)
	}
}

// watched adds up what it is told, and checks what it sees.
type watched struct {
	sharingPolicy
	done  []float64
	wrong []string
}

func (w *watched) observe(v *sharingView, device int, speeds []float64, seconds float64) {
	on := v.devices[device]
	if len(on) != len(speeds) || len(on) > mostSharing || seconds <= 0 {
		w.wrong = append(w.wrong, fmt.Sprintf("%d tenants, %d speeds, %v s", len(on), len(speeds), seconds))
	}
	for i := range on {
		w.done[on[i].id] += speeds[i] * seconds
	}
	w.sharingPolicy.observe(v, device, speeds, seconds)
}

// TestPropertySharing: under every policy each job does exactly its work, none is lost, none is faster than alone, and the
// last ends neither before the longest could nor before all devices could have done all the work with mostSharing each.
func TestPropertySharing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(rt, "configurations")
		var configs [][2]float64
		var speeds [][]float64
		for range n {
			configs = append(configs, [2]float64{rapid.Float64Range(0, 1).Draw(rt, "sm"), rapid.Float64Range(.5, 24).Draw(rt, "GiB")})
			speeds = append(speeds, rapid.SliceOfN(rapid.Float64Range(.3, 1), n, n).Draw(rt, "speeds"))
		}
		table := shared(configs, speeds...)
		for i := range n {
			for j := range i {
				table.excess[i][j] = vgpu.Bytes(rapid.Int64Range(0, 1<<31).Draw(rt, "excess"))
				table.excess[j][i] = table.excess[i][j]
			}
		}
		b := drawBatch(table, 0, rapid.IntRange(1, 40).Draw(rt, "jobs"), rapid.Int64Range(0, 99).Draw(rt, "seed"))
		devices := rapid.IntRange(1, 4).Draw(rt, "devices")
		for _, name := range SharingPolicies() {
			p, err := sharingPolicyOf(name, table)
			must.OK(rt, err)
			w := &watched{sharingPolicy: p, done: make([]float64, len(b.work))}
			r := newSharingRun(table, w, devices, b)
			if err := r.play(); err != nil {
				rt.Fatalf("%s: %v", name, err)
			}
			checkShared(rt, name, r, w)
		}
	})
}

func checkShared(rt *rapid.T, name string, r *sharingRun, w *watched) {
	sum, longest := 0.0, 0.0
	for i, work := range r.work {
		if math.Abs(w.done[i]-work) > 1e-6*work || r.left[i] != 0 {
			rt.Fatalf("%s: job %d did %v of %v, %v left", name, i, w.done[i], work, r.left[i])
		}
		if r.slowdowns[i] < 1-1e-9 {
			rt.Fatalf("%s: job %d has the slowdown %v", name, i, r.slowdowns[i])
		}
		sum, longest = sum+work, max(longest, work)
	}
	if least := max(longest, sum/float64(mostSharing*len(r.view.devices))); r.view.now < least*(1-1e-9) {
		rt.Fatalf("%s: all done at %v, before %v", name, r.view.now, least)
	}
	if len(w.wrong) > 0 || r.utilization() < 0 || r.utilization() > 1+1e-9 || len(r.view.queue)+len(r.failed) > 0 {
		rt.Fatalf("%s: %v, utilisation %v, %d wait", name, w.wrong, r.utilization(), len(r.view.queue))
	}
	if name == exclusive && (r.oom > 0 || slices.Max(r.slowdowns) > 1+1e-9) {
		rt.Fatalf("fifo: %d failed, slowdown %v", r.oom, slices.Max(r.slowdowns))
	}
	if (name == "oracle") && (r.oom > 0 || slices.Max(r.slowdowns) > 1/leastSpeed+1e-9) {
		rt.Fatalf("oracle: %d failed, slowdown %v", r.oom, slices.Max(r.slowdowns))
	}
}

// TestSharingPolicyThatNeverStarts is an error and no endless loop.
func TestSharingPolicyThatNeverStarts(t *testing.T) {
	table := shared([][2]float64{{.5, 1}}, []float64{1})
	r := newSharingRun(table, &firstFit{most: 0, cost: fewest}, 1, batch{[]int{0, 0}, []float64{1, 1}})
	if err := r.play(); err == nil || err.Error() != "2 jobs wait while every device is idle" {
		t.Errorf("error %v", err)
	}
}

// TestDrawBatch: of 2 of 4 configurations a batch has 2, other seeds have others, and durations are lognormal.
func TestDrawBatch(t *testing.T) {
	table, err := tableOfPairs(trees(t))
	must.OK(t, err)
	drawn := map[string]bool{}
	for seed := range int64(20) {
		kinds := slices.Compact(slices.Sorted(slices.Values(drawBatch(table, 2, 200, seed).configs)))
		if len(kinds) != 2 {
			t.Errorf("seed %d draws %v", seed, kinds)
		}
		drawn[fmt.Sprint(kinds)] = true
	}
	if len(drawn) != 6 {
		t.Errorf("20 seeds draw %d of 6 choices", len(drawn))
	}
	b := drawBatch(table, 0, 20_000, 7)
	slices.Sort(b.work)
	median, high := b.work[10_000], b.work[16_827] // Φ(1) = 0.84134
	if math.Abs(median/1800-1) > .03 || math.Abs(math.Log(high/median)-1.2) > .03 {
		t.Errorf("median %v, one σ above it %v; want 1800 and e^1.2 times that", median, high)
	}
}
