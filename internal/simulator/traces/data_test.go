package traces

import (
	"bufio"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/published"
)

func load(t testing.TB, path ...string) *Trace {
	t.Helper()
	tr, err := Load(filepath.Join(append([]string{published.Data(t)}, path...)...))
	must.OK(t, err)
	return tr
}

// TestPublishedCounts compares the traces with what their authors say of them.
func TestPublishedCounts(t *testing.T) {
	nodes := load(t, "openb_fgd", "openb_node_list_gpu_node.csv")
	devices, cpu := 0, int64(0)
	for _, h := range nodes.Hosts {
		devices += h.Devices
		cpu += h.Room.MilliCPU
	}
	if len(nodes.Hosts) != 1213 || devices != 6212 || cpu != 107_018_000 {
		t.Errorf("%d nodes, %d GPUs, %d milli-CPU, want 1213, 6212 and 107018000", len(nodes.Hosts), devices, cpu)
	}
	for file, want := range map[string]string{
		"openb_fgd/openb_pod_list_default.csv":       "openb-pods, 8152 jobs",
		"muri/trace1.csv":                            "muri-jobs, 1494 jobs",
		"muri/trace2.csv":                            "muri-jobs, 5755 jobs",
		"muri/trace3.csv":                            "muri-jobs, 992 jobs",
		"muri/trace4.csv":                            "muri-jobs, 2638 jobs",
		"muri/cluster_trace.csv":                     "muri-jobs, 400 jobs",
		"pollux_sia/workloads/pollux-workload-1.csv": "pollux-jobs, 160 jobs",
		"pollux_sia/workloads/sia/saturn-1.csv":      "pollux-jobs, 160 jobs",
		"openb_fgd/openb_node_list_gpu_node.csv":     "openb-nodes, 1213 nodes",
	} {
		tr := load(t, file)
		if got := fmt.Sprintf("%s, %s", tr.Format, tr.String()[len(tr.File)+len(": ")+len(tr.Format)+len(", "):]); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}

// TestPublishedLoads reads every trace of every format. Some folders hold only a part of what was published.
func TestPublishedLoads(t *testing.T) {
	dir := published.Data(t)
	for pattern, tc := range map[string]struct {
		format csvtable.Format
		files  int // at least
		most   int // things in each file, as published
	}{
		"openb_fgd/openb_node_list_*.csv":          {OpenbNodeList, 1, 1523},
		"openb_fgd/openb_pod_list_*.csv":           {OpenbPodList, 15, 10_000},
		"gavel/traces/msr_*.csv":                   {GavelTrace, 9, 40_000},
		"pollux_sia/philly.csv":                    {PhillyTrace, 1, 82_247},
		"pollux_sia/workloads/*.csv":               {PolluxWorkload, 4, 160},
		"pollux_sia/workloads/sia/*.csv":           {PolluxWorkload, 2, 960},
		"muri/*trace*.csv":                         {MuriTrace, 5, 5755},
		"alibaba_2025_2026/disaggregated_DLRM*csv": {DLRMTrace, 1, 23_871},
	} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) < tc.files {
			t.Errorf("%s: %d files, want at least %d, error %v", pattern, len(files), tc.files, err)
		}
		for _, file := range files {
			tr, err := Load(file)
			if err != nil {
				t.Error(err)
				continue
			}
			n := len(tr.Hosts) + len(tr.Jobs)
			if tr.Format != tc.format || n == 0 || n > tc.most {
				t.Errorf("%v, want %s and at most %d", tr, tc.format, tc.most)
			}
			checkTrace(t, tr)
		}
	}
}

// TestPublishedUnits looks at amounts whose unit is easy to mistake. Philly's jobs run for hours, Muri's are Philly's jobs,
// and a step takes below a second on Muri's GPUs.
func TestPublishedUnits(t *testing.T) {
	median := func(jobs []Job) (hours float64) {
		all := make([]float64, 0, len(jobs))
		for i := range jobs {
			all = append(all, jobs[i].Duration.Hours())
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	for file, most := range map[string]float64{
		"pollux_sia/philly.csv": 1, "muri/trace1.csv": 10,
	} {
		if got := median(load(t, file).Jobs); got < 0.05 || got > most {
			t.Errorf("%s: half of the jobs run for more than %v hours, want .05 to %v", file, got, most)
		}
	}
	muri := load(t, "muri", "trace1.csv").Jobs[0] // 5,853,661 iterations of 490 ms take 2,868,294 s
	if got, want := muri.Duration.Seconds(), 2_868_294.0; got != want {
		t.Errorf("the first job of Muri runs for %v s, want %v", got, want)
	}
	if got, want := muri.StepTime.Seconds(), .490; got != want {
		t.Errorf("an iteration takes %v s, want %v", got, want)
	}
}

// TestPublishedArrivals compares the orders of five seeds with those that the protocol gives elsewhere.
func TestPublishedArrivals(t *testing.T) {
	pods := load(t, "openb_fgd", "openb_pod_list_default.csv").Jobs
	for seed := int64(42); seed <= 46; seed++ {
		order, rank, err := Arrivals(pods, 1213, 6_212_000, seed, 1.3)
		must.OK(t, err)
		want := lines(t, filepath.Join(published.Data(t), "openb_fgd", "arrivals", fmt.Sprintf("default_seed%d.txt.gz", seed)))
		if diff := cmp.Diff(want, origins(order)); diff != "" {
			t.Errorf("seed %d: order (-want +got):\n%s", seed, diff)
		}
		if len(rank) != 1213 {
			t.Errorf("seed %d: %d ranks, want 1213", seed, len(rank))
		}
	}
}

func lines(t testing.TB, path string) []string {
	t.Helper()
	r, err := csvtable.Open(path)
	must.OK(t, err)
	defer r.Close()
	var all []string
	s := bufio.NewScanner(r)
	for s.Scan() {
		all = append(all, s.Text())
	}
	must.OK(t, s.Err())
	return all
}

func origins(order []Job) []string {
	names := make([]string, 0, len(order))
	for i := range order {
		names = append(names, order[i].Origin)
	}
	return names
}
