package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/podlist"
)

func jobsCommand() *cobra.Command {
	o := podlist.Options{}
	c := &cobra.Command{
		Use:   "jobs [PODS.json]",
		Short: "Makes a list of jobs, which scenarios can play, out of the pods of a cluster",
		Long: `Makes a list of jobs, which scenarios can play, out of the pods of a cluster.

It reads what kubectl get pods -A -o json prints, or -o yaml, from a file or from stdin, and writes CSV to stdout. On stderr it
says how many pods are not in the list, and which are in it otherwise than in the cluster, with the reasons.
docs/guides/traces.md has the columns, and the names of GPUs that are known.`,
		Example: `  kubectl get pods -A -o json | simulator jobs > jobs.csv`,
		RunE: func(c *cobra.Command, args []string) error {
			if o.Slots < 1 || o.Slots > 1000 {
				return fmt.Errorf("flag --slots: %d, legal is 1 to 1000", o.Slots)
			}
			if len(args) > 1 {
				return fmt.Errorf("jobs wants the path of one file of pods, or none for stdin, has %d arguments; see %s --help", len(args), c.CommandPath())
			}
			from, name := c.InOrStdin(), "stdin"
			if len(args) == 1 {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				from, name = f, args[0]
			}
			pods, others, err := podlist.Read(from)
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			list := podlist.Of(pods, o)
			if quiet, _ := c.Flags().GetBool("quiet"); !quiet || list.Len() == 0 {
				say(c.ErrOrStderr(), list, len(pods), others)
			}
			if list.Len() == 0 {
				return errors.New("no pod can be in the list")
			}
			return list.Write(c.OutOrStdout())
		},
	}
	c.Flags().Int64Var(&o.Slots, "slots", 10, "`number` of slots of each device: so many tandem-gpu.io/vgpu are one GPU")
	c.Flags().BoolVar(&o.WithoutGPUs, "without-gpus", false, "list pods without GPUs too, for nodes that take both")
	return c
}

// say writes what became of the pods.
func say(w io.Writer, list *podlist.List, pods, others int) {
	fmt.Fprintf(w, "%s read, %d in the list\n", csvtable.Plural(pods, "pod"), list.Len())
	if others > 0 {
		fmt.Fprintf(w, "%s of other kinds left out\n", csvtable.Plural(others, "object"))
	}
	for _, part := range []struct {
		title  string
		counts []podlist.Count
	}{{"not in the list:", list.Left}, {"in the list, and otherwise than in the cluster:", list.Changed}} {
		for i := range part.counts {
			if i == 0 {
				fmt.Fprintln(w, part.title)
			}
			fmt.Fprintln(w, " ", &part.counts[i])
		}
	}
	if len(list.Models) > 0 {
		fmt.Fprintf(w, "jobs want the GPU models %s: nodes of the scenario need these names\n", strings.Join(list.Models, ", "))
	}
}
