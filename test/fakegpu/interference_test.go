package fakegpu_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func TestSpeedFollowsFromThePressureOfTheNeighbours(t *testing.T) {
	hidden := func(s, p float64) fakegpu.Hidden {
		return fakegpu.Hidden{SM: 0.5, Bandwidth: 0.2, Sensitivity: s, Pressure: p}
	}
	capped := hidden(0.5, 0)
	capped.Cap = 0.25
	roomy := hidden(0.5, 0)
	roomy.Cap = 0.75
	idle := fakegpu.Hidden{Sensitivity: 1, Pressure: 9}
	for _, c := range []struct {
		name    string
		tenants []fakegpu.Hidden
		want    float64
	}{
		{"alone", []fakegpu.Hidden{hidden(9, 9)}, 1},
		{"two neighbours: 1/(1 + 0.5·0.6)", []fakegpu.Hidden{hidden(0.5, 3), hidden(7, 0.4), hidden(7, 0.2)}, 1 / 1.3},
		{"not sensitive", []fakegpu.Hidden{hidden(0, 3), hidden(7, 0.4)}, 1},
		{"an idle neighbour presses on nobody", []fakegpu.Hidden{hidden(0.5, 3), idle}, 1},
		{"a cap of half of what it wants: 0.5/(1 + 0.5·2)", []fakegpu.Hidden{capped, hidden(0, 2)}, 0.25},
		{"a cap above what it wants", []fakegpu.Hidden{roomy, hidden(0, 2)}, 0.5},
	} {
		if got := fakegpu.Speed(c.tenants, 0); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: speed %v, want %v", c.name, got, c.want)
		}
	}
}

// A device's use is what its tenants do at their speeds, and no more than all of it.
func TestUseFollowsTheSpeed(t *testing.T) {
	tenants := []fakegpu.Hidden{
		{ID: 1, SM: 0.8, Bandwidth: 0.4, Sensitivity: 1, Pressure: 0.5},   // 1/(1+0.25) = 0.8
		{ID: 2, SM: 0.6, Bandwidth: 0.2, Sensitivity: 2, Pressure: 0.25},  // 1/(1+1) = 0.5
		{ID: 3, SM: 0.1, Bandwidth: 0.01, Sensitivity: 0, Pressure: 0.00}, // 1
	}
	var got fakegpu.CoRun
	fakegpu.Interference{}.Run(tenants, 7, &got)
	want := fakegpu.CoRun{Speeds: []float64{0.8, 0.5, 1}, SM: []float64{0.64, 0.3, 0.1}, DeviceSM: 1, DeviceBandwidth: 0.43}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-12)); diff != "" {
		t.Errorf("co-run (-want +got):\n%s", diff)
	}
	fakegpu.Interference{}.Run(tenants[2:], 8, &got)
	if got.DeviceSM != 0.1 || len(got.Speeds) != 1 {
		t.Errorf("the same slices once more: %+v", got)
	}
}

// The noise is bounded, evenly spread, that of the seed, and not of the order or of the neighbours.
func TestNoiseIsSeededAndBounded(t *testing.T) {
	const steps = 20_000
	i := fakegpu.Interference{Seed: 3, Noise: 0.1}
	a, b := fakegpu.Hidden{ID: 10, SM: 0.5}, fakegpu.Hidden{ID: 11, SM: 0.5}
	var one, swapped, other fakegpu.CoRun
	sum, least, most, equal := 0.0, 2.0, 0.0, 0
	for step := range uint64(steps) {
		i.Run([]fakegpu.Hidden{a, b}, step, &one)
		i.Run([]fakegpu.Hidden{b, a}, step, &swapped)
		fakegpu.Interference{Seed: 4, Noise: 0.1}.Run([]fakegpu.Hidden{a, b}, step, &other)
		if one.Speeds[0] != swapped.Speeds[1] || one.Speeds[1] != swapped.Speeds[0] {
			t.Fatalf("step %d: %v, the other way round %v", step, one.Speeds, swapped.Speeds)
		}
		if one.Speeds[0] == other.Speeds[0] || one.Speeds[0] == one.Speeds[1] {
			equal++
		}
		sum += one.Speeds[0]
		least, most = min(least, one.Speeds[0]), max(most, one.Speeds[0])
	}
	if mean := sum / steps; math.Abs(mean-1) > 0.002 || least < 0.9 || least > 0.901 || most > 1.1 || most < 1.099 || equal > 0 {
		t.Errorf("mean %v, from %v to %v, %d equal draws", mean, least, most, equal)
	}
}

// More pressure never helps anybody, and nobody's own pressure harms it.
func TestPressureHarmsTheOthersAloneProperty(t *testing.T) {
	part := rapid.Float64Range(0, 1)
	one := rapid.Custom(func(t *rapid.T) fakegpu.Hidden {
		return fakegpu.Hidden{
			SM: part.Draw(t, "sm"), Bandwidth: part.Draw(t, "bandwidth"),
			Sensitivity: part.Draw(t, "sensitivity") * 3, Pressure: part.Draw(t, "pressure") * 3, Cap: part.Draw(t, "cap"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		tenants := rapid.SliceOfN(one, 1, 6).Draw(t, "tenants")
		at := rapid.IntRange(0, len(tenants)-1).Draw(t, "at")
		harsher := slices.Clone(tenants)
		harsher[at].Pressure++
		for i := range tenants {
			before, after := fakegpu.Speed(tenants, i), fakegpu.Speed(harsher, i)
			if after > before || i == at && after != before || before > 1 || before <= 0 {
				t.Fatalf("tenant %d: %v, after more pressure of %d %v", i, before, at, after)
			}
		}
	})
}

// The fake driver shows what is left of the use, and tells each client its progress.
func TestNVMLShowsWhatInterferenceLeaves(t *testing.T) {
	g := newGPU(t)
	must.OK(t, fakegpu.Update(g.state, func(s *fakegpu.State) { s.ClientSamples = true }))
	h := handle(t, open(t), 0)
	victim := g.dial(fakegpu.ClientLoad{PID: 70, SM: 40, Bandwidth: 30, Sensitivity: 1, Pressure: 0.1})
	checkUtilization(t, h, 40, 30)
	progresses(t, victim, 1)
	harsh := g.dial(fakegpu.ClientLoad{PID: 71, SM: 50, Bandwidth: 10, Sensitivity: 0, Pressure: 0.6})
	// A process without MPS presses too: 1/(1 + 1·(0.6 + 0.4)) = 0.5; 20 + 50 + 10, 15 + 10 + 5.
	g.order(func(d *fakegpu.Device) {
		d.Processes = []fakegpu.Process{{PID: 9, SM: 10, MemoryBandwidth: 5, Pressure: 0.4}}
	})
	checkUtilization(t, h, 80, 30)
	checkSamples(t, h, map[uint32][2]uint32{9: {10, 5}, 70: {20, 15}, 71: {50, 10}})
	progresses(t, victim, 0.5)
	progresses(t, harsh, 1)
	// One that is capped at half of what it wants does half.
	limited := g.dial(fakegpu.ClientLoad{PID: 72, Percent: 20, SM: 40})
	progresses(t, limited, 0.5)
	limited.Close()

	must.OK(t, fakegpu.Update(g.state, func(s *fakegpu.State) { s.Interference = fakegpu.Interference{Seed: 1, Noise: 0.1, StepMillis: 1} }))
	eventually(t, "the noise changes the progress, within its bounds", func() bool {
		speed, err := harsh.Progress()
		if err != nil || speed < 0.9 || speed > 1.1 {
			t.Fatalf("progress %v (%v)", speed, err)
		}
		return speed != 1
	})
	harsh.Close()
	if _, err := harsh.Progress(); err == nil {
		t.Error("a client that has ended makes progress")
	}
}

func progresses(t *testing.T, c *fakegpu.Client, want float64) {
	t.Helper()
	eventually(t, fmt.Sprintf("progress %v", want), func() bool {
		speed, err := c.Progress()
		must.OK(t, err)
		return math.Abs(speed-want) < 1e-9
	})
}

// The state file refuses what would make tenants faster or noise endless.
func TestHiddenFiguresAreChecked(t *testing.T) {
	for word, change := range map[string]func(*fakegpu.State){
		"noise":       func(s *fakegpu.State) { s.Interference.Noise = 1 },
		"sensitivity": func(s *fakegpu.State) { s.Devices[0].Processes = []fakegpu.Process{{PID: 4, Sensitivity: -1}} },
		"pressure":    func(s *fakegpu.State) { s.Devices[0].Processes = []fakegpu.Process{{PID: 4, Pressure: -1}} },
	} {
		s := node(t, "A100", 1)
		change(&s)
		if _, err := fakegpu.Load(write(t, s)); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want an error that names it", word, err)
		}
	}
}

var gauge = regexp.MustCompile(`(?m)^tenant_rate ([0-9.e+-]+)$`)

// The static program reports its rate, or so many times of it as it is told to.
func TestTenantReportsItsRate(t *testing.T) {
	g := newGPU(t)
	env := []string{"CUDA_MPS_PIPE_DIRECTORY=" + g.pipe()}
	honest, lying := ownAddress(9410), ownAddress(9411)
	startTenant(t, env, "--sm", "40", "--sensitivity", "1", "--pressure", "1", "--rate", "120", "--serve", honest)
	startTenant(t, env, "--sm", "40", "--sensitivity", "3", "--pressure", "1", "--rate", "120", "--serve", lying, "--lie", "2")
	reports(t, honest, 60) // 120/(1 + 1·1)
	reports(t, lying, 60)  // 2·120/(1 + 3·1)
	startTenant(t, env, "--sensitivity", "-1").ends(1)
}

func reports(t *testing.T, address string, want float64) {
	t.Helper()
	eventually(t, fmt.Sprintf("a rate of %v at %s", want, address), func() bool {
		r, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return false
		}
		defer func() { _ = r.Body.Close() }()
		page, err := io.ReadAll(r.Body)
		must.OK(t, err)
		found := gauge.FindSubmatch(page)
		if found == nil || !strings.Contains(string(page), "# TYPE tenant_steps_total counter") {
			t.Fatalf("page %s", page)
		}
		rate, err := strconv.ParseFloat(string(found[1]), 64)
		return err == nil && math.Abs(rate-want) < 1e-6
	})
}

// ownAddress is a port of a loopback address of this process alone, so that no other program has taken it.
func ownAddress(port int) string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+pid>>16, pid>>8&0xff, pid&0xff, port) // a PID has 22 bits
}

// The learner's tests take thousands of steps: one costs less than a microsecond for four tenants.
func BenchmarkInterference(b *testing.B) {
	tenants := make([]fakegpu.Hidden, 4)
	for i := range tenants {
		tenants[i] = fakegpu.Hidden{ID: uint64(i), SM: 0.3, Bandwidth: 0.2, Sensitivity: 0.5, Pressure: 0.5}
	}
	var out fakegpu.CoRun
	step := fakegpu.Interference{}.Step(time.Unix(1, 0))
	b.ReportAllocs()
	for b.Loop() {
		fakegpu.Interference{Seed: 1, Noise: 0.1}.Run(tenants, step, &out)
		step++
	}
}
