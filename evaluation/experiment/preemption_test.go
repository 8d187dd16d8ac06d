package experiment

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/published"
)

// TestPreemptionPods: a job of several GPUs is one pod where a node has as many, else as few pods as can be alike.
func TestPreemptionPods(t *testing.T) {
	for _, tc := range []struct{ gpus, workers, pods, each int }{
		{8, 1, 1, 1}, {8, 8, 1, 8}, {8, 12, 2, 6}, {8, 16, 2, 8}, {8, 128, 16, 8}, {4, 7, 7, 1}, {4, 6, 2, 3},
	} {
		p := Preemption{GPUs: tc.gpus, Checkpoint: time.Minute}
		j := traces.Job{Name: "j", Workers: tc.workers, Devices: 1, Compute: 1000, Arrive: time.Hour, Duration: time.Second}
		jobs, err := p.pods(&j, 7)
		must.OK(t, err)
		if len(jobs) != tc.pods || (jobs[0].Gang != nil) != (tc.pods > 1) {
			t.Errorf("%d GPUs on nodes of %d are %d pods, want %d", tc.workers, tc.gpus, len(jobs), tc.pods)
		}
		for i := range jobs {
			x := &jobs[i]
			if int(x.Request.Containers[0].Slots) != 1000*tc.each || x.Gang != jobs[0].Gang || x.Request.Priority != 7 ||
				x.Arrive != time.Hour || x.Duration != time.Second || x.Checkpoint != time.Minute {
				t.Errorf("pod %d of %d GPUs is %+v", i, tc.workers, x)
			}
		}
	}
}

// TestPreemptionStretch: 3 jobs of 2 GPUs for 10 s, cut from an hour, are 60 GPU-seconds. At a load of 2 on 3 GPUs they arrive
// within 10 s, with gaps as in the trace.
func TestPreemptionStretch(t *testing.T) {
	window := []traces.Job{{Arrive: time.Hour}, {Arrive: 2 * time.Hour}, {Arrive: 5 * time.Hour}}
	for i := range window {
		window[i].Workers, window[i].Devices, window[i].Compute, window[i].Duration = 2, 1, 1000, time.Hour
	}
	p := Preemption{Longest: 10 * time.Second}
	p.stretch(window, 3000, 2)
	for i, want := range []time.Duration{0, 2500 * time.Millisecond, 10 * time.Second} {
		if window[i].Arrive != want || window[i].Duration != 10*time.Second {
			t.Errorf("job %d arrives at %v for %v, want %v", i, window[i].Arrive, window[i].Duration, want)
		}
	}
}

// TestPreemptionWindow: jobs follow each other in the trace, which is played again from its start where it has too few. A job
// that comes again has a name of its own, and all arrive in order.
func TestPreemptionWindow(t *testing.T) {
	var pool []traces.Job
	for i := range 5 {
		pool = append(pool, traces.Job{Name: fmt.Sprint(i), Arrive: time.Duration(10+i) * time.Minute})
	}
	for _, tc := range []struct {
		jobs int
		want string // for the seed: names and minutes
	}{
		{2, "2@12 3@13"},
		{5, "0@10 1@11 2@12 3@13 4@14"},
		{7, "2@12 3@13 4@14 0-1@74 1-1@75 2-1@76 3-1@77"},
		{11, "2@12 3@13 4@14 0-1@74 1-1@75 2-1@76 3-1@77 4-1@78 0-2@138 1-2@139 2-2@140"},
	} {
		p := Preemption{Jobs: tc.jobs}
		var got []string
		for _, j := range p.window(pool, rand.New(rand.NewPCG(2, 7))) {
			got = append(got, fmt.Sprintf("%s@%.0f", j.Name, j.Arrive.Minutes()))
		}
		if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%d jobs (-want +got):\n%s", tc.jobs, diff)
		}
	}
}

// TestPreemptionPriority: openb tells it by its classes, of other traces the part is drawn.
func TestPreemptionPriority(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 1))
	p := Preemption{Trace: &measurements.File{Trace: traces.Trace{Format: traces.OpenbPodList}}, High: 1}
	last := int32(math.MaxInt32)
	for _, class := range []string{"Guaranteed", "LS", "Burstable", "BE"} {
		got := p.priority(&traces.Job{Class: class}, draw)
		if got >= last || (got >= p.high()) != (class == "Guaranteed" || class == "LS") {
			t.Errorf("%s has the priority %d", class, got)
		}
		last = got
	}
	p = Preemption{Trace: &measurements.File{Trace: traces.Trace{Format: traces.PhillyTrace}}, High: .25}
	high := 0
	for range 4000 {
		if p.priority(&traces.Job{Class: "LS"}, draw) >= p.high() {
			high++
		}
	}
	if high < 900 || high > 1100 {
		t.Errorf("%d of 4000 are high, want about 1000", high)
	}
}

// TestPreemptionOnTraces: with checkpoints less than half as much work is lost as by the in-tree rules on Philly and DLRM, less on
// openb; urgent jobs wait less than where nobody goes, and nobody goes in vain.
func TestPreemptionOnTraces(t *testing.T) {
	dir := published.Data(t)
	load := func(path string) *measurements.File {
		trace, err := measurements.Load(filepath.Join(dir, path))
		must.OK(t, err)
		return trace
	}
	common := Preemption{
		Nodes: 16, GPUs: 8, Jobs: 1500, Loads: []float64{1}, High: .1, Longest: 24 * time.Hour, Grace: 30 * time.Second, Checkpoint: 30 * time.Minute,
		Policies: sim.PreemptionPolicies(), Seeds: []int64{1, 2, 3},
	}
	for _, tc := range []struct {
		trace string
		most  float64
	}{{"pollux_sia/philly.csv", .5}, {"alibaba_2025_2026/disaggregated_DLRM_trace.csv", .5}, {"openb_fgd/openb_pod_list_default.csv", 1}} {
		p := common
		if p.Trace = load(tc.trace); p.Trace.Format == traces.OpenbPodList {
			p.Hosts, p.Nodes, p.Longest = load("openb_fgd/openb_node_list_gpu_node.csv"), 20, 6*time.Hour
		}
		out, err := p.Run()
		must.OK(t, err)
		rows := map[string]results.PreemptionResult{}
		for _, r := range out.Results {
			rows[r.Policy] = r
		}
		tandem, stock := rows["tandem"], rows["default"]
		if tandem.Preemptions.Mean < 10 || tandem.LostHours.Mean >= tc.most*stock.LostHours.Mean {
			t.Errorf("%s: %v hours are lost, by the in-tree rules %v", tc.trace, tandem.LostHours, stock.LostHours)
		}
		if tandem.Needless+tandem.Void+tandem.Unlawful > 0 || rows["none"].WaitP99.Mean <= tandem.WaitP99.Mean {
			t.Errorf("%s: %+v", tc.trace, tandem)
		}
	}
}
