package elastic_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// TestScripts tells the stories of elastic jobs. The commands are
//
//	cluster                      a drawing as in package testkit; jobs are gone
//	job NAME SIZES [key=value …] a job: sizes are 1-8, 2-8/2 in steps of 2, or 2^8 for powers of two from 2 to 8. Keys:
//	                             now=N workers run, waits=SECONDS or runs=SECONDS since it came or started,
//	                             slots=N of each worker (10), priority=N, growth=F and apart=F of the curve,
//	                             rates=(WORKERS:RATE,…), cost=SECONDS, remaining=SECONDS,
//	                             moved=SECONDS since its last change, required=LEVEL
//	reserve MILLI [in=SECONDS]   capacity for others
//	workers [policy=NAME] [placements=N]  what Workers decides; MaxPlacements
//	apply                        what it decided last comes true
//	wait SECONDS                 time goes by
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{world: world{now: 1_000_000}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			out, err := s.run(d)
			if err != nil {
				return fmt.Sprintf("error: %v\n", err)
			}
			return out
		})
	})
}

type script struct {
	world
	t    *testing.T
	plan elastic.Plan
}

func (s *script) run(d *datadriven.TestData) (string, error) {
	switch d.Cmd {
	case "cluster":
		c, err := testkit.Parse(d.Input)
		if err != nil {
			return "", err
		}
		s.Cluster, s.jobs, s.reserved = clusterOf(c.Nodes()...), nil, nil
		return testkit.Draw(c), nil
	case "job":
		return s.job(d.CmdArgs)
	case "reserve":
		return s.reserve(d.CmdArgs)
	case "workers":
		return s.workers(d.CmdArgs)
	case "apply":
		return fmt.Sprintf("%d jobs changed\n", s.apply(s.t, s.plan)), nil
	case "wait":
		seconds, err := strconv.ParseInt(d.CmdArgs[0].Key, 10, 64)
		s.now += seconds
		return "ok\n", err
	}
	return "", fmt.Errorf("unknown command %s", d.Cmd)
}

// parseSizes reads 1-8, 2-8/2 and 2^8.
func parseSizes(text string) ([]int, error) {
	var least, most, step int
	if _, err := fmt.Sscanf(text, "%d-%d/%d", &least, &most, &step); err == nil {
		return elastic.Steps(least, most, step)
	}
	if _, err := fmt.Sscanf(text, "%d-%d", &least, &most); err == nil {
		return elastic.Steps(least, most, 1)
	}
	if _, err := fmt.Sscanf(text, "%d^%d", &least, &most); err == nil {
		return powersOfTwo(least, most), nil
	}
	return nil, fmt.Errorf("%q are no sizes", text)
}

// powersOfTwo returns least and all powers of two between least and most: 3, 4, 8 for 3 to 9.
func powersOfTwo(least, most int) []int {
	sizes := []int{least}
	for n := 1; n <= most; n *= 2 {
		if n > least {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

func (s *script) job(args []datadriven.CmdArg) (string, error) {
	sizes, err := parseSizes(args[1].Key)
	if err != nil {
		return "", err
	}
	j := elastic.Job{
		Name: args[0].Key, Arrived: s.now, Sizes: sizes, Worker: worker(10), Wishes: gang.Wishes{Preferred: []string{hostname}},
		Curve: elastic.Curve{Growth: 1, Apart: 1},
	}
	now := 0
	for _, a := range args[2:] {
		if err := set(&j, s.now, &now, a); err != nil {
			return "", err
		}
	}
	if now > 0 {
		if j.Started == 0 {
			j.Started = s.now
		}
		if !s.extend(s.t, &j, now, "") {
			return "", fmt.Errorf("no room for %d workers", now)
		}
	}
	s.jobs = append(s.jobs, j)
	return "ok\n", nil
}

// set reads one key of a job.
func set(j *elastic.Job, time int64, now *int, a datadriven.CmdArg) error {
	if a.Key == "required" {
		j.Wishes.Required = a.Vals
		return nil
	}
	if a.Key == "rates" {
		for _, v := range a.Vals {
			var p elastic.Point
			if _, err := fmt.Sscanf(v, "%d:%g", &p.Workers, &p.Rate); err != nil {
				return fmt.Errorf("%q is no rate: %w", v, err)
			}
			j.Curve.Points = append(j.Curve.Points, p)
		}
		return nil
	}
	v, err := strconv.ParseFloat(a.Vals[0], 64)
	if err != nil {
		return err
	}
	keys := map[string]func(){
		"now":       func() { *now = int(v) },
		"waits":     func() { j.Arrived = time - int64(v) },
		"runs":      func() { j.Arrived, j.Started = time-int64(v), time-int64(v) },
		"slots":     func() { j.Worker = worker(vgpu.Slots(v)) },
		"priority":  func() { j.Priority = int32(v) },
		"growth":    func() { j.Curve.Growth = v },
		"apart":     func() { j.Curve.Apart = v },
		"cost":      func() { j.Cost = v },
		"remaining": func() { j.Remaining = v },
		"moved":     func() { j.Moved = append(j.Moved, time-int64(v)) },
	}
	if keys[a.Key] == nil {
		return fmt.Errorf("unknown key %s, known are %v", a.Key, slices.Sorted(maps.Keys(keys)))
	}
	keys[a.Key]()
	return nil
}

func (s *script) reserve(args []datadriven.CmdArg) (string, error) {
	milli, err := strconv.ParseInt(args[0].Key, 10, 64)
	r := elastic.Reserved{Amount: vgpu.MilliGPU(milli)}
	for _, a := range args[1:] {
		if a.Key == "in" {
			var in int64
			if in, err = strconv.ParseInt(a.Vals[0], 10, 64); err == nil {
				r.From = s.now + in
			}
		}
	}
	s.reserved = append(s.reserved, r)
	return "ok\n", err
}

func (s *script) workers(args []datadriven.CmdArg) (string, error) {
	var (
		cfg elastic.Config
		err error
	)
	for _, a := range args {
		switch a.Key {
		case "policy":
			cfg.Policy = a.Vals[0]
		case "placements":
			if cfg.MaxPlacements, err = strconv.Atoi(a.Vals[0]); err != nil {
				return "", err
			}
		}
	}
	if s.plan, err = elastic.Workers(s.Cluster, s.jobs, s.reserved, s.now, cfg); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, target := range s.plan.Targets {
		fmt.Fprintf(&b, "%s %d → %d %s", target.Job, target.Now, target.Workers, target.Why)
		switch {
		case target.Err != nil:
			fmt.Fprintf(&b, ": %v", target.Err)
		case target.For != "":
			fmt.Fprintf(&b, " (%s)", target.For)
		}
		if target.After != target.Before {
			fmt.Fprintf(&b, ", rate %.3g → %.3g", target.Before, target.After)
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}
