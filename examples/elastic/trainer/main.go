// Command trainer trains a small network on CPUs while its workers and its parameter servers join and leave.
//
// It shows what an elastic job has to do, and stands for a real one where a test needs one. Server 0 is the coordinator. The
// workers compute gradients, the servers hold the parameters and apply them; the package group says how steps are shared, and
// why no step is lost and none is counted twice. The parameters after a step are the same, to the last bit, whatever the
// number of workers and servers has been, on machines with the same kind of processor.
//
//	trainer server --steps 200                          # server 0 at 127.0.0.1:7070
//	trainer worker --coordinator 127.0.0.1:7070         # as many as you like, at any time
//	trainer server --listen 127.0.0.1:0 --index 1 --coordinator 127.0.0.1:7070
//
// SIGTERM makes a worker leave when its task is done, and a server other than server 0 when it has handed its parameters over.
// A worker that is lost with its process costs the part of a step that it was computing; a server costs the training, since
// there is no checkpoint.
//
// Results are lines of JSON on stdout (server.Line, worker.Line), all else goes to stderr. The exit code is 0 when the training
// is over, 143 for a worker that left after SIGTERM, so that its Job makes it again, 1 when something failed, and 2 for flags
// that are not legal.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/worker"
	"github.com/tandem-gpu/tandem/internal/version"
)

// Exit codes.
const (
	failed = 1
	broken = 2   // flags
	left   = 143 // 128 + SIGTERM
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// usage is an error in the flags.
type usage struct{ error }

func execute(ctx context.Context, args []string, out, errs io.Writer) int {
	c := command()
	c.SetArgs(append([]string{}, args...)) // nil would be the arguments of the process
	c.SetOut(out)
	c.SetErr(errs)
	err := c.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(errs, "trainer:", strings.ReplaceAll(err.Error(), "\n", "; "))
	switch {
	case errors.Is(err, worker.ErrLeft):
		return left
	case errors.As(err, &usage{}):
		return broken
	}
	return failed
}

func command() *cobra.Command {
	c := &cobra.Command{
		Use:   "trainer",
		Short: "Trains a small network while its workers and its parameter servers join and leave",
		Long: `Trains a small network while its workers and its parameter servers join and leave.

Start server 0, which coordinates, then workers and further servers in any number and at any time. The result does not depend
on how many there were. Lines of JSON on stdout tell each step and each change.`,
		Example: `  trainer server --steps 200
  trainer worker --coordinator 127.0.0.1:7070
  trainer server --index 1 --listen 127.0.0.1:0 --coordinator 127.0.0.1:7070
  trainer measure --workers 4 --servers 2`,
		Version: version.Get().String(), SilenceUsage: true, SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage{fmt.Errorf("unknown command %q, known are server, worker, measure", args[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage{fmt.Errorf("%w; see %s --help", err, c.CommandPath())}
	})
	c.CompletionOptions.HiddenDefaultCmd = true
	c.AddCommand(serverCommand(), workerCommand(), measureCommand())
	return c
}

// noArguments is for commands that take flags only.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage{fmt.Errorf("%s takes flags only, has the argument %q; see %s --help", c.Name(), args[0], c.CommandPath())}
	}
	return nil
}

// hostname is the name of the pod in a cluster.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
