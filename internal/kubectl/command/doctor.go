package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-gpu/tandem/internal/kubectl/checks"
	"github.com/tandem-gpu/tandem/internal/kubectl/facts"
	"github.com/tandem-gpu/tandem/internal/kubectl/progress"
	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
)

// Exit codes of doctor for findings, beside Failed and Misused.
const (
	Warned = 3 // the gravest finding is a warning
	Broken = 4 // the gravest finding is an error
)

// failures are the values of --fail-on.
var failures = []string{string(checks.Error), string(checks.Warning)}

// verdict is the exit code of a command that has answered.
type verdict struct{ code int }

func (v *verdict) Error() string { return fmt.Sprintf("exit code %d", v.code) }

func (o *options) doctorCommand() *cobra.Command {
	var as form
	var failOn string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Finds what is wrong with the installation, and says how it is mended",
		Long: `Finds what is wrong with the installation, and says how it is mended: what deploy/ installs, admission policies, nodes, drivers and
MPS, other device plugins, and pods without a valid assignment.

It asks the API server with the rights of your kubeconfig and changes nothing. What you may not read is a finding too, with the right
that is missing. The exit code is 0 without findings or with notes alone, 3 with warnings, 4 with errors.`,
		Example: `  kubectl tandem doctor
  kubectl tandem doctor --fail-on error          # warnings are shown, and the exit code is 0
  kubectl tandem doctor -o json | jq -r '.findings[].object'`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			err := o.check()
			switch {
			case err != nil:
				return err
			case !slices.Contains(failures, failOn):
				return usage("--fail-on: %q, legal are %s", failOn, strings.Join(failures, ", "))
			case o.file != "":
				return usage("--snapshot: doctor asks the cluster and reads no snapshot")
			}
			line := o.line()
			r, err := o.examine(c.Context(), line)
			line.Close()
			if err != nil {
				return err
			}
			if err := o.writeReport(r, as); err != nil {
				return err
			}
			return judge(r, checks.Severity(failOn))
		},
	}
	as.addTo(c)
	c.Flags().StringVar(&failOn, "fail-on", string(checks.Warning), "`severity` from which on findings make the exit code other than 0: "+strings.Join(failures, ", "))
	_ = c.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(failures, cobra.ShellCompDirectiveNoFileComp)) // fails without the flag only
	return c
}

// examine reads the cluster, and carries out the checks.
func (o *options) examine(ctx context.Context, line *progress.Line) (*checks.Report, error) {
	f, err := o.facts(ctx, line)
	if err != nil {
		return nil, err
	}
	line.Step("looking for what is wrong")
	return checks.Find(f), nil
}

// facts reads the cluster of the kubeconfig.
func (o *options) facts(ctx context.Context, line *progress.Line) (*checks.Facts, error) {
	config, err := o.kubeconfigs().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("ask the API server: %w", err)
	}
	custom, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("ask the API server: %w", err)
	}
	return facts.Read(ctx, client, custom, &facts.Options{
		Namespace: o.scheduler.Namespace, Scheduler: o.scheduler.Name, Now: time.Now(), Step: counted(line),
	})
}

// counted returns a step of which it is known how many there are.
func counted(line *progress.Line) func(what string, done, of int) {
	return func(what string, done, of int) {
		line.Part(done, of)
		line.Step(what)
	}
}

// judge returns the exit code for findings as grave as a severity, nil for 0.
func judge(r *checks.Report, failOn checks.Severity) error {
	worst := r.Worst()
	switch {
	case worst == "" || !worst.AtLeast(failOn):
		return nil
	case worst == checks.Error:
		return &verdict{Broken}
	}
	return &verdict{Warned}
}

func (o *options) writeReport(r *checks.Report, as form) error {
	if as.forPrograms() {
		return as.write(o.streams.Out, r)
	}
	var b strings.Builder
	o.draw(&b, r)
	if as == wide {
		list := func(title string, names []string) {
			if len(names) > 0 {
				fmt.Fprintf(&b, "\n%s: %s\n", title, strings.Join(names, ", "))
			}
		}
		list("found nothing", r.Passed)
		list("not done", r.NotDone)
	}
	_, err := io.WriteString(o.streams.Out, b.String())
	return err
}

// draw writes the findings for people: those of one check together.
func (o *options) draw(b *strings.Builder, r *checks.Report) {
	count := map[checks.Severity]int{}
	for i := range r.Findings {
		count[r.Findings[i].Severity]++
	}
	fmt.Fprintf(b, "%s, %s, %s; %s found nothing", wording.Count(count[checks.Error], "error"), wording.Count(count[checks.Warning], "warning"),
		wording.Count(count[checks.Note], "note"), wording.Count(len(r.Passed), "check"))
	if len(r.NotDone) > 0 {
		fmt.Fprintf(b, ", %d not done", len(r.NotDone))
	}
	b.WriteString("\n")
	for i := range r.Findings {
		x := &r.Findings[i]
		if i == 0 || r.Findings[i-1].Check != x.Check {
			fmt.Fprintf(b, "\n%s %s: %s\n  see %s\n", o.severity(x.Severity), x.Check, x.Why, x.Page)
		}
		fmt.Fprintf(b, "  %s: %s\n    fix: %s\n", wording.Plain(x.Object), wording.Plain(x.What), wording.Plain(x.Fix))
	}
}

// severities are the colours of severities.
var severities = map[checks.Severity]string{checks.Error: "\x1b[31m", checks.Warning: "\x1b[33m", checks.Note: "\x1b[2m"}

func (o *options) severity(s checks.Severity) string {
	if !o.coloured() {
		return string(s)
	}
	return severities[s] + string(s) + "\x1b[0m"
}
