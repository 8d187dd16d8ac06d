package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asScheduler makes the test's own binary behave as the scheduler.
const asScheduler = "TANDEM_TEST_AS_SCHEDULER"

func TestMain(m *testing.M) {
	if os.Getenv(asScheduler) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A configuration that is wrong ends the scheduler before it asks the API server for anything, with the path of the
// field: the server of this kubeconfig does not exist.
const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: none, user: {token: none}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
current-context: none
`

func TestBadConfiguration(t *testing.T) {
	profile := func(lines string) string {
		return "profiles:\n- schedulerName: tandem-scheduler\n  plugins: {multiPoint: {enabled: [{name: GPUShare}]}}\n" + lines
	}
	args := func(args string) string { return profile("  pluginConfig: [{name: GPUShare, args: " + args + "}]\n") }
	tests := []struct {
		name   string
		config string
		want   []string
	}{
		{"unknown field of the arguments", args("{polcy: spread}"),
			[]string{"profiles[0].pluginConfig[0]", "plugin GPUShare", `unknown field "polcy"`}},
		{"unknown policy", args("{policy: fullest}"),
			[]string{`pluginConfig[GPUShare].args.policy: Unsupported value: "fullest": supported values: "bestfit", "clustering"`}},
		{"empty policy", args(`{policy: ""}`), []string{`pluginConfig[GPUShare].args.policy: Unsupported value: ""`}},
		{"bind timeout out of range", args("{bindTimeout: 1h}"),
			[]string{`pluginConfig[GPUShare].args.bindTimeout: Invalid value: "1h0m0s": must be from 1s to 5m`}},
		{"bind timeout without a unit", args("{bindTimeout: 30}"), []string{"plugin GPUShare", "bindTimeout"}},
		{"wrong kind", args("{apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeAffinityArgs}"),
			[]string{"args for plugin GPUShare were not of type GPUShareArgs.kubescheduler.config.k8s.io"}},
		{"unknown field of the configuration", profile("  polcy: x\n"), []string{`unknown field "profiles[0].polcy"`}},
		{"bad value of the configuration", profile("  percentageOfNodesToScore: 101\n"),
			[]string{"profiles[0].percentageOfNodesToScore", "101"}},
		{"unknown plugin", strings.ReplaceAll(profile(""), "name: GPUShare", "name: GPUShear"), []string{"GPUShear"}},
		{"two profiles with the plugin", profile("") + "- schedulerName: second\n  plugins: {multiPoint: {enabled: [{name: GPUShare}]}}\n",
			[]string{"start plugin GPUShare: profiles: more than one enables it"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			output, err := run(t, "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+
				"leaderElection: {leaderElect: false}\n"+test.config)
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

// run starts the scheduler with a configuration and returns what it printed until it ended.
func run(t *testing.T, config string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config += "clientConnection: {kubeconfig: " + write("kubeconfig", kubeconfig) + "}\n"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "--config="+write("config.yaml", config), "--secure-port=0",
		"--authentication-skip-lookup")
	cmd.Env = append(os.Environ(), asScheduler+"=1")
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("the scheduler did not end:\n%s", output)
	}
	return string(output), err
}
