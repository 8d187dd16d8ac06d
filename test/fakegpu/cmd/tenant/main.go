// Command tenant stands for a CUDA program in a container: it holds a context and pretends to work.
//
// The program reads the CUDA_MPS_* variables as the CUDA driver does and becomes a client of the MPS daemon in
// CUDA_MPS_PIPE_DIRECTORY. Without that variable, or without a daemon there, it runs all the same and says so, as
// NVIDIA's driver does. The program loads no library and needs no file: built with CGO_ENABLED=0 it runs alone in an
// image.
//
//	tenant --memory 1Gi --sm 40 --bw 20 --in-flight --ignore-term --fault-after 3s
//	tenant --sm 60 --bw 50 --sensitivity 0.8 --pressure 0.4 --rate 120 --serve :9400 --lie 2
//
// With --serve it reports its rate at /metrics of that address in Prometheus' text format: what it does now (the gauge
// tenant_rate) and has done (the counter tenant_steps_total). The rate is --rate times the progress in the fake driver;
// the report is --lie times that.
//
// The program prints one line for each event: "connected server=PID", "without MPS", "blocked" (no answer for two
// seconds), "terminated", "fault", "gone", "out of memory", "too many contexts", "bye". The program ends at SIGTERM or
// SIGINT, or when its context breaks. Exit status: 0 in order, 1 refused or wrong arguments, 3 terminated, 4 fault or
// the server is gone.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// Exit statuses.
const (
	exitRefused    = 1
	exitTerminated = 3
	exitFault      = 4
)

// blockedAfter is how long the tenant waits for the server before it prints "blocked".
const blockedAfter = 2 * time.Second

func main() { os.Exit(run(os.Args[1:], os.Getenv, os.Stdout)) }

// options are the arguments.
type options struct {
	load       fakegpu.ClientLoad
	ignoreTerm bool
	faultAfter time.Duration
	// serve is where the tenant reports, "" for nowhere; rate is what it does alone, in steps per second.
	serve     string
	rate, lie float64
}

func run(args []string, env func(string) string, out io.Writer) int {
	o, err := parse(args, env)
	if err != nil {
		fmt.Fprintln(out, err)
		return exitRefused
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	if o.ignoreTerm {
		signal.Ignore(syscall.SIGTERM)
	}
	client, err := connect(o, env("CUDA_MPS_PIPE_DIRECTORY"), stop, out)
	switch {
	case errors.Is(err, errStopped):
		fmt.Fprintln(out, "bye")
		return 0
	case err != nil:
		return finish(out, err)
	case client == nil:
		fmt.Fprintln(out, "without MPS")
		<-stop
		fmt.Fprintln(out, "bye")
		return 0
	}
	fmt.Fprintf(out, "connected server=%d\n", client.Server())
	if o.serve != "" {
		end, err := report(client, o)
		if err != nil {
			return finish(out, err)
		}
		defer end()
	}
	return work(client, o, stop, out)
}

func parse(args []string, env func(string) string) (options, error) {
	o := options{load: fakegpu.ClientLoad{UID: os.Getuid()}}
	flags := flag.NewFlagSet("tenant", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	memory := flags.String("memory", "0", "allocated memory in bytes, or with Mi, Gi")
	flags.IntVar(&o.load.SM, "sm", 0, "use of the SMs in percent of the device")
	flags.IntVar(&o.load.Bandwidth, "bw", 0, "use of the memory bandwidth in percent")
	flags.BoolVar(&o.load.InFlight, "in-flight", false, "have work on the GPU all the time")
	flags.BoolVar(&o.ignoreTerm, "ignore-term", false, "do not end on SIGTERM")
	flags.DurationVar(&o.faultAfter, "fault-after", 0, "cause a fatal fault after this time, 0 for never")
	flags.Float64Var(&o.load.Sensitivity, "sensitivity", 0, "how much neighbours slow it down")
	flags.Float64Var(&o.load.Pressure, "pressure", 0, "how much it slows neighbours down")
	flags.StringVar(&o.serve, "serve", "", "address to report the rate at, for example :9400")
	flags.Float64Var(&o.rate, "rate", 100, "steps per second when it is alone")
	flags.Float64Var(&o.lie, "lie", 1, "report so many times the rate")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("parse arguments: %w", err)
	}
	if o.load.Sensitivity < 0 || o.load.Pressure < 0 {
		return o, fmt.Errorf("parse arguments: sensitivity %v and pressure %v must be 0 or more", o.load.Sensitivity, o.load.Pressure)
	}
	var err error
	if o.load.Memory, err = size(*memory, map[string]int{"Mi": 20, "Gi": 30}); err != nil {
		return o, fmt.Errorf("parse --memory: %w", err)
	}
	if p := env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"); p != "" {
		if o.load.Percent, err = strconv.ParseFloat(p, 64); err != nil {
			return o, fmt.Errorf("parse CUDA_MPS_ACTIVE_THREAD_PERCENTAGE: %w", err)
		}
	}
	if o.load.MemoryLimit, err = limit(env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")); err != nil {
		return o, fmt.Errorf("parse CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: %w", err)
	}
	return o, nil
}

// limit reads "<device>=<n>G,…" and returns the smallest limit, 0 for none: the tenant has one device.
func limit(list string) (uint64, error) {
	var least uint64
	for _, entry := range strings.Split(list, ",") {
		if strings.TrimSpace(entry) == "" {
			continue
		}
		_, amount, ok := strings.Cut(entry, "=")
		if !ok {
			return 0, fmt.Errorf("%q: want DEVICE=AMOUNT", entry)
		}
		n, err := size(strings.TrimSpace(amount), map[string]int{"M": 20, "G": 30})
		if err != nil {
			return 0, err
		}
		if least == 0 || n < least {
			least = n
		}
	}
	return least, nil
}

// size reads an amount with one of the units, which are powers of two.
func size(text string, units map[string]int) (uint64, error) {
	for unit, shift := range units {
		if digits, ok := strings.CutSuffix(text, unit); ok {
			n, err := strconv.ParseUint(digits, 10, 32)
			return n << shift, err
		}
	}
	return strconv.ParseUint(text, 10, 64)
}

var errStopped = errors.New("stopped")

// connect returns nil without an error where there is no daemon.
func connect(o options, pipe string, stop <-chan os.Signal, out io.Writer) (*fakegpu.Client, error) {
	if pipe == "" {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type result struct {
		client *fakegpu.Client
		err    error
	}
	results := make(chan result, 1)
	go func() {
		client, err := fakegpu.Dial(ctx, pipe, o.load)
		results <- result{client, err}
	}()
	blocked := time.After(blockedAfter)
	for {
		select {
		case r := <-results:
			if errors.Is(r.err, fs.ErrNotExist) || errors.Is(r.err, syscall.ECONNREFUSED) {
				return nil, nil
			}
			return r.client, r.err
		case <-blocked:
			fmt.Fprintln(out, "blocked")
		case <-stop:
			return nil, errStopped
		}
	}
}

// work goes on until the context breaks or a signal comes.
func work(client *fakegpu.Client, o options, stop <-chan os.Signal, out io.Writer) int {
	var fault <-chan time.Time
	if o.faultAfter > 0 {
		fault = time.After(o.faultAfter)
	}
	for {
		select {
		case <-client.Done():
			return finish(out, client.Err())
		case <-fault:
			if err := client.Fault(); err != nil {
				return finish(out, err)
			}
		case <-stop:
			client.Close()
			fmt.Fprintln(out, "bye")
			return 0
		}
	}
}

// finish says what happened, in one word or two, and gives the exit status.
func finish(out io.Writer, err error) int {
	for _, known := range []struct {
		err    error
		word   string
		status int
	}{
		{fakegpu.ErrTerminated, "terminated", exitTerminated},
		{fakegpu.ErrFault, "fault", exitFault},
		{fakegpu.ErrGone, "gone", exitFault},
		{fakegpu.ErrOutOfMemory, "out of memory", exitRefused},
		{fakegpu.ErrTooManyContexts, "too many contexts", exitRefused},
	} {
		if errors.Is(err, known.err) {
			fmt.Fprintln(out, known.word)
			return known.status
		}
	}
	fmt.Fprintln(out, err)
	return exitRefused
}
