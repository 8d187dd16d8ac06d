package scheme_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/tandem-gpu/tandem/pkg/api/config"
)

// preemptConfiguration is a KubeSchedulerConfiguration with arguments of GPUPreempt; "" for none.
func preemptConfiguration(args string) []byte {
	text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" +
		"profiles:\n- schedulerName: tandem-scheduler\n" +
		"  plugins: {multiPoint: {enabled: [{name: GPUShare}, {name: GPUPreempt}], disabled: [{name: DefaultPreemption}]}}\n"
	if args != "" {
		text += "  pluginConfig: [{name: GPUPreempt, args: " + args + "}]\n"
	}
	return []byte(text)
}

func gpuPreemptArgs(t *testing.T, c *schedulerconfig.KubeSchedulerConfiguration) *config.GPUPreemptArgs {
	t.Helper()
	return argsOf[config.GPUPreemptArgs](t, c, "GPUPreempt")
}

func TestDecodePreempt(t *testing.T) {
	duration := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	with := func(change func(*config.GPUPreemptArgs)) config.GPUPreemptArgs {
		args := config.GPUPreemptArgs{
			Mode: "Enabled", EvictionsPerMinute: 60, Protected: config.ProtectedPods{Namespaces: []string{"kube-system"}},
			PodDisruptionBudgets: "Preferred", MaxSteps: 4096, Prices: config.EvictionPrices{
				BudgetViolation: duration(24 * time.Hour), PriorityStep: duration(time.Hour), BrokenGang: duration(time.Hour),
				ServingPod: duration(24 * time.Hour), Victim: duration(10 * time.Minute),
			},
		}
		change(&args)
		return args
	}
	tests := []struct {
		name, args string
		want       config.GPUPreemptArgs
	}{
		{name: "no arguments: defaults", want: with(func(*config.GPUPreemptArgs) {})},
		{name: "one field set", args: "{mode: DryRun}", want: with(func(a *config.GPUPreemptArgs) { a.Mode = "DryRun" })},
		{
			name: "all fields set, with the type written out",
			args: "{apiVersion: kubescheduler.config.k8s.io/v1, kind: GPUPreemptArgs, mode: Disabled, evictionsPerMinute: 7, minimumRuntime: 10m, " +
				"minimumRuntimes: [{priorityClassName: batch, runtime: 0s}, {priorityClassName: training, runtime: 2h}], " +
				"protected: {namespaces: [a, b], labelSelector: {matchLabels: {tier: gold}, matchExpressions: [{key: x, operator: Exists}]}}, " +
				"podDisruptionBudgets: Required, maxSteps: 3, " +
				"prices: {budgetViolation: 1s, priorityStep: 2m, brokenGang: 3h, servingPod: 10000h, victim: 0s}}",
			want: config.GPUPreemptArgs{
				Mode: "Disabled", EvictionsPerMinute: 7, MinimumRuntime: metav1.Duration{Duration: 10 * time.Minute},
				MinimumRuntimes: []config.ClassRuntime{
					{PriorityClassName: "batch", Runtime: &metav1.Duration{}},
					{PriorityClassName: "training", Runtime: &metav1.Duration{Duration: 2 * time.Hour}},
				},
				Protected: config.ProtectedPods{Namespaces: []string{"a", "b"}, LabelSelector: &metav1.LabelSelector{
					MatchLabels:      map[string]string{"tier": "gold"},
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: metav1.LabelSelectorOpExists}},
				}},
				PodDisruptionBudgets: "Required", MaxSteps: 3, Prices: config.EvictionPrices{
					BudgetViolation: duration(time.Second), PriorityStep: duration(2 * time.Minute), BrokenGang: duration(3 * time.Hour),
					ServingPod: duration(10_000 * time.Hour),
				},
			},
		},
		{
			name: "one price set, and 0 is a price", args: "{prices: {brokenGang: 0s}}",
			want: with(func(a *config.GPUPreemptArgs) { a.Prices.BrokenGang = duration(0) }),
		},
		{
			name: "a selector beside the namespaces by default", args: "{protected: {labelSelector: {matchLabels: {tier: gold}}}}",
			want: with(func(a *config.GPUPreemptArgs) {
				a.Protected.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
			}),
		},
		{
			name: "zero and empty are values",
			args: `{mode: "", evictionsPerMinute: 0, protected: {namespaces: [], labelSelector: {}}, podDisruptionBudgets: "", maxSteps: 0}`,
			want: with(func(a *config.GPUPreemptArgs) {
				a.Mode, a.EvictionsPerMinute, a.PodDisruptionBudgets, a.MaxSteps = "", 0, "", 0
				a.Protected = config.ProtectedPods{Namespaces: []string{}, LabelSelector: &metav1.LabelSelector{}}
			}),
		},
		{
			name: "a class without a runtime is seen", args: "{minimumRuntimes: [{priorityClassName: batch}]}",
			want: with(func(a *config.GPUPreemptArgs) {
				a.MinimumRuntimes = []config.ClassRuntime{{PriorityClassName: "batch"}}
			}),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := decode(t, preemptConfiguration(test.args))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, gpuPreemptArgs(t, c)); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(&test.want, gpuPreemptArgs(t, again(t, c))); diff != "" {
				t.Errorf("arguments after encoding and decoding (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodePreemptRefuses(t *testing.T) {
	tests := []struct {
		name, args string
		want       []string
	}{
		{"unknown field", "{evictionsPerHour: 3}", []string{"GPUPreempt", `unknown field "evictionsPerHour"`}},
		{"unknown field of a group", "{protected: {namespace: [a]}}", []string{`unknown field "protected.namespace"`}},
		{"unknown field of a list", "{minimumRuntimes: [{priorityClass: a}]}", []string{`unknown field "minimumRuntimes[0].priorityClass"`}},
		{"field given twice", "{mode: DryRun, mode: Enabled}", []string{`"mode" already set`}},
		{"part of an eviction", "{evictionsPerMinute: 0.5}", []string{"number 0.5", "evictionsPerMinute"}},
		{"more than 32 bits", "{evictionsPerMinute: 3000000000}", []string{"3000000000", "evictionsPerMinute"}},
		{"malformed duration", "{minimumRuntime: long}", []string{`invalid duration "long"`}},
		{"duration without a unit", "{minimumRuntime: 30}", []string{"GPUPreempt"}},
		{"unknown price", "{prices: {gang: 1h}}", []string{`unknown field "prices.gang"`}},
		{"a price in a unit that is none", "{prices: {victim: 3 GPU-hours}}", []string{`unknown unit`}},
		{"a list that is text", "{protected: {namespaces: kube-system}}", []string{"protected.namespaces"}},
		{
			"wrong kind", "{apiVersion: kubescheduler.config.k8s.io/v1, kind: DefaultPreemptionArgs}",
			[]string{"args for plugin GPUPreempt were not of type GPUPreemptArgs", "DefaultPreemptionArgs"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := decode(t, preemptConfiguration(test.args))
			if err == nil {
				t.Fatal("decoded without an error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

// Any arguments are refused with a path, or they are legal and survive the way to the versioned form and back.
func FuzzGPUPreemptArgs(f *testing.F) {
	for _, args := range []string{
		"{}", "{mode: DryRun, evictionsPerMinute: 0}", "{minimumRuntime: 1h, minimumRuntimes: [{priorityClassName: batch, runtime: 0s}]}",
		"{minimumRuntimes: [{}, null, {priorityClassName: a, runtime: null}]}", "{protected: {namespaces: [], labelSelector: {}}}",
		"{protected: {namespaces: [a, a], labelSelector: {matchExpressions: [{key: a, operator: In, values: [b]}]}}}", "{protected: null, maxSteps: null}",
		"{podDisruptionBudgets: Required, maxSteps: 1000001}", "{minimumRuntime: -1s}", "{prices: {victim: 1500ms, servingPod: null}}", "[]", "{",
	} {
		f.Add(args)
	}
	f.Fuzz(func(t *testing.T, args string) {
		c, err := decode(t, []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+
			"profiles:\n- schedulerName: tandem-scheduler\n  pluginConfig:\n  - name: GPUPreempt\n    args: "+strings.ReplaceAll(args, "\n", " ")+"\n"))
		if err != nil || len(c.Profiles) != 1 || len(c.Profiles[0].PluginConfig) == 0 {
			return
		}
		got := gpuPreemptArgs(t, c)
		for _, problem := range config.ValidateGPUPreemptArgs(got, field.NewPath("args")) {
			if problem.Field == "" || problem.Detail == "" && problem.Type != field.ErrorTypeDuplicate {
				t.Errorf("a refusal without a field or without legal values: %v", problem)
			}
		}
		if diff := cmp.Diff(got, gpuPreemptArgs(t, again(t, c))); diff != "" {
			t.Errorf("arguments after encoding and decoding (-want +got):\n%s", diff)
		}
	})
}
