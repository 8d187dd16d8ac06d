package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/model"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/server"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/worker"
)

// port is where server 0 listens unless it is told another one.
const port = "7070"

// maxSteps and maxWorkers bound flags: more is a mistake in writing.
const (
	maxSteps   = 100_000_000
	maxWorkers = 10_000
	maxServers = 100
)

func serverCommand() *cobra.Command {
	o, index, bandwidth := server.Options{}, 0, 0.0
	c := &cobra.Command{
		Use:   "server",
		Short: "Is a parameter server; that with --index 0 coordinates",
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkServer(&o, index, bandwidth); err != nil {
				return usage{err}
			}
			o.Out, o.Bandwidth = c.OutOrStdout(), bandwidth*1e6
			return server.Run(c.Context(), o)
		},
	}
	f := c.Flags()
	f.IntVar(&index, "index", 0, "0 for the server that coordinates; any other number for one that joins it")
	f.StringVar(&o.Coordinator, "coordinator", "", "host:port of server 0; ignored with --index 0")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:"+port, "host:port to listen on; :7070 is all addresses, port 0 lets the system choose")
	f.StringVar(&o.Name, "name", hostname(), "what the report calls the server")
	f.DurationVar(&o.Patience, "patience", time.Minute, "how long to look for server 0")
	f.Float64Var(&bandwidth, "bandwidth", 0, "MB a second of all connections together, to stand for a slow network card; 0 has no bound")
	f.IntVar(&o.Steps, "steps", 200, "with --index 0: the number of steps of the training")
	f.IntVar(&o.MinWorkers, "min-workers", 1, "with --index 0: how many workers there must be for the first step")
	f.IntVar(&o.Every, "every", 1, "with --index 0: report each so many steps")
	f.BoolVar(&o.Stay, "stay", false, "wait for SIGTERM after the last step; server 0 then tells workers that come that the training is over")
	specFlags(c, &o.Spec, "with --index 0: ")
	return c
}

// specFlags adds the flags of a model.
func specFlags(c *cobra.Command, s *model.Spec, where string) {
	f := c.Flags()
	f.Uint64Var(&s.Seed, "seed", 1, where+"draws the first parameters and the samples")
	f.IntVar(&s.Width, "width", 896, where+"neurons of each hidden layer; 896 are 1,042,954 parameters")
	f.IntVar(&s.Batch, "batch", 48, where+"samples of a step")
	f.IntVar(&s.Slices, "slices", 12, where+"parts of a batch, the most workers that a step can use; a divisor of it")
	f.Float64Var(&s.Rate, "rate", 0.02, where+"the step size of the descent")
}

// checkServer checks the flags of a server, and leaves the coordinator out where it is the server itself.
func checkServer(o *server.Options, index int, bandwidth float64) error {
	if index < 0 || index >= maxServers {
		return fmt.Errorf("--index: %d is not from 0 to %d", index, maxServers-1)
	}
	if index == 0 {
		o.Coordinator = ""
	} else if err := checkAddress("--coordinator", o.Coordinator); err != nil {
		return fmt.Errorf("%w; a server with an --index above 0 needs it", err)
	}
	if err := checkListen("--listen", o.Listen); err != nil {
		return err
	}
	if err := checkBandwidth(bandwidth); err != nil {
		return err
	}
	switch {
	case o.Patience < 0:
		return fmt.Errorf("--patience: %v is not 0s or more", o.Patience)
	case o.Steps < 1 || o.Steps > maxSteps:
		return fmt.Errorf("--steps: %d is not from 1 to %d", o.Steps, maxSteps)
	case o.MinWorkers < 1 || o.MinWorkers > maxWorkers:
		return fmt.Errorf("--min-workers: %d is not from 1 to %d", o.MinWorkers, maxWorkers)
	case o.Every < 1:
		return fmt.Errorf("--every: %d is not 1 or more", o.Every)
	}
	return o.Spec.Validate()
}

func workerCommand() *cobra.Command {
	o, metrics := worker.Options{}, ""
	c := &cobra.Command{
		Use:   "worker",
		Short: "Computes gradients",
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkWorker(o, metrics); err != nil {
				return usage{err}
			}
			samples := &worker.Samples{}
			if metrics != "" {
				// The count stays readable while the worker leaves.
				serving, stop := context.WithCancel(context.WithoutCancel(c.Context()))
				defer stop()
				if _, err := samples.Serve(serving, metrics); err != nil {
					return fmt.Errorf("serve metrics: %w", err)
				}
			}
			o.Out, o.Count = c.OutOrStdout(), samples.Add
			return worker.Run(c.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Coordinator, "coordinator", "127.0.0.1:"+port, "host:port of server 0")
	f.StringVar(&o.Name, "name", hostname(), "what the report calls the worker")
	f.DurationVar(&o.Patience, "patience", time.Minute, "how long to look for server 0")
	f.DurationVar(&o.Work, "work", 0, "the least time for a sample; the worker sleeps for the rest, to stand for a larger network")
	f.StringVar(&o.Notice, "podinfo", "", "file with the annotations of the pod, of a downwardAPI volume: the worker leaves when "+worker.AnnotationLeaving+" is in it")
	f.StringVar(&metrics, "metrics", "", "host:port where /metrics has "+worker.Metric+"; empty serves none")
	return c
}

func checkWorker(o worker.Options, metrics string) error {
	if err := checkAddress("--coordinator", o.Coordinator); err != nil {
		return err
	}
	if metrics != "" {
		if err := checkListen("--metrics", metrics); err != nil {
			return err
		}
	}
	if o.Patience < 0 {
		return fmt.Errorf("--patience: %v is not 0s or more", o.Patience)
	}
	return checkWork(o.Work)
}

// checkAddress checks an address to connect to.
func checkAddress(flag, address string) error {
	host, p, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return fmt.Errorf("%s: %q is not host:port, such as trainer-0.trainer:%s", flag, address, port)
	}
	return checkPort(flag, p, 1)
}

// checkListen checks an address to listen on.
func checkListen(flag, address string) error {
	_, p, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%s: %q is not host:port or :port, such as 127.0.0.1:%s", flag, address, port)
	}
	return checkPort(flag, p, 0)
}

func checkPort(flag, p string, least int) error {
	if n, err := strconv.Atoi(p); err != nil || n < least || n > 65535 {
		return fmt.Errorf("%s: the port %q is not from %d to 65535", flag, p, least)
	}
	return nil
}

func checkBandwidth(mb float64) error {
	if mb == 0 || mb >= 1 && mb <= 1e6 {
		return nil
	}
	return fmt.Errorf("--bandwidth: %v is neither 0 nor from 1 to 1000000 MB a second", mb)
}

func checkWork(d time.Duration) error {
	if d < 0 || d > time.Minute {
		return fmt.Errorf("--work: %v is not from 0s to 1m", d)
	}
	return nil
}
