package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/controller/elasticity"
	"github.com/tandem-gpu/tandem/internal/controller/fleets"
	"github.com/tandem-gpu/tandem/internal/controller/notebooks"
	"github.com/tandem-gpu/tandem/internal/controller/placeable"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	configv1 "github.com/tandem-gpu/tandem/pkg/api/config/v1"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/test/must"
)

// noCluster is a kubeconfig that does not exist: with legal flags the command ends there.
const noCluster = "--kubeconfig=/nowhere/kubeconfig"

// refused returns why the command does not accept flags, "" where it does.
func refused(t *testing.T, flags ...string) string {
	t.Helper()
	c := command()
	c.SetArgs(append(flags, noCluster))
	err := c.ExecuteContext(t.Context())
	switch {
	case err == nil:
		t.Fatalf("the controller ran with %v", flags)
	case strings.HasPrefix(err.Error(), "--kubeconfig: "):
		return ""
	}
	return err.Error()
}

func TestCheck(t *testing.T) {
	const policies = "one of goodput, elastic-fifo, elastic-srjf, ffdl, elastic-kubeflow, dragon"
	for flag, want := range map[string]string{
		"--features=":                "--features: no feature is on, legal are: elastic, inference, notebooks, placeable, node-memory",
		"--features=elastic,weights": `--features: unknown feature "weights", legal are: elastic, inference, notebooks, placeable, node-memory`,
		"--scheduler-name=":          "--scheduler-name:  is not legal, legal is the schedulerName of pods",
		"--elastic-policy=":          "--elastic-policy:  is not legal, legal is " + policies,
		"--elastic-policy=random":    "--elastic-policy: random is not legal, legal is " + policies,
		"--elastic-interval=999ms":   "--elastic-interval: 999ms is not legal, legal is 1s to 1h",
		"--elastic-interval=1h0m1s":  "--elastic-interval: 1h0m1s is not legal, legal is 1s to 1h",
		"--elastic-horizon=0s":       "--elastic-horizon: 0s is not legal, legal is above 0s to 720h",
		"--elastic-horizon=720h0m1s": "--elastic-horizon: 720h0m1s is not legal, legal is above 0s to 720h",
		"--elastic-max-moves=0":      "--elastic-max-moves: 0 is not legal, legal is 1 or more",
		"--elastic-notice=-1s":       "--elastic-notice: -1s is not legal, legal is 0s to 1h",
		"--elastic-notice=61m":       "--elastic-notice: 1h1m0s is not legal, legal is 0s to 1h",
		"--elastic-admit-within=0s":  "--elastic-admit-within: 0s is not legal, legal is above 0s",
		"--kube-api-qps=0":           "--kube-api-qps: 0 is not legal, legal is above 0",
		"--kube-api-qps=NaN":         "--kube-api-qps: NaN is not legal, legal is above 0",
		"--kube-api-burst=0":         "--kube-api-burst: 0 is not legal, legal is 1 or more",
		"--inference-interval=999ms": "--inference-interval: 999ms is not legal, legal is 1s to 1h",
		"--inference-patience=59s":   "--inference-patience: 59s is not legal, legal is 0s, and 1m to 24h",
		"--inference-patience=25h":   "--inference-patience: 25h0m0s is not legal, legal is 0s, and 1m to 24h",
		"--inference-interval=1h":    "",
		"--inference-patience=1m":    "",
		"--features=inference":       "",
		"--notebooks-interval=999ms": "--notebooks-interval: 999ms is not legal, legal is 1s to 10m",
		"--notebooks-interval=11m":   "--notebooks-interval: 11m0s is not legal, legal is 1s to 10m",
		"--notebooks-notice=9s":      "--notebooks-notice: 9s is not legal, legal is 10s to 24h",
		"--notebooks-notice=25h":     "--notebooks-notice: 25h0m0s is not legal, legal is 10s to 24h",
		"--notebooks-interval=1s":    "",
		"--notebooks-notice=24h":     "",
		"--features=notebooks":       "",
		"--placeable-interval=999ms": "--placeable-interval: 999ms is not legal, legal is 1s to 10m",
		"--placeable-interval=11m":   "--placeable-interval: 11m0s is not legal, legal is 1s to 10m",
		"--placeable-patience=-1s":   "--placeable-patience: -1s is not legal, legal is 0s to 24h",
		"--placeable-patience=25h":   "--placeable-patience: 25h0m0s is not legal, legal is 0s to 24h",
		"--placeable-patience=0s":    "",
		"--features=placeable":       "",
		"--features=node-memory":     "",
		"--elastic-interval=1s":      "",
		"--elastic-interval=1h":      "",
		"--elastic-horizon=720h":     "",
		"--elastic-max-moves=1":      "",
		"--elastic-notice=0s":        "",
		"--elastic-notice=1h":        "",
		"--elastic-admit-within=1ns": "",
		"--kube-api-burst=1":         "",
		"--features=elastic":         "",
		"--elastic-policy=" + elastic.Policies()[len(elastic.Policies())-1]: "",
	} {
		got := refused(t, flag)
		if got != want {
			t.Errorf("%s: %q, want %q", flag, got, want)
		}
	}
}

// The values without any flag are legal, and they are those of package elastic.
func TestDefaults(t *testing.T) {
	if why := refused(t); why != "" {
		t.Error(why)
	}
	for name, want := range map[string]string{
		"features": "[elastic,inference,notebooks]", "scheduler-name": v1alpha1.SchedulerName, "leader-elect": "true", "leader-elect-namespace": "tandem-system",
		"elastic-policy": elastic.DefaultPolicy, "elastic-horizon": "2h0m0s", "elastic-max-moves": fmt.Sprint(elastic.DefaultMaxMoves),
		"elastic-interval": "10s", "elastic-notice": "5s", "elastic-admit-within": "2m0s",
		"inference-interval": "15s", "inference-patience": "0s", "inference-prometheus": "[]",
		"notebooks-interval": "30s", "notebooks-notice": "10m0s",
		"placeable-interval": "2s", "placeable-patience": "1m0s",
	} {
		if f := command().Flags().Lookup(name); f == nil || f.DefValue != want {
			t.Errorf("--%s: %+v, want %s", name, f, want)
		}
	}
}

// The features go by the arguments of the scheduler: those in its file, or their defaults.
func TestSchedulerConfig(t *testing.T) {
	write := func(lines string) string {
		file := filepath.Join(t.TempDir(), "config.yaml")
		must.OK(t, os.WriteFile(file, []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+lines), 0o600))
		return file
	}
	const enabled = "profiles:\n- plugins: {multiPoint: {enabled: [{name: GPUShare}, {name: GPUGang}, {name: GPUPreempt}]}}\n"
	const alone = "profiles:\n- plugins: {multiPoint: {enabled: [{name: GPUShare}]}}\n"
	for name, c := range map[string]struct {
		file, mode string
		preferred  []string
	}{
		"no file":       {"", config.PreemptionEnabled, configv1.DefaultPreferredTopology()},
		"no arguments":  {write(enabled), config.PreemptionEnabled, configv1.DefaultPreferredTopology()},
		"the deployed":  {"../../deploy/scheduler/config.yaml", config.PreemptionEnabled, configv1.DefaultPreferredTopology()},
		"arguments":     {write(enabled + "  pluginConfig: [{name: GPUPreempt, args: {mode: Disabled}}, {name: GPUGang, args: {preferredTopology: []}}]\n"), config.PreemptionDisabled, []string{}},
		"stock":         {write(alone), config.PreemptionEnabled, nil},
		"no preemption": {write(strings.Replace(alone, "}]}}", "}], disabled: [{name: DefaultPreemption}]}}", 1)), "", nil},
		"left over": {write(strings.Replace(alone, "}]}}", "}], disabled: [{name: DefaultPreemption}]}}", 1) +
			"  pluginConfig: [{name: GPUPreempt, args: {mode: Enabled}}, {name: GPUGang, args: {}}]\n"), "", nil},
		"not at postFilter": {write(strings.Replace(enabled, "}]}}", "}], disabled: [{name: DefaultPreemption}]}, postFilter: {disabled: [{name: GPUPreempt}]}}", 1)),
			"", configv1.DefaultPreferredTopology()},
		"shared arguments": {write("profiles:\n- schedulerName: cpus\n  pluginConfig: &shared [{name: GPUShare, args: {}}, {name: GPUPreempt, args: {mode: Disabled}}]\n" +
			"- schedulerName: gpus\n  pluginConfig: *shared\n  plugins: {multiPoint: {enabled: [{name: GPUShare}, {name: GPUPreempt}]}}\n"), config.PreemptionDisabled, nil},
	} {
		s := &settings{features: features, schedulerConfig: c.file}
		must.OK(t, s.readArguments())
		mode := ""
		if p := s.placeable.Preemption; p != nil {
			mode = p.Mode
		}
		if mode != c.mode || !slices.Equal(s.elasticity.Preferred, c.preferred) {
			t.Errorf("%s: mode %q, preferred %q", name, mode, s.elasticity.Preferred)
		}
	}
	without := &settings{features: []string{featureInference, featureNotebooks}, schedulerConfig: "/nowhere/config.yaml"}
	must.OK(t, without.readArguments()) // these go by no arguments
	curves := &settings{features: features, schedulerConfig: write(enabled + "  pluginConfig: [{name: GPUShare, args: {" +
		"modelCosts: [{model: A100, cost: 1}], throughputs: [{profile: bert, model: A100, share: 100, rate: 200}]}}]\n")}
	must.OK(t, curves.readArguments())
	if r := curves.placeable.Curves.Rates; !r.Has("bert", "A100") {
		t.Errorf("the curves of the arguments: %+v", r)
	}
	for want, file := range map[string]string{
		"no such file":            "/nowhere/config.yaml",
		"none enables GPUShare":   write(""),
		"GPUPreempt].args.mode":   write(enabled + "  pluginConfig: [{name: GPUPreempt, args: {mode: Perhaps}}]\n"),
		"unknown field \"modus\"": write(enabled + "  pluginConfig: [{name: GPUPreempt, args: {modus: Disabled}}]\n"),
	} {
		if got := refused(t, "--scheduler-config="+file); !strings.HasPrefix(got, "--scheduler-config: ") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The component node-memory adds its feature to those of the Deployment by a flag of its own.
func TestFeaturesAddUp(t *testing.T) {
	c := command()
	if err := c.ParseFlags([]string{"--features=elastic,notebooks", "--features=node-memory"}); err != nil {
		t.Fatal(err)
	}
	if got := c.Flags().Lookup("features").Value.String(); got != "[elastic,notebooks,node-memory]" {
		t.Errorf("the features are %s", got)
	}
}

// Package elastic counts in seconds.
func TestHorizon(t *testing.T) {
	s := &settings{
		features: features, qps: 1, burst: 1, horizon: 90 * time.Minute,
		elasticity: elasticity.Options{SchedulerName: "s", Every: time.Second, AdmitWithin: 1, Elastic: elastic.Config{Policy: elastic.DefaultPolicy, MaxMoves: 1}},
		fleets:     fleets.Options{Every: time.Second, Patience: time.Minute},
		notebooks:  notebooks.Options{Every: time.Second, Notice: time.Minute},
		placeable:  placeable.Options{Every: time.Second},
	}
	if err := s.check(); err != nil || s.elasticity.Elastic.Horizon != 5400 {
		t.Errorf("a horizon of %v seconds, %v", s.elasticity.Elastic.Horizon, err)
	}
}
