package command

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
	"github.com/tandem-gpu/tandem/internal/spelling"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

func (o *options) gangCommand() *cobra.Command {
	var as form
	c := &cobra.Command{
		Use:   "gang [NAME]",
		Short: "Shows gangs: how many members have a place, and what the others wait for",
		Long: `Shows gangs: how many members have a place, and what the others wait for.

Without -n the gangs of all namespaces. docs/gang-phases.md has the words for phase and need. With a NAME, or with -o wide, each gang
has its message and the places of its members that are not bound below it.`,
		Example: `  kubectl tandem gang
  kubectl tandem gang train -n team-a
  kubectl tandem gang -o yaml`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("gang takes one NAME at most, has %d arguments; see %s --help", len(args), c.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			line := o.line()
			s, _, err := o.read(c.Context(), line)
			line.Close()
			if err != nil {
				return err
			}
			namespace := ""
			if c.Flags().Changed("namespace") || len(args) == 1 {
				namespace = o.namespace()
			}
			return o.writeGangs(s, namespace, strings.Join(args, ""), as)
		},
	}
	as.addTo(c)
	return c
}

// writeGangs writes the gangs of a namespace, "" for all, or the one of a name.
func (o *options) writeGangs(s *snapshot.Snapshot, namespace, name string, as form) error {
	gangs, names := []snapshot.Gang{}, []string{}
	for i := range s.Gangs {
		g := &s.Gangs[i]
		if namespace != "" && g.Namespace != namespace {
			continue
		}
		names = append(names, g.Name)
		if name == "" || g.Name == name {
			gangs = append(gangs, *g)
		}
	}
	if name != "" && len(gangs) == 0 {
		hint := ""
		if near, ok := spelling.Nearest(name, names); ok {
			hint = "; there is " + near
		}
		return fmt.Errorf("the snapshot has no gang %s in the namespace %s%s", name, namespace, hint)
	}
	if as.forPrograms() {
		return as.write(o.streams.Out, gangs)
	}
	var b strings.Builder
	if len(gangs) == 0 {
		b.WriteString("there are no gangs\n")
	} else {
		table(&b, s, gangs, name != "" || as == wide)
	}
	_, err := fmt.Fprint(o.streams.Out, b.String())
	return err
}

// table writes a line for each gang; all adds the message and the places.
func table(b *strings.Builder, s *snapshot.Snapshot, gangs []snapshot.Gang, all bool) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "GANG\tMEMBERS\tBOUND\tMIN\tPHASE\tNEED\tWAITS\tREASON")
	for i := range gangs {
		g := &gangs[i]
		waits := "-"
		if !g.WaitsSince.IsZero() {
			waits = age(s.At, float64(g.WaitsSince.Unix()))
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n",
			wording.Name(g.Namespace+"/"+g.Name), g.Members, g.Bound, g.MinCount, g.Phase, g.Need, waits, cmp.Or(g.Reason, "-"))
	}
	w.Flush() //nolint:errcheck // the writer is a strings.Builder
	if !all {
		return
	}
	for i := range gangs {
		details(b, s, &gangs[i])
	}
}

// details writes the message of a gang, the places of its members that are not bound, and its target where it is elastic.
func details(b *strings.Builder, s *snapshot.Snapshot, g *snapshot.Gang) {
	fmt.Fprintf(b, "\n%s\n", wording.Name(g.Namespace+"/"+g.Name))
	if g.Message != "" {
		fmt.Fprintf(b, "  %s\n", g.Message)
	}
	for k := range g.Places {
		fmt.Fprintf(b, "  %s is to go to %s\n", wording.Name(g.Places[k].Path()), g.Places[k].Node)
	}
	for i := range s.ElasticTargets {
		if t := &s.ElasticTargets[i]; t.GangName == g.GangName {
			fmt.Fprintf(b, "  should have %s, from %d to %d: %s\n", wording.Count(t.Workers, "worker"), t.Min, t.Max, t.Reason)
		}
	}
	for i := range s.Preemptions {
		if p := &s.Preemptions[i]; p.Gang != nil && *p.Gang == g.GangName {
			fmt.Fprintf(b, "  room is made for it by the eviction of %s (%s)\n", wording.Count(len(p.Victims), "pod"), p.Phase)
		}
	}
}
