// Command gpu measures on a real GPU the facts behind Tandem's promises: the effect of MPS on the shares of SMs and
// memory, the effect of neighbours on each other, the effect of the end of a client, and the costs of the agent.
//
// The command needs Linux, an NVIDIA driver, and root for the parts that use namespaces. Clocks, compute mode, power
// limit and MIG settings stay as they are. The command resets nothing, and ends every daemon that it starts. Figures
// are written to a file one by one; a run that was cut off goes on where it was. `make gpu-test` runs it.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/test/gpu/record"
)

// exitCut is the status of a run whose time was up: run it again.
const exitCut = 3

func main() {
	err := command().Execute()
	switch {
	case errors.Is(err, errCut):
		os.Exit(exitCut)
	case err != nil:
		os.Exit(1)
	}
}

// part is a part of the suite.
type part struct {
	name, what string
	run        func(*suite) error
	// mps says that the part needs MPS.
	mps bool
}

func parts() []part {
	return []part{
		{"nvml", "our NVML code: devices, samples, processes, XID errors", (*suite).nvml, false},
		{"sm", "percentage of the SMs", (*suite).sm, true},
		{"memory", "limit of device memory", (*suite).memory, true},
		{"control", "daemons, canary, clients that are killed, faults, escapes", (*suite).control, true},
		{"agent", "the real agent: registration, a container's environment, cost, restart", (*suite).agentPart, true},
		{"isolation", "slowdown of two and three tenants", (*suite).isolation, false},
		{"models", "models in PyTorch, alone and in pairs", (*suite).modelsPart, false},
	}
}

func command() *cobra.Command {
	root := &cobra.Command{Use: "gpu", Short: "Measures MPS and Tandem's agent on a real GPU", SilenceUsage: true}
	root.AddCommand(runCommand(), tableCommand(), exportCommand(), &cobra.Command{
		Use: "worker KIND", Short: "Uses the GPU as told on the standard input; the suite starts it", Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error { return workerMain(args[0]) },
	})
	return root
}

func runCommand() *cobra.Command {
	names := make([]string, 0, len(parts()))
	for _, p := range parts() {
		names = append(names, p.name)
	}
	var out string
	var budget time.Duration
	s := &suite{out: os.Stdout}
	c := &cobra.Command{
		Use: "run [PART...]", Short: "Measures the parts, all unless named: " + strings.Join(names, ", "), ValidArgs: names,
		Args: cobra.OnlyValidArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = names
			}
			var err error
			if s.report, err = record.Open(out); err != nil {
				return err
			}
			s.end = time.Now().Add(budget)
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			s.ctx = klog.NewContext(ctx, logr.Discard())
			return s.run(args)
		},
	}
	c.Flags().StringVar(&out, "out", "bin/gpu/report.json", "file for the figures; one that exists is gone on with")
	c.Flags().DurationVar(&budget, "budget", 9*time.Minute, "after this time no figure is begun; the exit status is 3 then, and the next run goes on")
	c.Flags().DurationVar(&s.window, "window", usualWindow, "how long one measurement of throughput takes; other times follow it")
	c.Flags().IntVar(&s.repeat, "repeat", 3, "how often each co-run is measured")
	c.Flags().StringVar(&s.agent, "agent", "bin/device-plugin", "the agent's program")
	c.Flags().StringVar(&s.devRoot, "dev-root", "/", "folder that has dev/nvidia0 in it, for the agent")
	c.Flags().StringVar(&s.models, "models", "test/gpu/models.py", "the models for PyTorch")
	return c
}

func (s *suite) run(names []string) (err error) {
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	for _, p := range []*string{&s.agent, &s.models} {
		if *p, err = filepath.Abs(*p); err != nil {
			return err
		}
		if _, err := os.Stat(*p); err != nil {
			return fmt.Errorf("gpu-test: %w", err)
		}
	}
	if s.dir, err = os.MkdirTemp("", "g"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	// Clients of other users have to find the pipe directory: one that finds none runs without MPS.
	if err := os.Chmod(s.dir, 0o755); err != nil {
		return err
	}
	defer s.clean()
	if err := s.describe(); err != nil {
		return err
	}
	var failures []error
	for _, p := range parts() {
		if !slices.Contains(names, p.name) {
			continue
		}
		fmt.Fprintf(s.out, "\n== %s: %s (%s)\n", p.name, p.what, time.Now().Format(time.TimeOnly))
		if p.mps && s.leftOut(p.name) {
			continue
		}
		if err := p.run(s); err != nil {
			fmt.Fprintf(s.out, "gpu-test: part %s: %v\n", p.name, err)
			failures = append(failures, fmt.Errorf("part %s: %w", p.name, err))
		}
		s.clean()
	}
	if s.cut {
		failures = append(failures, errCut)
	}
	return errors.Join(failures...)
}

// describe finds the device and writes down what the machine is.
func (s *suite) describe() error {
	library, err := nvml.Open()
	if err != nil {
		return err
	}
	defer func() { _ = library.Close() }()
	devices, err := library.Devices()
	if err != nil {
		return err
	}
	if len(devices) == 0 {
		return errors.New("NVML shows no device")
	}
	// Programs see the first device alone.
	s.uuid = devices[0].UUID
	if err := os.Setenv("NVIDIA_VISIBLE_DEVICES", s.uuid); err != nil {
		return err
	}
	m := &s.report.Machine
	before := m.GPU
	m.GPU, m.Memory, m.Capability = devices[0].Model, uint64(devices[0].Memory), devices[0].Capability.String()
	m.Driver, m.CUDA, m.CPUs = library.DriverVersion(), fmt.Sprintf("%d.%d", library.CUDAVersion()/1000, library.CUDAVersion()%1000/10), runtime.NumCPU()
	if before != "" && before != m.GPU {
		return fmt.Errorf("the file has figures of %s, and this is %s: name another one with --out", before, m.GPU)
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	m.Date = time.Now().UTC().Format(time.DateOnly)
	w, err := s.start("")
	if err != nil {
		return fmt.Errorf("use the GPU without MPS: %w", err)
	}
	m.SMs = w.ready.SMs
	w.quit()
	m.MPS = s.tryMPS()
	torch, err := exec.Command("python3", "-c", "import torch; assert torch.cuda.is_available(); print(torch.__version__)").Output()
	if err == nil {
		m.Torch = strings.TrimSpace(string(torch))
	}
	fmt.Fprintf(s.out, "%s, %d SMs, %d MiB, driver %s, CUDA %s, MPS %s, PyTorch %q\n", m.GPU, m.SMs, m.Memory/mebibyte, m.Driver, m.CUDA, m.MPS, m.Torch)
	return s.report.Save()
}

const available = "available"

// tryMPS says whether MPS serves a client here, or why not.
func (s *suite) tryMPS() string {
	if _, err := exec.LookPath(controlProgram); err != nil {
		return controlProgram + " is not in PATH"
	}
	defer s.clean()
	d, err := s.newDaemon(mps.DeviceSpec{}, true)
	if err != nil {
		return "no daemon: " + err.Error()
	}
	if w, err := s.start("", d.env(50, "")...); err != nil {
		return "no client: " + failed(w.ready, err)
	}
	return available
}

// leftOut says so where MPS does not serve.
func (s *suite) leftOut(what string) bool {
	if s.report.Machine.MPS == available {
		return false
	}
	fmt.Fprintf(s.out, "gpu-test: %s is left out: MPS is not available: %s\n", what, s.report.Machine.MPS)
	return true
}

func tableCommand() *cobra.Command {
	return &cobra.Command{
		Use: "table REPORT", Short: "Prints the tables of a report in Markdown", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := os.Stat(args[0]); err != nil {
				return err
			}
			r, err := record.Open(args[0])
			if err != nil {
				return err
			}
			return writeTables(c.OutOrStdout(), r)
		},
	}
}
