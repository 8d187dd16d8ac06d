package command

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/version"
)

// Exit codes beside 0.
const (
	Failed  = 1 // there is no answer; the line on stderr says why
	Misused = 2 // a flag or an argument is not legal
)

// errUsage marks errors of people who typed a command.
var errUsage = errors.New("bad usage")

// usage makes an error about a flag or an argument.
func usage(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// usageError is an error that Is errUsage, and reads as the one inside.
type usageError struct{ error }

func (e *usageError) Is(target error) bool { return target == errUsage }
func (e *usageError) Unwrap() error        { return e.error }

// Streams are what a program reads and writes.
type Streams struct {
	In        io.Reader
	Out, Errs io.Writer
	// Terminal and ErrsTerminal say that Out and Errs are terminals.
	Terminal, ErrsTerminal bool
	// Env returns a variable of the environment.
	Env func(string) string
}

// Execute runs kubectl tandem with arguments, and returns its exit code.
func Execute(args []string, s Streams) int {
	program := Program(s)
	program.SetArgs(append([]string{}, args...)) // nil would be the arguments of the process
	err := program.Execute()
	if err == nil {
		return 0
	}
	if v := (*verdict)(nil); errors.As(err, &v) {
		return v.code
	}
	fmt.Fprintln(s.Errs, "kubectl tandem:", strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.Is(err, errUsage) {
		return Misused
	}
	return Failed
}

// Program returns the root of the commands.
func Program(s Streams) *cobra.Command {
	o := &options{streams: s}
	c := &cobra.Command{
		Use:   "kubectl-tandem",
		Short: "Shows who has which part of which GPU, and why pods wait",
		Long: `Shows who has which part of which GPU, and why pods wait.

The commands read the snapshot of Tandem's scheduler: through the API server with the rights of your kubeconfig, or from a file
with --snapshot. Pods that you may not see are "another team". The commands doctor and events ask the API server instead, and cordon and
uncordon write to it.`,
		Example: `  kubectl tandem map                      who has which part of which GPU
  kubectl tandem why train-0 -n team-a    why a pod waits, and what would help
  kubectl tandem top                      who uses how much of what they hold, live
  kubectl tandem gang                     gangs, and what they wait for
  kubectl tandem simulate --add job.yaml  what would change
  kubectl tandem snapshot -f now.json     keep the state of this moment
  kubectl tandem events -n team-a         what Tandem decided, and why
  kubectl tandem ui                       the GPU map in a browser
  kubectl tandem doctor                   what is wrong with the installation
  kubectl tandem cordon gpu-7 g3          let a GPU take no new pods`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tandem"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.Get().String(),
		Args:          cobra.ArbitraryArgs,
	}
	c.SetIn(s.In)
	c.SetOut(s.Out)
	c.SetErr(s.Errs)
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usage("%w; see %s --help", err, c.CommandPath()) })
	o.addFlags(c.PersistentFlags())
	c.AddCommand(o.cordonCommand(), o.doctorCommand(), o.eventsCommand(), o.gangCommand(), o.mapCommand(), o.simulateCommand(), o.snapshotCommand(), o.topCommand(),
		o.uiCommand(), o.uncordonCommand(), o.whyCommand())
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("unknown command %q, known are %s", args[0], strings.Join(commands(c), ", "))
		}
		return c.Help()
	}
	return c
}

func commands(c *cobra.Command) []string {
	var all []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, sub.Name())
		}
	}
	return all
}

// none is for commands that take flags only.
func none(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes flags only, has the argument %q; see %s --help", c.Name(), args[0], c.CommandPath())
	}
	return nil
}
