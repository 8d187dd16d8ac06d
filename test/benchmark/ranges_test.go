package benchmark

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-gpu/tandem/test/must"
)

func TestCompareRatios(t *testing.T) {
	ratios := []Ratio{
		{Name: "plain", Ours: "A/1", Stock: "B/1", Min: 0.95, Measured: 1.01},
		{Name: "vgpu", Ours: "A/2", Stock: "B/2", Measured: 0.5},
	}
	tests := []struct {
		name string
		rate map[string]float64
		want []string
	}{
		// 95/100 is exactly what is allowed; nothing is required of the second.
		{name: "within", rate: map[string]float64{"A/1": 95, "B/1": 100, "A/2": 10, "B/2": 100}},
		{
			name: "below", rate: map[string]float64{"A/1": 94, "B/1": 100, "A/2": 10, "B/2": 100},
			want: []string{"plain: ratio 0.94 is below 0.95"},
		},
		{
			name: "a workload without a result is no pass", rate: map[string]float64{"A/1": 95, "B/1": 100, "A/2": 10},
			want: []string{"vgpu: A/2 = 10.0, B/2 = 0.0: a workload was not measured"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table, broken := CompareRatios(ratios, test.rate)
			if diff := cmp.Diff(test.want, broken); diff != "" {
				t.Errorf("broken (-want +got):\n%s", diff)
			}
			if !strings.Contains(table, "plain") {
				t.Errorf("the table does not name the comparison:\n%s", table)
			}
		})
	}
}

func TestCompareCosts(t *testing.T) {
	costs := []Cost{{Name: "one pod", Benchmark: "BenchmarkOnePod/nodes=500", MaxMilliseconds: 1, Measured: 0.5}}
	tests := []struct {
		name   string
		output string
		want   []string
	}{
		{name: "within", output: "BenchmarkOnePod/nodes=500-2   10   1000000 ns/op   5 B/op\n"},
		{name: "within on one core, which prints no number", output: "BenchmarkOnePod/nodes=500   10   999999.5 ns/op\n"},
		{name: "above", output: "BenchmarkOnePod/nodes=500-16   10   1500000 ns/op\n", want: []string{"one pod: 1.5 ms is above 1 ms"}},
		{name: "processor time counts where it is told", output: "BenchmarkOnePod/nodes=500   10   9000000 ns/op   0.5 cpu-ms/op\n"},
		{
			name: "too much processor time", output: "BenchmarkOnePod/nodes=500   10   500000 ns/op   1.5 cpu-ms/op   3 B/op\n",
			want: []string{"one pod: 1.5 ms is above 1 ms"},
		},
		{
			name: "the slowest of a hundred count where they are told",
			output: "BenchmarkOnePod/nodes=500   1   900000 ns/op   0.5 p50-ms   1.5 p99-ms   3 B/op\n" +
				"BenchmarkOther   1   900000 ns/op   9 p99-ms\n",
			want: []string{"one pod: 1.5 ms is above 1 ms"},
		},
		{
			name: "another size is another benchmark", output: "BenchmarkOnePod/nodes=5000-2   10   1000 ns/op\n",
			want: []string{"one pod: BenchmarkOnePod/nodes=500 was not measured"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			milliseconds, err := Milliseconds(test.output)
			must.OK(t, err)
			if _, broken := CompareCosts(costs, milliseconds); !cmp.Equal(test.want, broken) {
				t.Errorf("broken: %q, want %q", broken, test.want)
			}
		})
	}
}

func TestPodsPerSecond(t *testing.T) {
	dir := t.TempDir()
	const file = `{"version":"v1","dataItems":[
		{"data":{"Duration":8.5},"unit":"s","labels":{"Metric":"SchedulingDuration","Name":"BenchmarkAgainstStock/PlainStock/500Nodes/namespace-2"}},
		{"data":{"Average":9},"unit":"ms","labels":{"Metric":"scheduler_attempt_seconds","Name":"BenchmarkAgainstStock/PlainTandem/500Nodes"}}]}`
	// 2,000 pods in 8, 10, 20 and 16 s: the two rounds in the middle are 125 and 200 pods/s.
	for name, duration := range map[string]string{"a": "8", "b": "10", "c": "20", "d": "16"} {
		round := strings.ReplaceAll(file, "8.5", duration)
		must.OK(t, os.WriteFile(filepath.Join(dir, name+".json"), []byte(round), 0o600))
	}
	pods, err := Pods("workloads.yaml")
	must.OK(t, err)
	got, err := PodsPerSecond(dir, pods)
	must.OK(t, err)
	if diff := cmp.Diff(map[string]float64{"PlainStock/500Nodes": 162.5}, got); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
}

func TestMostPodsPerSecond(t *testing.T) {
	dir := t.TempDir()
	progress := func(name string, lines ...string) {
		t.Helper()
		must.OK(t, os.WriteFile(filepath.Join(dir, name+".dat"), []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	}
	// 475 of 500 are 95 %: they are there after 20, 30 and 50 seconds, the last one never or minutes later.
	progress("A_500Nodes_stock_1", "10.0s 9 9 474 1.0 0 0 0 0", "20.0s 9 9 480 1.0 0 0 0 0", "320.0s 9 9 500 1.0 0 0 0 0")
	progress("A_500Nodes_stock_2", "30.0s 9 9 475 1.0 0 0 0 0")
	progress("A_500Nodes_stock_3", "50.0s 9 9 500 1.0 0 0 0 0")
	// All but a few came within the last second: the time of all counts, 500 in 4 s.
	progress("B_500Nodes_stock_1", "1.0s 9 9 2 1.0 0 0 0 0", "2.0s 9 9 100 98 0 0 0 0")
	duration := `{"dataItems":[{"data":{"Duration":4},"labels":{"Metric":"SchedulingDuration","Name":"Benchmark/B/500Nodes/n"}}]}`
	must.OK(t, os.WriteFile(filepath.Join(dir, "b.json"), []byte(duration), 0o600))
	pods := map[string]int{"A/500Nodes": 500, "B/500Nodes": 500}
	got, err := MostPodsPerSecond(dir, pods)
	must.OK(t, err)
	// 480/20 = 24, 475/30 = 15.8, 500/50 = 10: the median is 15.8.
	want := map[string]float64{"A/500Nodes": 475. / 30, "B/500Nodes": 125}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
	progress("C_500Nodes_stock_1", "no line")
	if _, err := MostPodsPerSecond(dir, pods); err == nil {
		t.Error("a line that cannot be read was accepted")
	}
}

func TestGangsPerSecond(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		// 410 gangs in 82 s, whatever the number of attempts.
		"a.gangs": `{"name":"BenchmarkAgainstStock/GangStock/5000Nodes","seconds":82,"attempts":500,"scheduled":410}`,
		"b.gangs": `{"name":"BenchmarkAgainstStock/GangTandem/5000Nodes","seconds":4.1,"attempts":410,"scheduled":410}`,
		// scheduler_perf writes this one beside them.
		"c.json": `{"version":"v1"}`,
	} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	got, err := GangsPerSecond(dir)
	must.OK(t, err)
	want := map[string]float64{"GangStock/5000Nodes": 5, "GangTandem/5000Nodes": 100}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
	// 100 gangs a second beside 5: twenty times less time for each.
	ratios := []Ratio{{Name: "gangs", Ours: "GangTandem/5000Nodes", Stock: "GangStock/5000Nodes", Min: 21}}
	if _, broken := CompareRatios(ratios, got); !cmp.Equal(broken, []string{"gangs: ratio 20.00 is below 21.00"}) {
		t.Errorf("broken: %q", broken)
	}
}

func TestPods(t *testing.T) {
	pods, err := Pods("workloads.yaml")
	must.OK(t, err)
	// Workloads of one name have as many pods as their case says.
	for name, want := range map[string]int{"VGPUTandem/5000Nodes": 3000, "GangTandem/5000Nodes": 1600, "GangStock/5000Nodes": 1600} {
		if pods[name] != want {
			t.Errorf("%s has %d pods, want %d", name, pods[name], want)
		}
	}
	ranges, err := LoadRanges("ranges.yaml")
	must.OK(t, err)
	for _, r := range slices.Concat(ranges.Ratios, ranges.Gangs, ranges.Preemptions) {
		if pods[r.Ours] == 0 || pods[r.Stock] == 0 {
			t.Errorf("%s compares workloads that do not exist: %s, %s", r.Name, r.Ours, r.Stock)
		}
	}
}

func TestLoadRanges(t *testing.T) {
	ranges, err := LoadRanges("ranges.yaml")
	must.OK(t, err)
	if len(ranges.Ratios) == 0 || len(ranges.Gangs) == 0 || len(ranges.Preemptions) == 0 || len(ranges.Costs) == 0 {
		t.Errorf("nothing to compare: %+v", ranges)
	}
	for _, r := range slices.Concat(ranges.Ratios, ranges.Gangs, ranges.Preemptions) {
		if r.Name == "" || r.Ours == "" || r.Stock == "" {
			t.Errorf("incomplete: %+v", r)
		}
	}
	for _, c := range ranges.Costs {
		if c.Name == "" || c.Benchmark == "" || c.MaxMilliseconds <= 0 {
			t.Errorf("incomplete: %+v", c)
		}
	}
	path := filepath.Join(t.TempDir(), "ranges.yaml")
	must.OK(t, os.WriteFile(path, []byte("ratios:\n- nam: x\n"), 0o600))
	if _, err := LoadRanges(path); err == nil || !strings.Contains(err.Error(), `unknown field`) {
		t.Errorf("a misspelt field gives %v", err)
	}
}
