package report_test

import (
	"io"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/golden"
)

func slice(from, to vgpu.Slots, pod string, held bool) vgpu.MapSlice {
	return vgpu.MapSlice{From: from, To: to, Pod: pod, UID: vgpu.UID(pod), Held: held, Memory: vgpu.GiB}
}

// TestMap draws what a picture has to cope with: a sick device, room that is held, a name too long for its slice, slices
// too narrow to be seen, and more held than there is.
func TestMap(t *testing.T) {
	device := func(name string, slots vgpu.Slots, healthy bool, slices ...vgpu.MapSlice) vgpu.MapDevice {
		return vgpu.MapDevice{ID: vgpu.DeviceID("n/" + name), Name: name, Model: "A100", Slots: slots, Memory: 40 * vgpu.GiB, Healthy: healthy, Slices: slices}
	}
	m := report.Map{Map: vgpu.Map{
		AtSeconds: 5400,
		Nodes: []vgpu.MapNode{
			{Name: "node-1", FreeMilliCPU: 1500, FreeMemory: 4 * vgpu.GiB, Devices: []vgpu.MapDevice{
				device("g0", 10, true, slice(0, 3, "default/a", false), slice(3, 4, "default/b-with-a-long-name", false), slice(4, 10, "default/c", true)),
				device("g1", 10, false),
				device("g2", 10, true, slice(0, 10, "default/whole", false), slice(10, 14, "default/next", true)),
				device("g10", 1000, true, slice(0, 460, "default/big", false), slice(460, 461, "default/tiny", false)),
			}},
			{Name: "cpu-1", FreeMilliCPU: 64000, FreeMemory: 512 * vgpu.GiB},
		},
		Pending: []vgpu.MapPending{{Pod: "default/d", UID: "d", Slots: 20, SinceSeconds: 61.5, Reason: "0 of 2 nodes fit"}, {
			Pod: "default/train", UID: "t0", Members: 8, Slots: 80, SinceSeconds: 90, Reason: "needs 8 × 1 GPU in one rack; no rack is that large",
		}},
	}}
	golden.Written(t, "map.txt", m.Table)
	golden.Written(t, "map.json", func(w io.Writer) error { return report.JSON(w, m) })
	var b strings.Builder
	if err := m.Table(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(b.String(), "\n") {
		if at := strings.Index(line, "│"); at >= 0 && len([]rune(line[at:strings.LastIndex(line, "│")])) != 60 {
			t.Errorf("a device is not drawn to scale: %s", line)
		}
	}
}

func TestScenario(t *testing.T) {
	makespan := 11532.0
	s := report.Scenario{
		Scenario: "night",
		Results: []report.RunResult{
			{
				Policy: "tandem", Seed: 42, Jobs: report.Jobs{Arrived: 120, Finished: 118, Waiting: 2},
				AllocatedPercent:     report.OverTime{Mean: 71.3456, Peak: 99.5, End: 12},
				FragmentationPercent: report.OverTime{Mean: 4.04, Peak: 20, End: 1},
				WaitSeconds:          &report.Quantiles{Mean: .8504, P50: 0, P99: 42.5, Max: 60},
				JCTSeconds:           &report.Quantiles{Mean: 750, P50: 700, P99: 11000, Max: 11532},
				MakespanSeconds:      &makespan,
				Gangs: &report.Gangs{
					Jobs: report.Jobs{Arrived: 12, Finished: 11, Waiting: 1}, Drained: 3, Attempts: 2.25,
					WaitSeconds: &report.Quantiles{Mean: 61.5, P50: 10, P99: 600, Max: 600},
					Spread: []report.LevelSpread{
						{Level: "example.com/rack", Mean: 1.0909, Max: 2}, {Level: "kubernetes.io/hostname", Mean: 2.5, Max: 4},
					},
				},
			},
			{Policy: "random", Seed: 42, Jobs: report.Jobs{Arrived: 120, Dropped: 120}, Gangs: &report.Gangs{
				Jobs: report.Jobs{Arrived: 12, Dropped: 12}, Attempts: 1,
				Spread: []report.LevelSpread{{Level: "example.com/rack"}, {Level: "kubernetes.io/hostname"}},
			}},
		},
		Checks: []report.CheckResult{
			{Assertion: "finished_pods: at least 100", Policy: "tandem", Seed: 42, Value: 118, Passed: true},
			{Assertion: "finished_pods: at least 100: fails, it is 0", Policy: "random", Seed: 42},
		},
	}
	golden.Written(t, "scenario.txt", s.Table)
	golden.Written(t, "scenario.json", func(w io.Writer) error { return report.JSON(w, s) })
	s.Checks = nil
	golden.Written(t, "scenario_unchecked.txt", s.Table)
}
