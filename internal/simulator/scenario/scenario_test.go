package scenario_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// TestScripts reads and plays the scenarios of testdata/scripts:
//
//	parse     the input is a scenario: what was read, or the error
//	change    the input is lines "- old" and "+ new": the last good scenario with the old text replaced, read
//	play      the last good scenario: a line per run and one per verdict
//	jobs      seed=7 n=3: the first jobs of the workload
//	labels    of the nodes, and their links
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			commands := map[string]func(*datadriven.TestData) string{"parse": s.parse, "change": s.change, "play": s.play, "jobs": s.jobs, "labels": s.labels}
			if commands[d.Cmd] == nil {
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			return commands[d.Cmd](d)
		})
	})
}

type script struct {
	t    *testing.T
	text string
	s    *scenario.Scenario
}

func (s *script) parse(d *datadriven.TestData) string {
	parsed, err := scenario.Parse("testdata/demo.yaml", []byte(d.Input))
	if err != nil {
		return err.Error() + "\n"
	}
	s.text, s.s = d.Input, parsed
	return fmt.Sprintf("%s: %d nodes, policies %v, queue %v, seeds %v, %d assertions\n",
		parsed.Name, len(parsed.Nodes), parsed.Policies, parsed.Queue, parsed.Seeds, len(parsed.Assertions))
}

func (s *script) change(d *datadriven.TestData) string {
	var before, after []string
	for _, line := range strings.Split(d.Input, "\n") {
		if old, is := strings.CutPrefix(line, "- "); is {
			before = append(before, old)
		}
		if next, is := strings.CutPrefix(line, "+ "); is {
			after = append(after, next)
		}
	}
	old := strings.Join(before, "\n")
	if strings.Count(s.text, old) != 1 {
		d.Fatalf(s.t, "%q stands %d times in the scenario", old, strings.Count(s.text, old))
	}
	_, err := scenario.Parse("testdata/demo.yaml", []byte(strings.Replace(s.text, old, strings.Join(after, "\n"), 1)))
	if err == nil {
		return "ok\n"
	}
	return err.Error() + "\n"
}

func (s *script) play(*datadriven.TestData) string {
	result, err := s.s.Play(nil)
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for i := range result.Runs {
		r := &result.Runs[i]
		wait, _ := r.History.MeanWait()
		fmt.Fprintf(&b, "%s %d: %d finished, %d running, %d waiting, %d dropped, mean wait %v\n", r.Policy, r.Seed,
			r.History.Count(sim.Finished), r.History.Count(sim.Running), r.History.Count(sim.Waiting), r.History.Count(sim.Dropped),
			wait.Round(time.Second))
	}
	for i := range result.Runs {
		if r := &result.Runs[i]; r.Work != nil {
			tellWork(&b, r)
		}
	}
	for _, v := range result.Assertions {
		fmt.Fprintf(&b, "%s %d: %s: %v, value %v\n", v.Policy, v.Seed, v.Text, v.Passed, math.Round(v.Value*100)/100)
	}
	fmt.Fprintf(&b, "passed: %v\n", result.Passed())
	return b.String()
}

// tellWork writes what was done in a run, and when what came after what.
func tellWork(b *strings.Builder, r *scenario.Run) {
	w := r.Work
	fmt.Fprintf(b, "%s %d: useful %.3f GPU-h, GPUs in use %.3f, JCTs %v, %d windows, %d of them broken, %d requests, notebooks wait %v\n",
		r.Policy, r.Seed, w.Hours, w.GPUs, w.JCTs, w.Requests.Windows, w.Requests.Broken, w.Requests.Requests, w.NotebookWaits)
	for _, p := range w.Ordered {
		fmt.Fprintf(b, "  %s after %q: arrives %v, starts %v, ends %v\n", p.Name, p.After, p.Arrived, p.Started, p.Ended)
	}
}

func (s *script) labels(*datadriven.TestData) string {
	var b strings.Builder
	for _, n := range s.s.Nodes {
		fmt.Fprintf(&b, "%s: %v, linked", n.Name(), s.s.Labels[n.Name()])
		for i := range n.Devices() {
			for k := range i {
				if n.Link(i, k).Class == vgpu.LinkNVLink && n.Link(i, k) == n.Link(k, i) {
					fmt.Fprintf(&b, " %d-%d", k, i)
				}
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (s *script) jobs(d *datadriven.TestData) string {
	var seed, n int
	d.ScanArgs(s.t, "seed", &seed)
	d.ScanArgs(s.t, "n", &n)
	jobs, err := s.s.Jobs(int64(seed))
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for _, j := range jobs[:min(n, len(jobs))] {
		fmt.Fprintf(&b, "%s at %v for %v: %v, host %v, models %v",
			j.Request.Pod, j.Arrive, j.Duration, j.Request.PeakSlots(), j.Request.Host, j.Request.Variants)
		if j.DeclaresEnd {
			b.WriteString(", says when it ends")
		}
		if j.Request.Priority != 0 || j.Checkpoint != 0 || j.Budget != nil {
			fmt.Fprintf(&b, ", priority %d, checkpoints every %v", j.Request.Priority, j.Checkpoint)
		}
		if j.Budget != nil {
			fmt.Fprintf(&b, ", budget %s of %d", j.Budget.Name, j.Budget.MaxUnavailable)
		}
		if g := j.Gang; g != nil {
			fmt.Fprintf(&b, ", gang %s of at least %d in one of %q, if it can be in one of %q", g.Name, g.MinCount, g.Wishes.Required, g.Wishes.Preferred)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%d jobs\n", len(jobs))
	return b.String()
}
