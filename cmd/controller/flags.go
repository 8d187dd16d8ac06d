package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/arguments"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/internal/controller/elasticity"
	"github.com/tandem-gpu/tandem/internal/controller/fleets"
	"github.com/tandem-gpu/tandem/internal/controller/notebooks"
	"github.com/tandem-gpu/tandem/internal/controller/placeable"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/internal/version"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// featureElastic is the feature that sizes elastic gangs, featureInference the one that sizes inference fleets and divides their requests,
// featureNotebooks the one that parks idle notebooks, featurePlaceable the one that answers Kueue's AdmissionChecks,
// featureNodeMemory the one that writes the memory of devices into Nodes.
const (
	featureElastic    = "elastic"
	featureInference  = "inference"
	featureNotebooks  = "notebooks"
	featurePlaceable  = "placeable"
	featureNodeMemory = "node-memory"
)

// features are all features of the controller, and usual those that are on where the flag does not say: placeable writes objects of Kueue, which is not
// in every cluster, and node-memory writes Nodes.
var (
	features = []string{featureElastic, featureInference, featureNotebooks, featurePlaceable, featureNodeMemory}
	usual    = []string{featureElastic, featureInference, featureNotebooks}
)

// settings are the values of the flags.
type settings struct {
	kubeconfig               string
	schedulerConfig          string
	features                 []string
	qps                      float32
	burst                    int
	leaderElect              bool
	leaderNamespace          string
	metricsAddress, probesAt string
	elasticity               elasticity.Options
	fleets                   fleets.Options
	notebooks                notebooks.Options
	placeable                placeable.Options
	horizon                  time.Duration
	// condenser makes the objects small that the controller keeps in memory.
	condenser snapshot.Condenser
}

// command returns the command with its flags.
func command() *cobra.Command {
	s := &settings{}
	c := &cobra.Command{
		Use:   "tandem-controller",
		Short: "Tandem's controller keeps running work on shared GPUs at the right size, and parks idle notebooks",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		Version: version.Get().String(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			if err := s.readArguments(); err != nil {
				return fmt.Errorf("--scheduler-config: %w", err)
			}
			klog.InfoS("Starting Tandem's controller", "version", version.Get().String(), "features", s.features)
			return s.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "file with the address of the API server and how to log in; empty in a pod of the cluster")
	f.StringSliceVar(&s.features, "features", usual, "what the controller does, of: "+strings.Join(features, ", "))
	f.StringVar(&s.schedulerConfig, "scheduler-config", "", "file with the KubeSchedulerConfiguration of the scheduler, by whose arguments the controller goes too; empty stands for their defaults")
	f.Float32Var(&s.qps, "kube-api-qps", 100, "the most requests to the API server in a second")
	f.IntVar(&s.burst, "kube-api-burst", 200, "the most requests to the API server at once")
	f.BoolVar(&s.leaderElect, "leader-elect", true, "let one of several processes work, the holder of the lease tandem-controller")
	f.StringVar(&s.leaderNamespace, "leader-elect-namespace", "tandem-system", "namespace of the lease")
	f.StringVar(&s.metricsAddress, "metrics-bind-address", ":8080", "address of the metrics at /metrics; 0 serves none")
	f.StringVar(&s.probesAt, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 serves none")
	e := &s.elasticity
	f.StringVar(&e.SchedulerName, "scheduler-name", v1alpha1.SchedulerName, "schedulerName of the pods for which elastic gangs make room")
	f.StringVar(&e.Elastic.Policy, "elastic-policy", elastic.DefaultPolicy, "how GPUs are divided among elastic gangs, one of: "+strings.Join(elastic.Policies(), ", "))
	f.DurationVar(&e.Every, "elastic-interval", 10*time.Second, "time between two decisions on the sizes of elastic gangs, 1s to 1h")
	f.DurationVar(&s.horizon, "elastic-horizon", elastic.DefaultHorizon*time.Second, "longest time within which a change of size must repay what it costs")
	f.IntVar(&e.Elastic.MaxMoves, "elastic-max-moves", elastic.DefaultMaxMoves, "changes of size of one gang within an hour, after which it no longer grows, 1 or more; a target remembers 16, so that more is no bound")
	f.DurationVar(&e.Notice, "elastic-notice", 5*time.Second, "time from the annotation "+v1alpha1.AnnotationLeaving+" on a member that is to leave to its eviction, 0s to 1h")
	f.DurationVar(&e.AdmitWithin, "elastic-admit-within", 2*time.Minute, "time after which a target goes back to what runs, where the scheduler finds no places for more")
	i := &s.fleets
	f.DurationVar(&i.Every, "inference-interval", 15*time.Second, "time between two decisions on the sizes and weights of inference fleets, 1s to 1h")
	f.DurationVar(&i.Patience, "inference-patience", 0, "how long fewer replicas of an inference fleet must be enough before some leave, 1m to 24h; "+
		"0s stands for eight times the longest load time of the fleet, from 5 to 30 minutes")
	f.StringSliceVar(&i.Hosts, "inference-prometheus", nil, "hosts that fleets may name in prometheusURL, as there: NAME or NAME:PORT; none is any")
	n := &s.notebooks
	f.DurationVar(&n.Every, "notebooks-interval", 30*time.Second, "time between two looks at a notebook that may be parked, 1s to 10m")
	f.DurationVar(&n.Notice, "notebooks-notice", 10*time.Minute, "time from the warning to the owner of an idle notebook to its end, 10s to 24h; "+
		"of a notebook with a shorter idle time it is half of that")
	p := &s.placeable
	f.DurationVar(&p.Every, "placeable-interval", 2*time.Second, "time between two looks at the Workloads of Kueue that wait for an answer, 1s to 10m")
	f.DurationVar(&p.Patience, "placeable-patience", time.Minute, "how long a Workload of Kueue keeps its quota while other pods use what it needs, 0s to 24h; "+
		"then others may have the quota")
	return c
}

// readArguments reads the arguments of the scheduler's plugins that features go by. Without such a feature it reads no file, so that none is needed.
func (s *settings) readArguments() error {
	if !slices.Contains(s.features, featureElastic) && !slices.Contains(s.features, featurePlaceable) {
		return nil
	}
	a, err := arguments.Defaults()
	if s.schedulerConfig != "" {
		var raw []byte
		if raw, err = os.ReadFile(s.schedulerConfig); err == nil {
			a, err = arguments.Read(raw)
		}
	}
	if err != nil {
		return err
	}
	if s.placeable.Curves, err = workloads.GivenCurves(a.Share); err != nil {
		return fmt.Errorf("throughputs of GPUShare: %w", err)
	}
	if s.placeable.Preemption = a.Preempt; a.Preempt == nil && a.Stock { // it guards no pod
		s.placeable.Preemption = &config.GPUPreemptArgs{Mode: config.PreemptionEnabled}
	}
	if a.Gang != nil {
		s.elasticity.Preferred = a.Gang.PreferredTopology
	}
	return nil
}

// check returns an error that names the flag and its legal values.
func (s *settings) check() error {
	if len(s.features) == 0 {
		return fmt.Errorf("--features: no feature is on, legal are: %s", strings.Join(features, ", "))
	}
	for _, name := range s.features {
		if !slices.Contains(features, name) {
			return fmt.Errorf("--features: unknown feature %q, legal are: %s", name, strings.Join(features, ", "))
		}
	}
	e := &s.elasticity
	e.Elastic.Horizon = s.horizon.Seconds()
	for _, v := range []struct {
		flag  string
		legal bool
		value any
		want  string
	}{
		{"scheduler-name", e.SchedulerName != "", e.SchedulerName, "the schedulerName of pods"},
		{"elastic-policy", slices.Contains(elastic.Policies(), e.Elastic.Policy), e.Elastic.Policy, "one of " + strings.Join(elastic.Policies(), ", ")},
		{"elastic-interval", e.Every >= time.Second && e.Every <= time.Hour, e.Every, "1s to 1h"},
		{"elastic-horizon", s.horizon > 0 && s.horizon <= 30*24*time.Hour, s.horizon, "above 0s to 720h"},
		{"elastic-max-moves", e.Elastic.MaxMoves >= 1, e.Elastic.MaxMoves, "1 or more"},
		{"elastic-notice", e.Notice >= 0 && e.Notice <= time.Hour, e.Notice, "0s to 1h"},
		{"elastic-admit-within", e.AdmitWithin > 0, e.AdmitWithin, "above 0s"},
		{"inference-interval", s.fleets.Every >= time.Second && s.fleets.Every <= time.Hour, s.fleets.Every, "1s to 1h"},
		{"inference-patience", s.fleets.Patience == 0 || s.fleets.Patience >= time.Minute && s.fleets.Patience <= 24*time.Hour, s.fleets.Patience, "0s, and 1m to 24h"},
		{"notebooks-interval", s.notebooks.Every >= notebooks.LeastEvery && s.notebooks.Every <= notebooks.MostEvery, s.notebooks.Every, "1s to 10m"},
		{"notebooks-notice", s.notebooks.Notice >= notebooks.LeastNotice && s.notebooks.Notice <= notebooks.MostNotice, s.notebooks.Notice, "10s to 24h"},
		{"placeable-interval", s.placeable.Every >= placeable.LeastEvery && s.placeable.Every <= placeable.MostEvery, s.placeable.Every, "1s to 10m"},
		{"placeable-patience", s.placeable.Patience >= 0 && s.placeable.Patience <= placeable.MostPatience, s.placeable.Patience, "0s to 24h"},
		{"kube-api-qps", s.qps > 0, s.qps, "above 0"},
		{"kube-api-burst", s.burst >= 1, s.burst, "1 or more"},
	} {
		if !v.legal {
			return fmt.Errorf("--%s: %v is not legal, legal is %s", v.flag, v.value, v.want)
		}
	}
	return nil
}
