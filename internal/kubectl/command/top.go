package command

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/kubectl/consumption"
	"github.com/tandem-gpu/tandem/internal/kubectl/live"
	"github.com/tandem-gpu/tandem/internal/kubectl/progress"
	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// top is the command with its flags.
type top struct {
	*options
	as                   form
	by, order, namespace string
	once                 bool
	limit                int
	interval             time.Duration
}

func (o *options) topCommand() *cobra.Command {
	t := &top{options: o}
	c := &cobra.Command{
		Use:   "top",
		Short: "Shows who uses how much of what they hold, live",
		Long: `Shows who uses how much of what they hold: GPUs that pods hold, use and waste, device memory, predicted slowdowns and reported rates.

On a terminal it asks the scheduler each --interval until you press q; ? there says what columns and keys are. With --once, -o or
--snapshot, or where standard output is no terminal, it prints the table once. A figure that nobody has measured is "-".`,
		Example: `  kubectl tandem top
  kubectl tandem top --by namespace --sort waste --once
  kubectl tandem top -n team-a --sort slowdown -o json`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("namespace") {
				t.namespace = o.overrides.Context.Namespace
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return t.run(ctx)
		},
	}
	t.as.addTo(c)
	choice := func(to *string, flag, first, what string, legal []string) {
		c.Flags().StringVar(to, flag, first, what+": "+strings.Join(legal, ", "))
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(legal, cobra.ShellCompDirectiveNoFileComp)) // fails without the flag only
	}
	choice(&t.by, "by", consumption.ByPod, "what a line is for", consumption.Groups())
	choice(&t.order, "sort", consumption.Waste, "what lines are sorted by, the most first", consumption.Orders())
	c.Flags().BoolVar(&t.once, "once", false, "print the table once")
	c.Flags().IntVar(&t.limit, "limit", 0, "print so many lines at most; 0 prints all")
	c.Flags().DurationVar(&t.interval, "interval", 10*time.Second, "`time` from one question to the scheduler to the next, 1s or more")
	return c
}

func (t *top) check() error {
	err := t.options.check()
	switch {
	case err != nil:
		return err
	case !slices.Contains(consumption.Groups(), t.by):
		return usage("--by: %q, legal are %s", t.by, strings.Join(consumption.Groups(), ", "))
	case !slices.Contains(consumption.Orders(), t.order):
		return usage("--sort: %q, legal are %s", t.order, strings.Join(consumption.Orders(), ", "))
	case t.limit < 0:
		return usage("--limit: %d, legal is 0 or more", t.limit)
	case t.interval < leastInterval:
		return usage("--interval: %v, legal is %v or more", t.interval, leastInterval)
	}
	return nil
}

func (t *top) run(ctx context.Context) error {
	if err := t.check(); err != nil {
		return err
	}
	if t.streams.Terminal && !t.once && t.as == text && t.file == "" {
		return t.follow(ctx)
	}
	line := t.line()
	s, _, err := t.read(ctx, line)
	line.Close()
	if err != nil {
		return err
	}
	return t.print(s)
}

// print writes the table once.
func (t *top) print(s *snapshot.Snapshot) error {
	rows, err := consumption.Rows(s, t.by)
	if err != nil {
		return err
	}
	rows = consumption.Of(rows, t.by, t.namespace)
	consumption.Sort(rows, t.order)
	left := 0
	if t.limit > 0 && len(rows) > t.limit {
		rows, left = rows[:t.limit], len(rows)-t.limit
	}
	if t.as.forPrograms() {
		return t.as.write(t.streams.Out, struct {
			At       time.Time         `json:"at"`
			By       string            `json:"by"`
			Rows     []consumption.Row `json:"rows"`
			RowsLeft int               `json:"rowsLeft"`
		}{s.At, t.by, append([]consumption.Row{}, rows...), left})
	}
	lines := append([]string{"state since " + s.At.UTC().Format(time.RFC3339)}, consumption.Table(rows, t.by, 0)...)
	if left > 0 {
		lines = append(lines, fmt.Sprintf("%s more: --limit 0 prints all", wording.Count(left, "line")))
	}
	_, err = fmt.Fprintln(t.streams.Out, strings.Join(lines, "\n"))
	return err
}

// follow shows the table until the reader ends it. The first snapshot is there before the screen is, so that what is missing for it is said
// in the ordinary way.
func (t *top) follow(ctx context.Context) error {
	line := t.line()
	first, _, err := t.read(ctx, line)
	line.Close()
	if err != nil {
		return err
	}
	silent := progress.Start(nil)
	defer silent.Close()
	m := live.Model{By: t.by, Order: t.order, Namespace: t.namespace}
	m.Ask = func(isFirst bool) tea.Cmd {
		if isFirst {
			return func() tea.Msg { return live.Seen{Snapshot: first} }
		}
		return tea.Tick(t.interval, func(time.Time) tea.Msg {
			s, _, err := t.read(ctx, silent)
			return live.Seen{Snapshot: s, Err: err}
		})
	}
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(t.streams.In), tea.WithOutput(t.streams.Out)).Run()
	if errors.Is(err, tea.ErrInterrupted) || ctx.Err() != nil {
		return nil
	}
	return err
}
