package proposal_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/kubectl/proposal"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/test/must"
)

// configuration returns a KubeSchedulerConfiguration with plugins and their arguments.
func configuration(enabled, pluginConfig string) []byte {
	return []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n" +
		"- schedulerName: tandem\n  plugins: {multiPoint: {enabled: [" + enabled + "]}}\n  pluginConfig: [" + pluginConfig + "]\n")
}

const all = "{name: GPUShare}, {name: GPUGang}, {name: GPUPreempt}"

// The defaults are those of the scheduler's arguments.
func TestDefaults(t *testing.T) {
	r, err := proposal.Defaults()
	must.OK(t, err)
	if r.Policy.Name != "tandem" || r.Mix != nil || r.Gangs.Drains != gang.BoundedDrains || r.Gangs.DrainAfter != 24*time.Hour || r.Gangs.MaxDomains != 32 {
		t.Errorf("policy %q, mix %v, gangs %+v", r.Policy.Name, r.Mix, r.Gangs)
	}
	prices := preemption.DefaultPrices()
	want := sim.PreemptionConfig{Policy: sim.PreemptTandem, Grace: 30 * time.Second, MaxSteps: 4096, Prices: &prices}
	if diff := cmp.Diff(want, r.Preemption) + cmp.Diff([]string{"kubernetes.io/hostname"}, r.Preferred); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Each argument that a simulation goes by arrives there, and the others are noted.
func TestRules(t *testing.T) {
	r, notes, err := proposal.Rules(configuration(all, `
{name: GPUShare, args: {policy: spread, seed: 7, typicalRequests: [{vgpu: 3, weight: 2}], bindTimeout: 9s, sharing: Always}},
{name: GPUGang, args: {drain: Enabled, drainAfter: 2m, drainTimeout: 3h, maxDomains: 5, preferredTopology: [nvlink, example.com/rack]}},
{name: GPUPreempt, args: {mode: DryRun, maximumGracePeriod: 10s, podDisruptionBudgets: Required, maxSteps: 9, minimumRuntime: 1h, prices: {victim: 3s}}}`))
	must.OK(t, err)
	if r.Policy.Name != "spread" || r.Seed != 7 || r.Mix.Weight() != 2 || r.Mix.Kinds()[0].Slots != 3 {
		t.Errorf("policy %q, seed %d, mix %v", r.Policy.Name, r.Seed, r.Mix.Kinds())
	}
	gangs := sim.GangConfig{MaxDomains: 5, Drains: gang.AllDrains, DrainAfter: 2 * time.Minute, DrainTimeout: 3 * time.Hour}
	prices := preemption.DefaultPrices()
	prices.Victim = 3000
	evictions := sim.PreemptionConfig{Policy: sim.PreemptNobody, Grace: 10 * time.Second, MaxSteps: 9, Prices: &prices}
	if diff := cmp.Diff(gangs, r.Gangs) + cmp.Diff(evictions, r.Preemption) + cmp.Diff([]string{gang.NVLink}, r.Preferred); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"GPUShare.bindTimeout", "GPUShare.sharing", "GPUPreempt.minimumRuntime", "GPUPreempt.podDisruptionBudgets"}, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// A profile without Tandem's other plugins keeps no room for gangs, and evicts as the stock scheduler does.
func TestRulesOfGPUShareAlone(t *testing.T) {
	r, _, err := proposal.Rules(configuration("{name: GPUShare}", ""))
	if err != nil || r.Preemption.Policy != sim.PreemptInTree || r.Gangs.Drains != gang.NoDrains {
		t.Errorf("preemption %v, drains %v, %v", r.Preemption.Policy, r.Gangs.Drains, err)
	}
	if r, _, err = proposal.Rules(configuration(all, "{name: GPUPreempt, args: {mode: Disabled}}, {name: GPUGang, args: {drain: Disabled}}")); err != nil ||
		r.Preemption.Policy != sim.PreemptNobody || r.Gangs.Drains != gang.NoDrains {
		t.Errorf("turned off: preemption %v, drains %v, %v", r.Preemption.Policy, r.Gangs.Drains, err)
	}
}

// The notes name what a simulation does not go by: extenders, other plugins, their arguments. The configuration that is deployed has
// nothing of that kind.
func TestRulesNotes(t *testing.T) {
	deployed, err := os.ReadFile("../../../deploy/scheduler/config.yaml")
	must.OK(t, err)
	for name, test := range map[string]struct {
		raw  []byte
		want []string
	}{
		"deployed":  {deployed, nil},
		"extenders": {append(configuration(all, ""), "extenders: [{urlPrefix: 'http://127.0.0.1:8888/', filterVerb: filter}]\n"...), []string{"extenders"}},
		"nodes":     {append(configuration(all, ""), "percentageOfNodesToScore: 30\nparallelism: 8\n"...), []string{"percentageOfNodesToScore"}},
		"arguments": {configuration(all, "{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}}"), []string{"NodeResourcesFit.scoringStrategy"}},
		"others":    {configuration(all+", {name: Coscheduling}", "{name: Coscheduling, args: {permitWaitingTimeSeconds: 9}}"), []string{"the arguments of Coscheduling", "the plugin Coscheduling"}},
		"fewer": {
			bytes.Replace(configuration(all, ""), []byte("multiPoint: {"), []byte("score: {disabled: [{name: ImageLocality}]}, multiPoint: {disabled: [{name: TaintToleration}], "), 1),
			[]string{"the disabled plugin ImageLocality (score)", "the disabled plugin TaintToleration (multiPoint)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, notes, err := proposal.Rules(test.raw)
			if diff := cmp.Diff(test.want, notes); err != nil || diff != "" {
				t.Errorf("%v, notes (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestRulesRefuses(t *testing.T) {
	for _, test := range []struct {
		name string
		raw  []byte
		says []string
	}{
		{"no YAML", []byte("{"), []string{""}},
		{"another kind", []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: GPUShareArgs\n"), []string{`"GPUShareArgs", legal are kubescheduler.config.k8s.io/v1 and KubeSchedulerConfiguration`}},
		{"an object of the cluster", []byte("apiVersion: v1\nkind: ConfigMap\n"), []string{`apiVersion and kind: "v1" and "ConfigMap", legal are kubescheduler.config.k8s.io/v1 and KubeSchedulerConfiguration`}},
		{"no kind", []byte("profiles: []\n"), []string{`apiVersion and kind: "" and "", legal are`}},
		{"no version", []byte("kind: KubeSchedulerConfiguration\n"), []string{`apiVersion and kind: "" and "KubeSchedulerConfiguration", legal are`}},
		{"unknown field", configuration(all, "{name: GPUShare, args: {polic: spread}}"), []string{"GPUShare", `unknown field "polic"`}},
		{"unknown policy", configuration(all, "{name: GPUShare, args: {policy: best}}"), []string{"profiles[tandem].pluginConfig[GPUShare].args.policy", "best", "tandem"}},
		{"bad number of domains", configuration(all, "{name: GPUGang, args: {maxDomains: -1}}"), []string{"pluginConfig[GPUGang].args.maxDomains", "-1"}},
		{"bad mode", configuration(all, "{name: GPUPreempt, args: {mode: Perhaps}}"), []string{"pluginConfig[GPUPreempt].args.mode", "Perhaps", "DryRun"}},
		{"no GPUShare", configuration("{name: NodeResourcesFit}", ""), []string{"profiles: none enables GPUShare"}},
		{"GPUShare twice", append(configuration(all, ""), "- schedulerName: other\n  plugins: {multiPoint: {enabled: [{name: GPUShare}]}}\n"...), []string{"profiles: several enable GPUShare"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := proposal.Rules(test.raw)
			if err == nil {
				t.Fatal("read without an error")
			}
			for _, says := range test.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("the error is %q, want %q in it", err, says)
				}
			}
		})
	}
}
