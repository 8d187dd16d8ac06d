package measurements

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/test/published"
)

func load(t testing.TB, path ...string) *File {
	t.Helper()
	tr, err := Load(filepath.Join(append([]string{published.Data(t)}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// TestPublishedCounts compares the files with what their authors say of them.
func TestPublishedCounts(t *testing.T) {
	for file, want := range map[string]string{
		"pollux_sia/placements/bert-aws.csv":           "pollux-placements, 540 measured steps",
		"pollux_sia/scalability/bert-aws.csv":          "pollux-scalability, 180 measured steps",
		"pollux_sia/validation/bert-validation-48.csv": "pollux-validation, 2 epochs",
	} {
		tr := load(t, file)
		if got := fmt.Sprintf("%s, %s", tr.Format, tr.String()[len(tr.File)+len(": ")+len(tr.Format)+len(", "):]); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}

// TestPublishedLoads reads every file of every format. Some folders hold only a part of what was published.
func TestPublishedLoads(t *testing.T) {
	dir := published.Data(t)
	for pattern, tc := range map[string]struct {
		format csvtable.Format
		files  int // at least
		most   int // things in each file, as published
	}{
		"gavel/scaling.csv":                       {GavelThroughputs, 1, 249},
		"gavel/pairs.csv":                         {GavelPairs, 1, 156 + 2106},
		"pollux_sia/placements/*.csv":             {PolluxPlacementTimes, 18, 2000},
		"pollux_sia/scalability/*.csv":            {PolluxScalingTimes, 18, 2000},
		"pollux_sia/validation/*.csv":             {PolluxValidation, 40, 100},
		"lucid/colocate_info.csv":                 {LucidPairs, 1, 1388},
		"lucid/single_data.csv":                   {LucidSingles, 1, 66},
		"igniter/v100_pair_interference.csv":      {IgniterPairs, 1, 750},
		"igniter/v100_mps_latency_throughput.csv": {IgniterCurves, 1, 648},
		"gpumemnet/mlp_train_features_util.csv":   {GPUMemNetFeatures, 1, 3000},
		"glet/*_UTIL.csv":                         {GletUtilisation, 2, 90},
		"miso/mig_slice_step_time.csv":            {MISOSlices, 1, 145},
		"muxserve/llama_mps_profile_a100.csv":     {MuxServeLatencies, 1, 2 * 5120},
		"parvagpu/a100_mig_mps_profile.csv":       {ParvaProfile, 1, 2475 + 495},
		"parvagpu/SLO?_ParvaGPU_deploy.csv":       {ParvaDeployment, 4, 53},
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
			n := len(tr.Rates) + len(tr.Steps) + len(tr.Epochs) + len(tr.CoRuns) + len(tr.Solos) + len(tr.Networks) + len(tr.Servings) + len(tr.Deployed)
			if tr.Format != tc.format || n == 0 || n > tc.most {
				t.Errorf("%v, want %s and at most %d", tr, tc.format, tc.most)
			}
			checkFile(t, tr)
		}
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
