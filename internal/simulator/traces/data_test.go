package traces

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// published returns the folder of the published traces, of which some are wanted here, or skips the test.
func published(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("TANDEM_DATA")
	if dir == "" {
		t.Skip("TANDEM_DATA is not set: it names the folder of the published traces (docs/experiments.md)")
	}
	return dir
}

func load(t testing.TB, path ...string) *Trace {
	t.Helper()
	tr, err := Load(filepath.Join(append([]string{published(t)}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
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
		"openb_fgd/openb_pod_list_default.csv":         "openb-pods, 8152 jobs",
		"muri/trace1.csv":                              "muri-jobs, 1494 jobs",
		"muri/trace2.csv":                              "muri-jobs, 5755 jobs",
		"muri/trace3.csv":                              "muri-jobs, 992 jobs",
		"muri/trace4.csv":                              "muri-jobs, 2638 jobs",
		"muri/cluster_trace.csv":                       "muri-jobs, 400 jobs",
		"pollux_sia/workloads/pollux-workload-1.csv":   "pollux-jobs, 160 jobs",
		"pollux_sia/workloads/sia/saturn-1.csv":        "pollux-jobs, 160 jobs",
		"pollux_sia/placements/bert-aws.csv":           "pollux-placements, 540 measured steps",
		"pollux_sia/scalability/bert-aws.csv":          "pollux-scalability, 180 measured steps",
		"pollux_sia/validation/bert-validation-48.csv": "pollux-validation, 2 epochs",
		"openb_fgd/openb_node_list_gpu_node.csv":       "openb-nodes, 1213 nodes",
	} {
		tr := load(t, file)
		if got := fmt.Sprintf("%s, %s", tr.Format, tr.String()[len(tr.File)+len(": ")+len(tr.Format)+len(", "):]); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}

// TestPublishedLoads reads every trace of every format. Some folders hold only a part of what was published.
func TestPublishedLoads(t *testing.T) {
	dir := published(t)
	for pattern, tc := range map[string]struct {
		format Format
		files  int // at least
		most   int // things in each file, as published
	}{
		"openb_fgd/openb_node_list_*.csv":          {OpenbNodeList, 1, 1523},
		"openb_fgd/openb_pod_list_*.csv":           {OpenbPodList, 15, 10_000},
		"gavel/traces/msr_*.csv":                   {GavelTrace, 9, 40_000},
		"gavel/scaling.csv":                        {GavelThroughputs, 1, 249},
		"gavel/pairs.csv":                          {GavelPairs, 1, 156 + 2106},
		"pollux_sia/philly.csv":                    {PhillyTrace, 1, 82_247},
		"pollux_sia/workloads/*.csv":               {PolluxWorkload, 4, 160},
		"pollux_sia/workloads/sia/*.csv":           {PolluxWorkload, 2, 960},
		"pollux_sia/placements/*.csv":              {PolluxPlacementTimes, 18, 2000},
		"pollux_sia/scalability/*.csv":             {PolluxScalingTimes, 18, 2000},
		"pollux_sia/validation/*.csv":              {PolluxValidation, 40, 100},
		"muri/*trace*.csv":                         {MuriTrace, 5, 5755},
		"alibaba_2025_2026/disaggregated_DLRM*csv": {DLRMTrace, 1, 23_871},
		"lucid/colocate_info.csv":                  {LucidPairs, 1, 1388},
		"lucid/single_data.csv":                    {LucidSingles, 1, 66},
		"igniter/v100_pair_interference.csv":       {IgniterPairs, 1, 750},
		"igniter/v100_mps_latency_throughput.csv":  {IgniterCurves, 1, 648},
		"gpumemnet/mlp_train_features_util.csv":    {GPUMemNetFeatures, 1, 3000},
		"glet/*_UTIL.csv":                          {GletUtilisation, 2, 90},
		"miso/mig_slice_step_time.csv":             {MISOSlices, 1, 145},
		"muxserve/llama_mps_profile_a100.csv":      {MuxServeLatencies, 1, 2 * 5120},
		"parvagpu/a100_mig_mps_profile.csv":        {ParvaProfile, 1, 2475 + 495},
		"parvagpu/SLO?_ParvaGPU_deploy.csv":        {ParvaDeployment, 4, 53},
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
			n := len(tr.Hosts) + len(tr.Jobs) + len(tr.Rates) + len(tr.Steps) + len(tr.Epochs) + len(tr.CoRuns) + len(tr.Solos) + len(tr.Networks) + len(tr.Servings) + len(tr.Deployed)
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

// TestPublishedCoRuns: each workload of Lucid's and iGniter's pairs has a solo profile of the same name (iGniter's at the same
// cap), the speeds are those that the authors print, and Gavel's pairs that ran say so.
func TestPublishedCoRuns(t *testing.T) {
	for _, files := range [][2]string{
		{"lucid/colocate_info.csv", "lucid/single_data.csv"},
		{"igniter/v100_pair_interference.csv", "igniter/v100_mps_latency_throughput.csv"},
	} {
		alone := map[string]bool{}
		for _, s := range load(t, files[1]).Solos {
			alone[fmt.Sprint(s.Workload, s.Share)] = true
		}
		for _, c := range load(t, files[0]).CoRuns {
			for _, r := range []CoRunner{c.A, c.B} {
				if !alone[fmt.Sprint(r.Workload, r.Share)] || !c.Fits {
					t.Errorf("%s line %d: %s on %v has no solo profile", files[0], c.Line, r.Workload, r.Share)
				}
			}
		}
	}
	first := load(t, "igniter/v100_pair_interference.csv").CoRuns[0]
	if a, b := 1/first.A.Speed, 1/first.B.Speed; math.Abs(a-1.090281472330608) > 1e-9 || math.Abs(b-1.1904293541934783) > 1e-9 {
		t.Errorf("the first pair of iGniter has the slowdowns %v and %v", a, b)
	}
	fit, not := 0, 0
	for _, c := range load(t, "gavel/pairs.csv").CoRuns {
		switch {
		case c.Set != "oracle" || c.GPU != "k80":
		case c.Fits:
			fit++
		default:
			not++
		}
	}
	if fit < 166 || not < 24 { // in the part that is published here
		t.Errorf("%d pairs of Gavel ran on a K80, %d did not fit", fit, not)
	}
	if gpu := load(t, "glet/2080ti_UTIL.csv").Solos[0].GPU; gpu != "2080ti" {
		t.Errorf("the first profile of gpulet is of %q", gpu)
	}
}

// TestPublishedArrivals compares the orders of five seeds with those that the protocol gives elsewhere.
func TestPublishedArrivals(t *testing.T) {
	pods := load(t, "openb_fgd", "openb_pod_list_default.csv").Jobs
	for seed := int64(42); seed <= 46; seed++ {
		order, rank, err := Arrivals(pods, 1213, 6_212_000, seed, 1.3)
		if err != nil {
			t.Fatal(err)
		}
		want := lines(t, filepath.Join(published(t), "openb_fgd", "arrivals", fmt.Sprintf("default_seed%d.txt.gz", seed)))
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
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all []string
	s := bufio.NewScanner(r)
	for s.Scan() {
		all = append(all, s.Text())
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func origins(order []Job) []string {
	names := make([]string, 0, len(order))
	for i := range order {
		names = append(names, order[i].Origin)
	}
	return names
}
