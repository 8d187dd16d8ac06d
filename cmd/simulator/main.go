// Command simulator plays workloads on clusters that exist on paper: which GPU a pod gets is decided by the functions that
// the scheduler's plugin calls.
//
// It reads scenarios (examples/, docs/guides/simulator.md) and public traces (docs/experiments.md). Results go to stdout,
// all else to stderr. It ends with 0, with 1 when an assertion of a scenario failed, and with 2 and one line that names the
// file and the field when it was asked for something that it cannot do.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/internal/version"
)

// Exit codes.
const (
	exitFailed = 1 // an assertion does not hold
	exitBroken = 2 // bad input
)

// errFailed ends a command whose assertions do not all hold; which, it has told.
var errFailed = errors.New("assertions do not hold")

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

func execute(args []string, out, errs io.Writer) int {
	c := command()
	c.SetArgs(append([]string{}, args...)) // nil would be the arguments of the process
	c.SetOut(out)
	c.SetErr(errs)
	err := c.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintln(errs, "simulator:", strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.Is(err, errFailed) {
		return exitFailed
	}
	return exitBroken
}

func command() *cobra.Command {
	c := &cobra.Command{
		Use:   "simulator",
		Short: "Plays workloads on clusters that exist on paper",
		Long: `Plays workloads on clusters that exist on paper, and tells what became of them.

Which GPU a pod gets is decided by the code that the scheduler runs in a real cluster, so what is seen here is what it
would do there. It needs no cluster, no GPU and no network, and the same input always gives the same output.

A scenario is a YAML file with a cluster, a workload, the policies to compare and what is expected of them. Small ones to
begin with are in examples/; docs/guides/simulator.md says what can stand in one.`,
		Example: `  simulator run examples/mixed.yaml                  play a scenario, print a table
  simulator run examples/mixed.yaml --plot out       and draw it into the folder out
  simulator map examples/mixed.yaml --at 30m         who holds which GPU after half an hour
  simulator fragmentation --nodes nodes.csv --pods pods.csv
                                                     fill a cluster from a trace, compare all policies`,
		SilenceUsage: true, SilenceErrors: true, Args: cobra.ArbitraryArgs, Version: version.Get().String(),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q, known are %s", args[0], strings.Join(names(c), ", "))
			}
			return c.Help()
		},
	}
	c.CompletionOptions.HiddenDefaultCmd = true
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return fmt.Errorf("%w; see %s --help", err, c.CommandPath()) })
	c.AddCommand(runCommand(), mapCommand(), fragmentationCommand(), ratesCommand(), rightsizeCommand(), interferenceCommand(), fitCommand(), scoreCommand(), colocateCommand(), gangsCommand(), preemptionCommand(), weightsCommand())
	return c
}

func names(c *cobra.Command) []string {
	var all []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, sub.Name())
		}
	}
	return all
}

// progress tells on stderr how many runs are done: a bar on a terminal, else now and then a line.
func progress(c *cobra.Command) *report.Progress {
	p := &report.Progress{Out: c.ErrOrStderr(), Now: time.Now, What: "runs"}
	if f, ok := p.Out.(*os.File); ok {
		p.Terminal = term.IsTerminal(int(f.Fd()))
	}
	return p
}

// scenarioFile is the only argument of commands that play a scenario.
func scenarioFile(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s wants the path of one scenario, has %d arguments; see %s --help", c.Name(), len(args), c.CommandPath())
	}
	return nil
}

// noArguments is for commands that take flags only.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes flags only, has the argument %q; see %s --help", c.Name(), args[0], c.CommandPath())
	}
	return nil
}
