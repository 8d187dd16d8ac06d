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

// asksEvery is the pause between two looks what the API server has, where it is set, and waitsFor how long it may refuse what the
// scheduler reads.
const (
	asksEvery = "TANDEM_TEST_ASKS_EVERY"
	waitsFor  = "TANDEM_TEST_WAITS_FOR"
)

func TestMain(m *testing.M) {
	if os.Getenv(asScheduler) == "" {
		os.Exit(m.Run())
	}
	gates := newGates()
	caches := newCaches(gates.end)
	if every, err := time.ParseDuration(os.Getenv(asksEvery)); err == nil {
		gates.every = every
	}
	if bound, err := time.ParseDuration(os.Getenv(waitsFor)); err == nil {
		caches.look, caches.say, caches.bound = bound/20, bound/10, bound
	}
	os.Exit(gates.exitCode(cli.Run(command(gates, caches))))
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

// apiServer has no API but those that it is given, as "group/version resource". It says what it has and has no objects.
type apiServer struct {
	*httptest.Server
	served sync.Map
	// asked counts the questions what there is.
	asked atomic.Int64
}

const (
	native = "scheduling.k8s.io/v1beta1 podgroups"
	stable = "scheduling.k8s.io/v1 podgroups"
	xk8s   = "scheduling.x-k8s.io/v1alpha1 podgroups"
	rules  = "resource.k8s.io/v1 devicetaintrules"
)

// group returns the group and version of a resource.
func group(resource string) string {
	version, _, _ := strings.Cut(resource, " ")
	return version
}

// needed is what every API server of a scheduler has.
func needed() []string {
	return []string{"resource.k8s.io/v1 deviceclasses", "resource.k8s.io/v1 resourceclaims", "resource.k8s.io/v1 resourceslices"}
}

// newAPIServer serves what is needed and the given resources.
func newAPIServer(t *testing.T, resources ...string) *apiServer {
	return newBareAPIServer(t, append(needed(), resources...)...)
}

func newBareAPIServer(t *testing.T, resources ...string) *apiServer {
	s := &apiServer{}
	for _, resource := range resources {
		s.served.Store(resource, true)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version, found := strings.TrimPrefix(r.URL.Path, "/apis/"), []string(nil)
		s.served.Range(func(key, _ any) bool {
			if at, resource, _ := strings.Cut(key.(string), " "); at == version {
				found = append(found, fmt.Sprintf(`{"name": %q, "kind": "K", "namespaced": true}`, resource))
			}
			return true
		})
		if version == group(native) || version == group(xk8s) || version == group(rules) {
			s.asked.Add(1)
		}
		if len(found) == 0 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": %q, "resources": [%s]}`, version, strings.Join(found, ", "))
	}))
	t.Cleanup(s.Close)
	return s
}

// A configuration that is wrong ends the scheduler before it asks the API server for anything, with the path of the field.
func TestBadConfiguration(t *testing.T) {
	profile := func(lines string) string {
		return "profiles:\n- schedulerName: tandem-scheduler\n  plugins: {multiPoint: {enabled: [{name: GPUShare, weight: 2000}]}}\n" + lines
	}
	args := func(args string) string { return profile("  pluginConfig: [{name: GPUShare, args: " + args + "}]\n") }
	gang := func(args string) string {
		return strings.ReplaceAll(profile("  pluginConfig: [{name: GPUGang, args: "+args+"}]\n"), "[{name: GPUShare, weight: 2000}]", "[{name: GPUGang}, {name: GPUShare, weight: 2000}]")
	}
	preempt := func(args string) string {
		return strings.ReplaceAll(profile("  pluginConfig: [{name: GPUPreempt, args: "+args+"}]\n"), "[{name: GPUShare, weight: 2000}]", "[{name: GPUPreempt}, {name: GPUShare, weight: 2000}]")
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
			`pluginConfig[GPUGang].args.drain: Unsupported value: "Never": supported values: "Bounded", "Disabled", "Enabled"`,
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
		{"a half-life in days", args("{mixHalfLife: 1d}"),
			[]string{`profiles[0].pluginConfig[0].args.mixHalfLife: "1d" is not legal`, "for example 24h"}, false},
		{"an amount that is none", args("{typicalRequests: [{cpu: many}]}"),
			[]string{`profiles[0].pluginConfig[0].args.typicalRequests[0].cpu: "many" is not legal`}, false},
		{"a duration outside of the plugins", "leaderElection: {leaseDuration: 1d}\n" + profile(""),
			[]string{`leaderElection.leaseDuration: "1d" is not legal`}, false},
		{"a weight of one", strings.ReplaceAll(profile(""), "weight: 2000", "weight: 1"),
			[]string{"profiles[0].plugins: GPUShare has the weight 1, and the other plugins can add up to", "2000 under multiPoint"}, false},
		{"no weight", strings.ReplaceAll(profile(""), ", weight: 2000", ""), []string{"GPUShare has the weight 1"}, false},
		{"no weight where it scores", strings.ReplaceAll(profile(""), "{multiPoint", "{score: {enabled: [{name: GPUShare}]}, multiPoint"),
			[]string{"GPUShare has the weight 1"}, false},
		{"bind timeout without a unit", args("{bindTimeout: 30}"),
			[]string{"profiles[0].pluginConfig[0].args.bindTimeout: 30 is not legal", "for example 24h or 1m30s"}, false},
		{"a model with a blank", args("{modelCosts: [{model: NVIDIA A100, cost: 1}], typicalRequests: [{vgpu: 1, weight: 1, models: [\"T4 \"]}]}"), []string{
			`pluginConfig[GPUShare].args.modelCosts[0].model: Invalid value: "NVIDIA A100": no GPUNode has such a model`,
			`pluginConfig[GPUShare].args.typicalRequests[0].models[0]: Invalid value: "T4 ": no GPUNode has such a model`,
		}, false},
		{"wrong kind", args("{apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeAffinityArgs}"),
			[]string{"args for plugin GPUShare were not of type GPUShareArgs.kubescheduler.config.k8s.io"}, false},
		{"unknown field of the configuration", profile("  polcy: x\n"), []string{`unknown field "profiles[0].polcy"`}, false},
		{"bad value of the configuration", profile("  percentageOfNodesToScore: 101\n"),
			[]string{"profiles[0].percentageOfNodesToScore", "101"}, false},
		{"unknown plugin", strings.ReplaceAll(profile(""), "name: GPUShare", "name: GPUShear"), []string{"GPUShear"}, true},
		{"two profiles with the plugin", profile("") + "- schedulerName: second\n  plugins: {multiPoint: {enabled: [{name: GPUShare, weight: 2000}]}}\n",
			[]string{"start plugin GPUShare: profiles: more than one enables it"}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := newAPIServer(t)
			output, err := run(t, server.URL, test.config)
			if asked := server.asked.Load(); asked > 0 && !test.asks {
				t.Errorf("the API server was asked %d times what it has", asked)
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

// patience is what only a hang reaches, on whatever machine.
const patience = 5 * time.Minute

// run starts the scheduler with a configuration and flags and returns what it printed until it ended.
func run(t *testing.T, server, config string, flags ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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

// --kubeconfig beside a configuration that says otherwise is refused: upstream passes over it.
func TestKubeconfigBesideConfiguration(t *testing.T) {
	output, err := run(t, "http://127.0.0.1:1", profile, "--kubeconfig=/nowhere/else")
	if err == nil || !strings.Contains(output, "--kubeconfig: /nowhere/else has no effect beside --config, whose clientConnection.kubeconfig is ") {
		t.Errorf("%v, %s", err, output)
	}
}
