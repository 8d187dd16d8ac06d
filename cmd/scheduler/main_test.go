package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/component-base/cli"
)

// asScheduler makes the test's own binary behave as the scheduler.
const asScheduler = "TANDEM_TEST_AS_SCHEDULER"

// asksEvery is the pause between two looks for absent APIs, where it is set.
const asksEvery = "TANDEM_TEST_ASKS_EVERY"

func TestMain(m *testing.M) {
	if os.Getenv(asScheduler) == "" {
		os.Exit(m.Run())
	}
	groups := newPodGroups()
	if every, err := time.ParseDuration(os.Getenv(asksEvery)); err == nil {
		groups.every = every
	}
	os.Exit(groups.exitCode(cli.Run(command(groups))))
}

// kubeconfig of a server.
const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: one, cluster: {server: "%s"}}]
users: [{name: one, user: {token: none}}]
contexts: [{name: one, context: {cluster: one, user: one}}]
current-context: one
`

// apiServer has no API but those that it is given, by group and version.
type apiServer struct {
	*httptest.Server
	served sync.Map
	// asked counts the questions which PodGroups there are.
	asked atomic.Int64
}

const (
	native = "scheduling.k8s.io/v1beta1"
	xk8s   = "scheduling.x-k8s.io/v1alpha1"
)

// newAPIServer serves podgroups of the given versions.
func newAPIServer(t *testing.T, versions ...string) *apiServer {
	s := &apiServer{}
	for _, version := range versions {
		s.served.Store(version, true)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version := strings.TrimPrefix(r.URL.Path, "/apis/")
		if version == native || version == xk8s {
			s.asked.Add(1)
		}
		if _, ok := s.served.Load(version); !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": %q, "resources": [{"name": "podgroups", "kind": "PodGroup", "namespaced": true}]}`, version)
	}))
	t.Cleanup(s.Close)
	return s
}

// A configuration that is wrong ends the scheduler before it asks the API server for anything, with the path of the field.
func TestBadConfiguration(t *testing.T) {
	profile := func(lines string) string {
		return "profiles:\n- schedulerName: tandem-scheduler\n  plugins: {multiPoint: {enabled: [{name: GPUShare}]}}\n" + lines
	}
	args := func(args string) string { return profile("  pluginConfig: [{name: GPUShare, args: " + args + "}]\n") }
	gang := func(args string) string {
		return strings.ReplaceAll(profile("  pluginConfig: [{name: GPUGang, args: "+args+"}]\n"), "[{name: GPUShare}]", "[{name: GPUGang}, {name: GPUShare}]")
	}
	preempt := func(args string) string {
		return strings.ReplaceAll(profile("  pluginConfig: [{name: GPUPreempt, args: "+args+"}]\n"), "[{name: GPUShare}]", "[{name: GPUPreempt}, {name: GPUShare}]")
	}
	tests := []struct {
		name   string
		config string
		want   []string
		// asks: the scheduler sees only then that it cannot start when it makes its plugins.
		asks bool
	}{
		{"unknown field of the arguments of gangs", gang("{drian: Enabled}"), []string{"profiles[0].pluginConfig[0]", "plugin GPUGang", `unknown field "drian"`}, false},
		{"deadline out of range", gang("{placementDeadline: 16m}"),
			[]string{`pluginConfig[GPUGang].args.placementDeadline: Invalid value: "16m0s": must be from 1s to 15m`}, false},
		{"all arguments of gangs are wrong", gang("{drainAfter: 25h, drain: Never, maxDomains: 0, preferredTopology: [nvlink, rack=3, nvlink]}"), []string{
			`pluginConfig[GPUGang].args.drainAfter: Invalid value: "25h0m0s": must be from 0s to 24h`,
			`pluginConfig[GPUGang].args.drain: Unsupported value: "Never": supported values: "Disabled", "Enabled"`,
			`pluginConfig[GPUGang].args.maxDomains: Invalid value: 0: must be from 1 to 1000`,
			`pluginConfig[GPUGang].args.preferredTopology[1]: Invalid value: "rack=3": must be the key of a node label, or nvlink`,
			`pluginConfig[GPUGang].args.preferredTopology[2]: Duplicate value: "nvlink"`,
		}, false},
		{"unknown field of the arguments of preemption", preempt("{dryRun: true}"), []string{"profiles[0].pluginConfig[0]", "plugin GPUPreempt", `unknown field "dryRun"`}, false},
		{"all arguments of preemption are wrong", preempt("{mode: Never, evictionsPerMinute: -1, minimumRuntime: -1s, minimumRuntimes: [{priorityClassName: a}, {priorityClassName: a, runtime: 721h}], " +
			"protected: {namespaces: [Team], labelSelector: {}}, podDisruptionBudgets: Never, maxSteps: 0}"), []string{
			`pluginConfig[GPUPreempt].args.mode: Unsupported value: "Never": supported values: "Disabled", "DryRun", "Enabled"`,
			`pluginConfig[GPUPreempt].args.evictionsPerMinute: Invalid value: -1: must be from 1 to 100000, or 0 for no bound`,
			`pluginConfig[GPUPreempt].args.minimumRuntime: Invalid value: "-1s": must be from 0s to 720h`,
			`pluginConfig[GPUPreempt].args.minimumRuntimes[0].runtime: Required value: must be from 0s to 720h`,
			`pluginConfig[GPUPreempt].args.minimumRuntimes[1].priorityClassName: Duplicate value: "a"`,
			`pluginConfig[GPUPreempt].args.minimumRuntimes[1].runtime: Invalid value: "721h0m0s": must be from 0s to 720h`,
			`pluginConfig[GPUPreempt].args.protected.namespaces[0]: Invalid value: "Team"`,
			`pluginConfig[GPUPreempt].args.protected.labelSelector: Invalid value: "{}": must have a label or an expression`,
			`pluginConfig[GPUPreempt].args.podDisruptionBudgets: Unsupported value: "Never": supported values: "Preferred", "Required"`,
			`pluginConfig[GPUPreempt].args.maxSteps: Invalid value: 0: must be from 1 to 1000000`,
		}, false},
		{"preemption by both plugins", preempt("{}"),
			[]string{"profiles[0].plugins.postFilter: GPUPreempt and DefaultPreemption are enabled, and the second would evict whom the first guards: disable DefaultPreemption under multiPoint"}, false},
		{"preemption of groups by both plugins", strings.ReplaceAll(preempt("{}"), "{multiPoint:", "{postFilter: {disabled: [{name: DefaultPreemption}]}, multiPoint:"),
			[]string{"profiles[0].plugins.podGroupPostFilter: GPUPreempt and DefaultPreemption are enabled"}, false},
		{"preemption by both plugins where one is named", strings.ReplaceAll(preempt("{}"), "{multiPoint: {", "{postFilter: {enabled: [{name: DefaultPreemption}]}, multiPoint: {disabled: [{name: DefaultPreemption}], "),
			[]string{"profiles[0].plugins.postFilter: GPUPreempt and DefaultPreemption are enabled"}, false},
		{"unknown field of the arguments", args("{polcy: spread}"),
			[]string{"profiles[0].pluginConfig[0]", "plugin GPUShare", `unknown field "polcy"`}, false},
		{"unknown policy", args("{policy: fullest}"),
			[]string{`pluginConfig[GPUShare].args.policy: Unsupported value: "fullest": supported values: "bestfit", "clustering"`}, false},
		{"empty policy", args(`{policy: ""}`), []string{`pluginConfig[GPUShare].args.policy: Unsupported value: ""`}, false},
		{"bind timeout out of range", args("{bindTimeout: 1h}"),
			[]string{`pluginConfig[GPUShare].args.bindTimeout: Invalid value: "1h0m0s": must be from 1s to 5m`}, false},
		{"bind timeout without a unit", args("{bindTimeout: 30}"), []string{"plugin GPUShare", "bindTimeout"}, false},
		{"wrong kind", args("{apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeAffinityArgs}"),
			[]string{"args for plugin GPUShare were not of type GPUShareArgs.kubescheduler.config.k8s.io"}, false},
		{"unknown field of the configuration", profile("  polcy: x\n"), []string{`unknown field "profiles[0].polcy"`}, false},
		{"bad value of the configuration", profile("  percentageOfNodesToScore: 101\n"),
			[]string{"profiles[0].percentageOfNodesToScore", "101"}, false},
		{"unknown plugin", strings.ReplaceAll(profile(""), "name: GPUShare", "name: GPUShear"), []string{"GPUShear"}, true},
		{"two profiles with the plugin", profile("") + "- schedulerName: second\n  plugins: {multiPoint: {enabled: [{name: GPUShare}]}}\n",
			[]string{"start plugin GPUShare: profiles: more than one enables it"}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := newAPIServer(t)
			output, err := run(t, server.URL, test.config)
			if asked := server.asked.Load(); asked > 0 && !test.asks {
				t.Errorf("the API server was asked %d times which PodGroups it has", asked)
			}
			if err == nil {
				t.Fatalf("the scheduler ended with success and printed:\n%s", output)
			}
			for _, want := range test.want {
				if !strings.Contains(strings.ReplaceAll(output, `\"`, `"`), want) {
					t.Errorf("the output does not contain %q:\n%s", want, output)
				}
			}
		})
	}
}

// run starts the scheduler with a configuration and flags and returns what it printed until it ended.
func run(t *testing.T, server, config string, flags ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	output, err := scheduler(ctx, t, server, config, flags...).CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("the scheduler did not end:\n%s", output)
	}
	return string(output), err
}

// scheduler returns the scheduler as a command.
func scheduler(ctx context.Context, t *testing.T, server, config string, flags ...string) *exec.Cmd {
	t.Helper()
	config = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: {leaderElect: false}\n" + config +
		"clientConnection: {kubeconfig: " + write(t, "kubeconfig", fmt.Sprintf(kubeconfig, server)) + "}\n"
	flags = append(flags, "--config="+write(t, "config.yaml", config), "--secure-port=0", "--authentication-skip-lookup")
	cmd := exec.CommandContext(ctx, os.Args[0], flags...)
	cmd.Env = append(os.Environ(), asScheduler+"=1")
	return cmd
}

// write writes a file that the test removes.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
