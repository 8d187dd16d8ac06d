package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/test/golden"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/published"
)

// networks writes n networks of which the parameters rise by a factor from row to row, and the use of a device by their
// training follows from them: SM 0.2 and a tenth for each factor of ten, memory 1000 MiB and 16 bytes a parameter, give
// or take 0.03 and 3 MiB.
func networks(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("Depth,Activation Function,Total Activations,Total Parameters,Batch Size,Batch Normalization Layers," +
		"Dropout Layers,Max GPU Memory (MiB),Avg GPUTL,Avg GRACT,Avg SMACT,Avg SMOCC,Avg FP32A\n")
	for i := range n {
		// 37 and 53 share no factor with 150: the columns do not go along with each other.
		parameters := int64(1000 * math.Pow(10, 5*float64(i)/float64(n)))
		activations, batch, depth := 10+37*i%150*100, 4+53*i%150*6, 2+i%9
		noise := 3 * float64(29*i%17-8) / 8
		busy := 20 + 10*math.Log10(float64(parameters)/1000) + noise
		fmt.Fprintf(&b, "%d,ReLU,%d,%d,%d,%d,%d,%.2f,%.4f,0.2,0.2,0.1,0.1\n", depth, activations, parameters, batch, i%3, i%2,
			1000+16*float64(parameters)/(1<<20)+noise, busy)
	}
	return file(t, "features.csv", b.String())
}

const singles = `model,dataset,batchsize,amp,speed,gpu_util,gmem_util,gmem
BERT,SQuAD,32,0,84.9,100,60,20162
ResNet18,CIFAR-10,64,0,900,50,15,2308
`

// testCurves are the small tables under testdata, as flags.
func testCurves() []string {
	var flags []string
	for _, name := range []string{"igniter", "parva", "miso", "muxserve"} {
		flags = append(flags, "--curves", "testdata/fit_"+name+".csv")
	}
	return flags
}

func TestFitHelp(t *testing.T) {
	golden.Text(t, "help_fit.txt", succeed(t, "fit"))
	golden.Text(t, "help_fit_features.txt", succeed(t, "fit", "features", "--help"))
	golden.Text(t, "help_fit_curves.txt", succeed(t, "fit", "curves", "--help"))
}

func TestFitFeatures(t *testing.T) {
	path := networks(t, 150)
	profiles := file(t, "singles.csv", singles)
	args := []string{"fit", "features", "--features", path, "--hold-out-fifth", "1-3"}
	golden.Text(t, "fit_features.txt", succeed(t, args...))
	args = append(args, "--profiles", profiles)
	golden.Text(t, "fit_features.go.txt", succeed(t, append(args, "-o", "go", "--date", "2026-01-31")...))
	out := succeed(t, append(args, "-o", "json")...)
	var got struct {
		Results []struct {
			Target, Split, Model string
			MAE                  struct{ Mean float64 }
		}
		Coefficients struct {
			SM        []float64
			Bandwidth float64
		}
		Networks, Profiles int
	}
	must.OK(t, json.Unmarshal([]byte(out), &got))
	// 0.6 · 1 and 0.15 · 0.25 over 1 and 0.0625 are 0.6.
	if len(got.Results) != 12 || got.Networks != 150 || got.Profiles != 2 || got.Coefficients.Bandwidth != .6 || len(got.Coefficients.SM) != 18 {
		t.Errorf("JSON: %+v", got)
	}
	if r := got.Results[2]; r.Target != "sm" || r.Split != "fifth" || r.Model != "features" || r.MAE.Mean > .02 {
		t.Errorf("the third result is %+v", r)
	}
	if again := succeed(t, append(args, "-o", "json")...); again != out {
		t.Errorf("the same again (-first +second):\n%s", cmp.Diff(out, again))
	}
}

func TestFitCurves(t *testing.T) {
	args := append([]string{"fit", "curves"}, testCurves()...)
	golden.Text(t, "fit_curves.txt", succeed(t, args...))
	golden.Text(t, "fit_curves.json", succeed(t, append(args, "-o", "json")...))
	golden.Text(t, "fit_curves.go.txt", succeed(t, append(args, "-o", "go")...))
}

func TestFitBadInput(t *testing.T) {
	few := networks(t, 111)
	broken := file(t, "broken.csv", strings.Replace(read(t, few), "ReLU,10,", "ReLU,-10,", 1))
	features := []string{"fit", "features", "--features", networks(t, 150)}
	with := func(base []string, more ...string) []string { return append(base[:len(base):len(base)], more...) }
	curves := append([]string{"fit", "curves"}, testCurves()...)
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"unknown thing to fit", []string{"fit", "everything"}, []string{`"everything"`, "curves, features"}},
		{"no features", []string{"fit", "features"}, []string{"--features is missing"}},
		{"missing features", []string{"fit", "features", "--features", "none.csv"}, []string{"--features", "none.csv", "no such file"}},
		{"broken features", []string{"fit", "features", "--features", broken}, []string{broken + " line 2 column Total Activations", `"-10"`}},
		{"other features", []string{"fit", "features", "--features", "testdata/pods.csv"}, []string{"testdata/pods.csv", "no networks"}},
		{"few features", []string{"fit", "features", "--features", few}, []string{"111 networks", "at least 112"}},
		{"broken seeds", with(features, "--hold-out-fifth", "a fifth"), []string{"--hold-out-fifth", `"a fifth"`, "42-51"}},
		{"no profiles", with(features, "--profiles", "testdata/pods.csv"), []string{"--profiles", "no solo profiles"}},
		{"unknown form", with(features, "-o", "xml"), []string{"--output", `"xml"`, "table, json, go"}},
		{"broken date", with(features, "--date", "31.1.26"), []string{"--date", `"31.1.26"`, "2026-01-31"}},
		{"an argument", with(features, "more"), []string{`"more"`, "flags only"}},
		{"no curves", []string{"fit", "curves"}, []string{"--curves is missing"}},
		{"missing curves", with(curves, "--curves", "none.csv"), []string{"--curves", "none.csv", "no such file"}},
		{"other curves", with(curves, "--curves", few), []string{"--curves", few, "no solo profiles"}},
		{"curves without parts", with(curves, "--curves", file(t, "singles.csv", singles)), []string{"lucid-singles", "no speeds by part"}},
		{"a class too few", curves[:8], []string{"class prefill", "no workload of it"}},
		{"curves in another form", with(curves, "-o", "yaml"), []string{"--output", `"yaml"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := evaluate(tc.args...)
			if code != command.Broken || out != "" || strings.Count(errs, "\n") != 1 {
				t.Errorf("ends with %d, prints %q, stderr:\n%s", code, out, errs)
			}
			for _, want := range tc.says {
				if !strings.Contains(errs, want) {
					t.Errorf("%s does not say %q", errs, want)
				}
			}
		})
	}
}

// TestFitWritesWhatIsShipped: the commands print the files that are shipped, byte by byte.
func TestFitWritesWhatIsShipped(t *testing.T) {
	dir := published.Data(t)
	for name, files := range map[string][]string{
		"features_fitted.go": {
			"features", "--features", "gpumemnet/mlp_train_features_util.csv", "--profiles", "lucid/single_data.csv",
		},
		"curve_fitted.go": {
			"curves", "--curves", "igniter/v100_mps_latency_throughput.csv", "--curves", "parvagpu/a100_mig_mps_profile.csv",
			"--curves", "miso/mig_slice_step_time.csv", "--curves", "muxserve/llama_mps_profile_a100.csv",
		},
	} {
		shipped := read(t, filepath.Join("..", "pkg", "interference", name))
		date := regexp.MustCompile(`Fitted on ([0-9-]+) on`).FindStringSubmatch(shipped)
		if date == nil {
			t.Fatalf("%s does not say when it was fitted", name)
		}
		args := []string{"fit", files[0], "-o", "go", "--date", date[1]}
		for i := 1; i < len(files); i += 2 {
			args = append(args, files[i], filepath.Join(dir, files[i+1]))
		}
		// The folder may hold another selection of what was published, which gives other coefficients.
		got, amount := succeed(t, args...), regexp.MustCompile(`[0-9]+ (dense networks|public measurements)`)
		if amount.FindString(got) != amount.FindString(shipped) {
			t.Logf("%s: has %s, shipped was fitted on %s", name, amount.FindString(got), amount.FindString(shipped))
			continue
		}
		if diff := cmp.Diff(shipped, got); diff != "" {
			t.Errorf("%s (-shipped +written):\n%s", name, diff)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must.OK(t, err)
	return string(data)
}
