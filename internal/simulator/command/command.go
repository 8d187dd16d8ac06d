package command

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
	Failed = 1 // an assertion does not hold
	Broken = 2 // bad input
)

// ErrFailed ends a command whose assertions do not all hold. The command has printed which.
var ErrFailed = errors.New("assertions do not hold")

// quiet is the flag that turns the progress off.
const quiet = "quiet"

// Program makes a command the root of a program: it answers a version, and prints no error by itself. Execute does.
func Program(c *cobra.Command) *cobra.Command {
	c.SilenceUsage, c.SilenceErrors, c.Version = true, true, version.Get().String()
	c.CompletionOptions.HiddenDefaultCmd = true
	c.PersistentFlags().Bool(quiet, false, "do not say on stderr how far a command is")
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return fmt.Errorf("%w; see %s --help", err, c.CommandPath()) })
	return Group(c)
}

// Group makes a command that does nothing by itself: it prints its help, and names its commands to whom it is given another.
func Group(c *cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q, known are %s", args[0], strings.Join(names(c), ", "))
		}
		return c.Help()
	}
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

// Execute runs a program with its arguments and returns its exit code.
func Execute(program *cobra.Command, args []string, out, errs io.Writer) int {
	program.SetArgs(append([]string{}, args...)) // nil would be the arguments of the process
	program.SetOut(out)
	program.SetErr(errs)
	err := program.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintln(errs, program.Name()+":", strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.Is(err, ErrFailed) {
		return Failed
	}
	return Broken
}

// Progress shows on stderr how many runs are complete: a bar on a terminal, else now and then a line. With --quiet it shows nothing.
func Progress(c *cobra.Command) *report.Progress {
	if off, err := c.Flags().GetBool(quiet); err == nil && off { // a command outside of a program has no such flag
		return &report.Progress{}
	}
	p := &report.Progress{Out: c.ErrOrStderr(), Now: time.Now, What: "runs"}
	if f, ok := p.Out.(*os.File); ok {
		p.Terminal = term.IsTerminal(int(f.Fd()))
	}
	return p
}

// ScenarioFile is for commands whose only argument is the path of a scenario.
func ScenarioFile(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s wants the path of one scenario, has %d arguments; see %s --help", c.Name(), len(args), c.CommandPath())
	}
	return nil
}

// NoArguments is for commands that take flags only.
func NoArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes flags only, has the argument %q; see %s --help", c.Name(), args[0], c.CommandPath())
	}
	return nil
}
