package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/model"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/server"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/worker"
)

// measurement says which groups to measure.
type measurement struct {
	workers, servers, steps int
	work                    time.Duration
	bandwidth               float64
	output                  string
	spec                    model.Spec
}

// outputs are the forms of the results.
var outputs = []string{"csv", "yaml"}

// warmUp is how many steps of a group are not counted: its workers connect in the first one.
const warmUp = 2

// maxRates bounds the rates of a WorkloadProfile: its schema allows no more.
const maxRates = 64

// point is the rate of one group, in samples a second.
type point struct {
	servers, workers int
	rate             float64
}

func measureCommand() *cobra.Command {
	m := measurement{}
	c := &cobra.Command{
		Use:   "measure",
		Short: "Measures how fast groups of several sizes are, on this machine",
		Long: `Measures how fast groups of several sizes are, on this machine.

Each number of servers is measured with each number of workers, as processes of their own on loopback. The programs, the
messages and the steps are real. Two things are not, so that a machine with few cores can show how a group scales: a sample
takes a worker at least --work, for which it mostly sleeps, and a server passes at most --bandwidth. With --work 0 and
--bandwidth 0 the rates are those of this machine alone.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := m.check(); err != nil {
				return usage{err}
			}
			points, err := m.run(c.Context(), c.ErrOrStderr())
			if err != nil {
				return err
			}
			return m.print(c.OutOrStdout(), points)
		},
	}
	f := c.Flags()
	f.IntVar(&m.workers, "workers", 4, "the largest number of workers")
	f.IntVar(&m.servers, "servers", 2, "the largest number of servers")
	f.IntVar(&m.steps, "steps", 20, "steps of each group; the first "+strconv.Itoa(warmUp)+" are not counted")
	f.DurationVar(&m.work, "work", 8*time.Millisecond, "the least time for a sample")
	f.Float64Var(&m.bandwidth, "bandwidth", 200, "MB a second that a server passes; 0 has no bound")
	f.StringVarP(&m.output, "output", "o", "csv", "csv, or yaml: the part of a WorkloadProfile, at most "+strconv.Itoa(maxRates)+" rates")
	specFlags(c, &m.spec, "")
	return c
}

func (m measurement) check() error {
	if err := checkBandwidth(m.bandwidth); err != nil {
		return err
	}
	if err := checkWork(m.work); err != nil {
		return err
	}
	switch {
	case m.workers < 1 || m.workers > 100:
		return fmt.Errorf("--workers: %d is not from 1 to 100", m.workers)
	case m.servers < 1 || m.servers >= maxServers:
		return fmt.Errorf("--servers: %d is not from 1 to %d", m.servers, maxServers-1)
	case m.steps <= warmUp || m.steps > maxSteps:
		return fmt.Errorf("--steps: %d is not from %d to %d", m.steps, warmUp+1, maxSteps)
	case !slices.Contains(outputs, m.output):
		return fmt.Errorf("--output: %q is not one of %s", m.output, strings.Join(outputs, ", "))
	case m.output == "yaml" && m.workers*m.servers > maxRates:
		return fmt.Errorf("--output: a WorkloadProfile has at most %d rates, and %d workers with %d servers make %d: lower one of them, or print csv",
			maxRates, m.workers, m.servers, m.workers*m.servers)
	}
	return m.spec.Validate()
}

// run measures all groups, the smallest first.
func (m measurement) run(ctx context.Context, progress io.Writer) ([]point, error) {
	var points []point
	for servers := 1; servers <= m.servers; servers++ {
		for workers := 1; workers <= m.workers; workers++ {
			rate, err := m.group(ctx, progress, servers, workers)
			if err != nil {
				return nil, fmt.Errorf("measure %d servers and %d workers: %w", servers, workers, err)
			}
			fmt.Fprintf(progress, "%d servers, %d workers: %.1f samples/s\n", servers, workers, rate)
			points = append(points, point{servers: servers, workers: workers, rate: rate})
		}
	}
	return points, nil
}

// group runs one training and returns its rate.
func (m measurement) group(ctx context.Context, errs io.Writer, servers, workers int) (float64, error) {
	ps := newProcesses(ctx, errs)
	defer ps.end()
	paced := "--bandwidth=" + strconv.FormatFloat(m.bandwidth, 'f', -1, 64)
	first, err := start[server.Line](ps, append([]string{
		"server", "--listen=127.0.0.1:0", paced,
		"--steps=" + strconv.Itoa(m.steps), "--min-workers=" + strconv.Itoa(workers),
	}, m.specArgs()...)...)
	if err != nil {
		return 0, err
	}
	listening, err := first.await(func(l server.Line) bool { return l.Event == "listening" })
	if err != nil {
		return 0, err
	}
	to := "--coordinator=" + listening.Address
	for i := 1; i < servers; i++ {
		if _, err := start[server.Line](ps, "server", "--index="+strconv.Itoa(i), "--listen=127.0.0.1:0", paced, to); err != nil {
			return 0, err
		}
		if _, err := first.await(func(l server.Line) bool { return l.Event == "moved" && l.Servers == i+1 }); err != nil {
			return 0, err
		}
	}
	for i := range workers {
		if _, err := start[worker.Line](ps, "worker", to, "--work="+m.work.String(), "--name=worker-"+strconv.Itoa(i)); err != nil {
			return 0, err
		}
	}
	r, err := rate(first, m.steps)
	if err == nil {
		ps.running.Wait() // they end by themselves
	}
	return r, err
}

// rate reads the report of a training to its end, and returns the samples a second after the first steps.
func rate(p *process[server.Line], steps int) (float64, error) {
	begin, err := p.await(func(l server.Line) bool { return l.Event == "" && l.Step == warmUp })
	if err != nil {
		return 0, err
	}
	end, err := p.await(func(l server.Line) bool { return l.Event == "" && l.Step == steps })
	if err != nil {
		return 0, err
	}
	if _, err := p.await(func(l server.Line) bool { return l.Event == "finished" }); err != nil {
		return 0, err
	}
	// Reports have milliseconds.
	return float64(end.Samples-begin.Samples) / max(0.001, end.Seconds-begin.Seconds), nil
}

func (m measurement) specArgs() []string {
	return []string{
		"--seed=" + strconv.FormatUint(m.spec.Seed, 10), "--width=" + strconv.Itoa(m.spec.Width), "--batch=" + strconv.Itoa(m.spec.Batch),
		"--slices=" + strconv.Itoa(m.spec.Slices), "--rate=" + strconv.FormatFloat(m.spec.Rate, 'g', -1, 64),
	}
}

// print prints the points in the chosen form.
func (m measurement) print(out io.Writer, points []point) error {
	if m.output == "csv" {
		fmt.Fprintln(out, "servers,workers,rate")
		for _, p := range points {
			fmt.Fprintf(out, "%d,%d,%.1f\n", p.servers, p.workers, p.rate)
		}
		return nil
	}
	fmt.Fprintf(out, "# Samples a second, on %d CPUs. Paced: --work=%v, --bandwidth=%v, %d parameters.\n", runtime.NumCPU(), m.work, m.bandwidth, m.spec.Params())
	fmt.Fprint(out, "# For a job without the annotation tandem-gpu.io/elastic-servers: keep the rates of its number of servers, without servers.\n")
	fmt.Fprint(out, "spec:\n  scaling:\n    resizeTime: 0s\n    rates:\n")
	for _, p := range points {
		fmt.Fprintf(out, "    - {workers: %d, servers: %d, rate: \"%.1f\"}\n", p.workers, p.servers, p.rate)
	}
	return nil
}
