package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/cluster/served"
	"github.com/tandem-gpu/tandem/test/must"
)

// newGate returns a gate with the features of native PodGroups as in Kubernetes, as flags set them.
func newGate(t *testing.T, flags string) featuregate.MutableVersionedFeatureGate {
	t.Helper()
	gate := featuregate.NewVersionedFeatureGate(version.MustParse("1.37"))
	beta := featuregate.VersionedSpecs{{Version: version.MustParse("1.37"), PreRelease: featuregate.Beta}}
	alpha := featuregate.VersionedSpecs{{Version: version.MustParse("1.37"), PreRelease: featuregate.Alpha}}
	must.OK(t, gate.AddVersioned(map[featuregate.Feature]featuregate.VersionedSpecs{
		features.GenericWorkload: beta, features.TopologyAwareWorkloadScheduling: alpha, features.CompositePodGroup: alpha,
		features.SchedulerPreQueueingHints: alpha,
		features.DRADeviceTaintRules:       {{Version: version.MustParse("1.37"), Default: true, PreRelease: featuregate.GA}},
	}))
	must.OK(t, gate.AddDependencies(map[featuregate.Feature][]featuregate.Feature{
		features.TopologyAwareWorkloadScheduling: {features.GenericWorkload},
		features.CompositePodGroup:               {features.GenericWorkload, features.TopologyAwareWorkloadScheduling},
	}))
	must.OK(t, gate.Set(flags))
	return gate
}

func TestSetGates(t *testing.T) {
	const groups, composites, taints = features.GenericWorkload, features.CompositePodGroup, features.DRADeviceTaintRules
	beta, taintRules := membership.NativePodGroups, schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "devicetaintrules"}
	tests := []struct {
		// flags as set, and what they give the gates.
		flags string
		given map[featuregate.Feature]string
		has   served.Set
		// want are the gates that are on.
		want []featuregate.Feature
		err  string
	}{
		{has: served.Set{}},
		{has: served.Set{membership.XK8sPodGroups: true}},
		{has: served.Set{membership.StablePodGroups: true, taintRules: true}, want: []featuregate.Feature{taints}},
		{has: served.Set{beta: true}, want: []featuregate.Feature{groups}},
		{has: served.Set{beta: true, membership.StablePodGroups: true, taintRules: true}, want: []featuregate.Feature{groups, taints}},
		{flags: "GenericWorkload=false", given: map[featuregate.Feature]string{groups: "false"}, has: served.Set{beta: true}},
		{flags: "GenericWorkload=false", given: map[featuregate.Feature]string{groups: "false"}, has: served.Set{}},
		{
			flags: "GenericWorkload=true", given: map[featuregate.Feature]string{groups: "true"}, has: served.Set{membership.XK8sPodGroups: true, taintRules: true},
			want: []featuregate.Feature{groups, taints},
			err: "--feature-gates: GenericWorkload=true: the API server does not serve podgroups of scheduling.k8s.io/v1beta1, and the scheduler would wait for them for ever: " +
				"start kube-apiserver with --feature-gates=GenericWorkload=true --runtime-config=scheduling.k8s.io/v1beta1=true, or leave the gate out: the scheduler sets it by what is served",
		},
		{
			flags: "DRADeviceTaintRules=true", given: map[featuregate.Feature]string{taints: "true"}, has: served.Set{}, want: []featuregate.Feature{taints},
			err: "--feature-gates: DRADeviceTaintRules=true: the API server does not serve devicetaintrules of resource.k8s.io/v1, and the scheduler would wait for them for ever: " +
				"it is served from Kubernetes 1.37 on, or leave the gate out: the scheduler sets it by what is served",
		},
		{flags: "DRADeviceTaintRules=false", given: map[featuregate.Feature]string{taints: "false"}, has: served.Set{taintRules: true}},
		{flags: "AllBeta=true", has: served.Set{}},
		{flags: "AllBeta=true,AllAlpha=true", has: served.Set{beta: true}, want: []featuregate.Feature{groups}},
		{
			flags: "AllBeta=true,AllAlpha=true", has: served.Set{}, want: []featuregate.Feature{groups, composites, taints},
			err: "set feature gates map[CompositePodGroup:false DRADeviceTaintRules:false GenericWorkload:false], as the API server serves what they read, or does not: " +
				"TopologyAwareWorkloadScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
		},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%s/%+v", test.flags, test.has), func(t *testing.T) {
			gate, said := newGate(t, test.flags), ""
			if err := setGates(gate, func(f featuregate.Feature) string { return test.given[f] }, test.has); err != nil {
				said = err.Error()
			}
			if diff := cmp.Diff(test.err, said); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			var on []featuregate.Feature
			for _, f := range []featuregate.Feature{groups, composites, taints} {
				if gate.Enabled(f) {
					on = append(on, f)
				}
			}
			if diff := cmp.Diff(test.want, on); diff != "" {
				t.Errorf("gates that are on (-want +got):\n%s", diff)
			}
		})
	}
}

// The framework asks which pods a departure concerns, unless the administrator does not want it.
func TestPreferredGates(t *testing.T) {
	const hints = features.SchedulerPreQueueingHints
	for _, test := range []struct {
		flags, given string
		want         bool
	}{
		{want: true},
		{flags: string(hints) + "=false", given: "false"},
		{flags: string(hints) + "=true", given: "true", want: true},
	} {
		gate := newGate(t, test.flags)
		must.OK(t, preferGates(gate, func(f featuregate.Feature) string {
			if f != hints {
				return ""
			}
			return test.given
		}))
		if got := gate.Enabled(hints); got != test.want {
			t.Errorf("with the flag %q the gate is %v, want %v", test.flags, got, test.want)
		}
	}
}

// The scheduler of Kubernetes has these gates, and those that are switched off by what is served can be.
func TestGatesExist(t *testing.T) {
	known := utilfeature.DefaultMutableFeatureGate.GetAll()
	for _, o := range optional() {
		if spec, ok := known[o.gate]; !ok || spec.LockToDefault {
			t.Errorf("gate %s: known %v, locked %v", o.gate, ok, spec.LockToDefault)
		}
	}
}

func TestCheckRequired(t *testing.T) {
	has := served.Set{}
	for _, r := range required() {
		has[r] = true
	}
	must.OK(t, checkRequired(has))
	has[required()[1]] = false
	const want = "the API server does not serve resourceclaims of resource.k8s.io/v1, and this scheduler, which is built on Kubernetes 1.37, would wait for them for ever: " +
		"it needs an API server of Kubernetes 1.34 or later that serves resource.k8s.io/v1"
	if err := checkRequired(has); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestGiven(t *testing.T) {
	for _, test := range []struct {
		flags []string
		want  string
	}{
		{nil, ""},
		{[]string{"--feature-gates=GenericWorkload=true"}, "true"},
		{[]string{"--feature-gates=kube:GenericWorkload=false"}, "false"},
		{[]string{"--feature-gates=AllBeta=true,GenericWorkloadX=true"}, ""},
		{[]string{"--feature-gates=A=true, GenericWorkload = T"}, "T"},
		{[]string{"--feature-gates=GenericWorkload=true,B=true", "--feature-gates=GenericWorkload=false"}, "false"},
	} {
		c, gates := &cobra.Command{}, map[string][]string{}
		c.Flags().Var(cliflag.NewColonSeparatedMultimapStringStringAllowDefaultEmptyKey(&gates), "feature-gates", "")
		must.OK(t, c.ParseFlags(test.flags))
		if got := given(c, features.GenericWorkload); got != test.want {
			t.Errorf("%q give %q, want %q", test.flags, got, test.want)
		}
	}
	if command(newGates(), newCaches(nil)).Flags().Lookup("feature-gates").Value.Type() != "colonSeparatedMultimapStringString" {
		t.Error("the scheduler reads the flag in another way")
	}
}

// The connection is that of the scheduler itself.
func TestConnectionOf(t *testing.T) {
	file := func(server string) string { return write(t, "kubeconfig", fmt.Sprintf(kubeconfig, server)) }
	config := func(lines string) string {
		return write(t, "config.yaml", "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+lines)
	}
	a, b := file("http://a.test:1"), file("http://b.test:2")
	tests := []struct {
		name  string
		flags []string
		// want is the server, "" where the scheduler cannot start.
		want string
	}{
		{"neither flags nor a cluster around", nil, ""},
		{"kubeconfig", []string{"--kubeconfig=" + a}, "http://a.test:1"},
		{"a kubeconfig that does not exist", []string{"--kubeconfig=" + a + "x"}, ""},
		{"master alone", []string{"--master=http://c.test:3"}, "http://c.test:3"},
		{"master over kubeconfig", []string{"--kubeconfig=" + a, "--master=http://c.test:3"}, "http://c.test:3"},
		{"configuration over kubeconfig", []string{"--config=" + config("clientConnection: {kubeconfig: "+b+"}"), "--kubeconfig=" + a}, "http://b.test:2"},
		{"a configuration without one, where the flag does not count", []string{"--config=" + config(""), "--kubeconfig=" + a}, ""},
		{"a configuration that is no configuration", []string{"--config=" + a}, ""},
		{"a configuration that is illegal", []string{"--config=" + config("parallelism: 0\nclientConnection: {kubeconfig: "+b+"}"), "--kubeconfig=" + a}, ""},
		{"legal arguments", []string{"--config=" + config("clientConnection: {kubeconfig: "+b+"}\nprofiles:\n- schedulerName: x\n  pluginConfig: [{name: GPUGang, args: {maxDomains: 1}}, {name: GPUShare}]")}, "http://b.test:2"},
		{"illegal arguments of GPUGang", []string{"--config=" + config("clientConnection: {kubeconfig: "+b+"}\nprofiles:\n- schedulerName: x\n  pluginConfig: [{name: GPUGang, args: {maxDomains: 0}}]")}, ""},
		{"illegal arguments of GPUShare", []string{"--config=" + config("clientConnection: {kubeconfig: "+b+"}\nprofiles:\n- schedulerName: x\n  pluginConfig: [{name: GPUShare, args: {policy: x}}]")}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			c := command(newGates(), newCaches(nil))
			must.OK(t, c.ParseFlags(test.flags))
			connection, ok := connectionOf(c)
			switch {
			case ok != (test.want != ""):
				t.Errorf("can start: %v", ok)
			case ok && connection.Host != test.want:
				t.Errorf("it asks %s, want %s", connection.Host, test.want)
			case ok && connection.Timeout != askTimeout:
				t.Errorf("a question may take %v", connection.Timeout)
			}
		})
	}
}

// profile has the plugins that the gate does not decide about.
const profile = "profiles:\n- schedulerName: tandem-scheduler\n  plugins: {multiPoint: {enabled: [{name: GPUShare, weight: 2000}]}}\n"

// The scheduler writes its configuration with the plugin of native gangs exactly if the gate is on.
func TestGateFollowsTheAPIServer(t *testing.T) {
	tests := []struct {
		name   string
		served []string
		flags  []string
		want   bool
		// fails is what the scheduler says where it does not start.
		fails string
	}{
		{name: "neither is served"},
		{name: "that of the scheduler plugins is served", served: []string{xk8s}},
		{name: "that of Kubernetes is served", served: []string{native}, want: true},
		{name: "that of Kubernetes 1.38 is served", served: []string{stable}},
		{name: "both are served", served: []string{native, xk8s}, want: true},
		{name: "served and given on", served: []string{native}, flags: []string{"--feature-gates=GenericWorkload=true"}, want: true},
		{name: "served and given off", served: []string{native}, flags: []string{"--feature-gates=GenericWorkload=false"}},
		{
			name: "given on and not served", flags: []string{"--feature-gates=GenericWorkload=true"},
			fails: "--feature-gates: GenericWorkload=true: the API server does not serve podgroups of scheduling.k8s.io/v1beta1",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "written.yaml")
			output, err := run(t, newAPIServer(t, test.served...).URL, profile, append(test.flags, "--write-config-to="+file)...)
			if test.fails != "" {
				if err == nil || !strings.Contains(output, test.fails) {
					t.Errorf("%v, want %q:\n%s", err, test.fails, output)
				}
				return
			}
			written, errRead := os.ReadFile(file)
			if err != nil || errRead != nil {
				t.Fatalf("%v, %v:\n%s", err, errRead, output)
			}
			if got := strings.Contains(string(written), "name: GangScheduling"); got != test.want {
				t.Errorf("the plugin of native gangs is enabled: %v\n%s", got, output)
			}
		})
	}
}

// A server that does not answer is asked for a bounded time; then the scheduler fails with the reason.
func TestNoAPIServer(t *testing.T) {
	gates := newGates()
	gates.gate = newGate(t, "")
	tries := 0
	// The pauses double up to four seconds, and end the wait after eight. A machine may take 16 for the first refusal.
	gates.patience = served.Patience{Within: 16 * time.Second, First: time.Millisecond, Most: time.Hour, Note: func(error, time.Duration) { tries++ }}
	c := command(gates, newCaches(nil))
	must.OK(t, c.ParseFlags([]string{"--master=http://127.0.0.1:1"}))
	err := gates.start(c)
	if err == nil || !strings.HasPrefix(err.Error(), "find out what the API server serves: ask the API server ") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("error %v", err)
	}
	if tries < 2 {
		t.Errorf("%d tries", tries)
	}
}

// A scheduler that runs when an API appears, or goes, ends with success, so that it is started anew.
func TestRestart(t *testing.T) {
	for _, test := range []struct {
		name, before, after string
		leaderElection      string
	}{
		{name: "Kubernetes' own PodGroup appears", after: native},
		{name: "Kubernetes' own PodGroup appears in v1", after: stable},
		{name: "the scheduler plugins' PodGroup appears", after: xk8s},
		{name: "DeviceTaintRule appears", after: rules},
		{name: "Kubernetes' own PodGroup goes", before: native},
		{name: "Kubernetes' own PodGroup appears with leader election", after: native, leaderElection: "true"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := newAPIServer(t)
			if test.before != "" {
				server.served.Store(test.before, true)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var output bytes.Buffer
			cmd := scheduler(ctx, t, server.URL, profile, "--leader-elect="+orFalse(test.leaderElection))
			cmd.Env = append(cmd.Env, asksEvery+"=50ms")
			cmd.Stdout, cmd.Stderr = &output, &output
			must.OK(t, cmd.Start())
			for before := server.asked.Load(); server.asked.Load() < before+20 && ctx.Err() == nil; {
				time.Sleep(10 * time.Millisecond)
			}
			if test.before != "" {
				server.served.Delete(test.before)
			} else {
				server.served.Store(test.after, true)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("the scheduler ended with %v:\n%s", err, &output)
			}
		})
	}
}

// orFalse returns the value of a flag, false where it has none.
func orFalse(value string) string {
	if value == "" {
		return "false"
	}
	return value
}

// An API server of before Kubernetes 1.34 lacks what the scheduler cannot do without: it says so at once.
func TestTooOldAnAPIServer(t *testing.T) {
	output, err := run(t, newBareAPIServer(t).URL, profile)
	const want = "the API server does not serve deviceclasses of resource.k8s.io/v1"
	if err == nil || !strings.Contains(output, want) {
		t.Errorf("%v, want %q:\n%s", err, want, output)
	}
}
