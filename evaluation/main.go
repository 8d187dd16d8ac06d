// Command evaluation is the laboratory: it repeats published experiments on public data with the scheduler's decisions, fits
// what the scheduler predicts from, and draws scenarios.
//
// There is a command for each page of docs/experiments. The package evaluation/experiment has the runs, and the core
// packages decide where a pod goes. No part of the product imports it. Results go to stdout, all else to stderr. The
// exit code is 0, or 1 when a result does not hold. It is 2 for a request that the program cannot meet, with one line
// that names the file and the field.
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
		colocateCommand(), gangsCommand(), elasticCommand(), inferenceCommand(), inferenceSplitCommand(), inferenceBatchesCommand(), lendingCommand(),
		notebooksCommand(), preemptionCommand(), weightsCommand(), lifetimesCommand(), shortestCommand(), shapesCommand(), settleCommand(), drawCommand())
	return c
}
