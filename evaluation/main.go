// Command evaluation is the laboratory: it repeats published experiments on public data with the scheduler's decisions, fits
// what the scheduler predicts from, and draws scenarios.
//
// It has a command for each page of docs/experiments. It decides which runs an experiment has, and nothing about where a pod
// goes. No part of the product imports it. Results go to stdout, all else to stderr. It ends with 0, with 1 when a result
// does not hold, and with 2 and one line that names the file and the field when it was asked for something that it cannot
// do.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

func execute(args []string, out, errs io.Writer) int {
	return command.Execute(laboratory(), args, out, errs)
}

func laboratory() *cobra.Command {
	c := command.Program(&cobra.Command{
		Use:   "evaluation",
		Short: "Repeats published experiments with the decisions of the scheduler",
		Long: `Repeats published experiments with the decisions of the scheduler, fits what it predicts from, and draws scenarios.

Where a pod goes is decided by the code that the scheduler runs in a real cluster. The commands need no cluster and no GPU;
they read public data, which are not part of the repository: docs/experiments.md says where they are, and has the results.
The same input always gives the same output. To play a scenario of your own is what the simulator is for.`,
		Example: `  evaluation fragmentation --nodes nodes.csv --pods pods.csv
                                                     fill a cluster from a trace, compare all policies
  evaluation draw examples/mixed.yaml --plot out     draw a scenario into the folder out`,
	})
	c.AddCommand(fragmentationCommand(), ratesCommand(), rightsizeCommand(), interferenceCommand(), fitCommand(), scoreCommand(),
		colocateCommand(), gangsCommand(), preemptionCommand(), weightsCommand(), drawCommand())
	return c
}
