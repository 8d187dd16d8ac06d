package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tandem-gpu/tandem/internal/cluster/guarded"
	"github.com/tandem-gpu/tandem/internal/shadow/reports"
	"github.com/tandem-gpu/tandem/internal/version"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/shadow"
	"github.com/tandem-gpu/tandem/pkg/sim"
)

// settings are the values of the flags.
type settings struct {
	kubeconfig, schedulerName, shareAnnotation string
	policy, output                             string
	every, keep, gather                        time.Duration
	maxPods, examples, port                    int
	flags                                      *pflag.FlagSet
}

// command returns the command with its flags.
func command() *cobra.Command {
	s := &settings{}
	c := &cobra.Command{
		Use:   "tandem-shadow",
		Short: "Shadow mode runs beside another scheduler, binds nothing, and reports what Tandem would have done with its pods",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		Version: version.Get().String(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			return s.run(c.Context(), c.OutOrStdout())
		},
	}
	f := c.Flags()
	s.flags = f
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "file with the address of the API server and how to log in; empty in a pod of the cluster")
	f.StringVar(&s.schedulerName, "scheduler-name", "default-scheduler", "schedulerName of the pods that the report is about")
	f.StringVar(&s.shareAnnotation, "share-annotation", "", "key of the annotation by which the owner of a pod with one GPU says how many tenths of it are enough, 1 to 9; "+
		"empty: pods of whole GPUs have whole GPUs with Tandem too")
	f.StringVar(&s.policy, "policy", "tandem", "how Tandem would place pods, one of: "+strings.Join(placement.Policies(), ", "))
	f.DurationVar(&s.every, "node-interval", 10*time.Second, "time between two looks whether nodes have changed, 1s to 1h")
	f.DurationVar(&s.keep, "keep", 7*24*time.Hour, "how long a period stays in the report after its end, above 0s")
	f.DurationVar(&s.gather, "gang-gather", time.Minute, "how long after its first member the members of a gang still join it, 0s or more")
	f.IntVar(&s.maxPods, "max-pods", 20000, "pods that come in a period before a new one begins, 1 or more")
	f.IntVar(&s.examples, "examples", 10, "pods that the report names as examples, 0 or more")
	f.StringVar(&s.output, "output", reports.Text, "form of the report that is printed at the end, one of: "+strings.Join(reports.Forms(), ", "))
	f.IntVar(&s.port, "secure-port", 10262, "port of the report at "+reports.Path+" and of the metrics at /metrics, by HTTPS; 0 serves neither")
	guarded.AddFlags(f)
	return c
}

// check returns an error that names the flag and its legal values.
func (s *settings) check() error {
	for _, v := range []struct {
		flag  string
		legal bool
		value any
		want  string
	}{
		{"scheduler-name", s.schedulerName != "", s.schedulerName, "the schedulerName of pods"},
		{"share-annotation", s.shareAnnotation == "" || len(validation.IsQualifiedName(s.shareAnnotation)) == 0, s.shareAnnotation, "the key of an annotation"},
		{"policy", slices.Contains(placement.Policies(), s.policy), s.policy, "one of " + strings.Join(placement.Policies(), ", ")},
		{"node-interval", s.every >= time.Second && s.every <= time.Hour, s.every, "1s to 1h"},
		{"keep", s.keep > 0, s.keep, "above 0s"},
		{"gang-gather", s.gather >= 0, s.gather, "0s or more"},
		{"max-pods", s.maxPods >= 1, s.maxPods, "1 or more"},
		{"examples", s.examples >= 0, s.examples, "0 or more"},
		{"output", slices.Contains(reports.Forms(), s.output), s.output, "one of " + strings.Join(reports.Forms(), ", ")},
		{"secure-port", s.port >= 0 && s.port <= 65535, s.port, "0 to 65535"},
	} {
		if !v.legal {
			return fmt.Errorf("--%s: %v is not legal, legal is %s", v.flag, v.value, v.want)
		}
	}
	return nil
}

// config is what the world of Tandem is decided by: the defaults of the scheduler.
func (s *settings) config() (shadow.Config, error) {
	policy, err := placement.ByName(s.policy)
	return shadow.Config{
		Policy: policy, Queue: sim.Skip, Keep: s.keep, Gather: s.gather, RenewMix: time.Hour, MaxPods: s.maxPods, MaxExamples: s.examples,
		Gangs: sim.GangConfig{Drains: gang.BoundedDrains, DrainAfter: 24 * time.Hour, DrainTimeout: 24 * time.Hour},
	}, err
}
