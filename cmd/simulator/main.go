// Command simulator plays workloads on clusters that exist on paper: which GPU a pod gets is decided by the functions that
// the scheduler's plugin calls.
//
// The program reads scenarios (examples/, docs/guides/simulator.md). Results go to stdout, all else to stderr. The exit
// code is 0, or 1 when an assertion of a scenario failed. It is 2 for a request that the simulator cannot meet, with
// one line that names the file and the field. The program evaluation draws scenarios and repeats published experiments.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

func execute(args []string, out, errs io.Writer) int {
	return command.Execute(simulator(), args, out, errs)
}

func simulator() *cobra.Command {
	c := command.Program(&cobra.Command{
		Use:   "simulator",
		Short: "Plays workloads on clusters that exist on paper",
		Long: `Plays workloads on clusters that exist on paper, and tells what became of them.

Which GPU a pod gets is decided by the code that the scheduler runs in a real cluster, so what is seen here is what it
would do there. It needs no cluster, no GPU and no network, and the same input always gives the same output.

A scenario is a YAML file with a cluster, a workload, the policies to compare and what is expected of them. Small ones to
begin with are in examples/; docs/guides/simulator.md says what can stand in one. Figures, and experiments on public data,
are commands of another program: go run ./evaluation.`,
		Example: `  simulator run examples/mixed.yaml                  play a scenario, print a table
  simulator map examples/mixed.yaml --at 30m         who holds which GPU after half an hour
  simulator snapshot examples/mixed.yaml --at 30m    the same as a scheduler publishes it
  kubectl get pods -A -o json | simulator jobs         a list of jobs out of the pods of a cluster`,
	})
	c.AddCommand(runCommand(), mapCommand(), snapshotCommand(), jobsCommand())
	known := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := known(c, args); err != nil {
			return fmt.Errorf("%w; experiments and figures are commands of go run ./evaluation", err)
		}
		return nil
	}
	return c
}
