package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// legalPreempt returns legal arguments with a change.
func legalPreempt(change func(*GPUPreemptArgs)) GPUPreemptArgs {
	args := GPUPreemptArgs{Mode: PreemptionEnabled, PodDisruptionBudgets: BudgetsPreferred, MaxSteps: 1}
	change(&args)
	return args
}

func runtimes(list ...any) []ClassRuntime {
	var out []ClassRuntime
	for i := 0; i < len(list); i += 2 {
		r := ClassRuntime{PriorityClassName: list[i].(string)}
		if d, ok := list[i+1].(time.Duration); ok {
			r.Runtime = &metav1.Duration{Duration: d}
		}
		out = append(out, r)
	}
	return out
}

// many returns n different names.
func many(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i)
	}
	return names
}

func manyRuntimes(n int) []ClassRuntime {
	var out []ClassRuntime
	for _, name := range many(n) {
		out = append(out, runtimes(name, time.Minute)...)
	}
	return out
}

type preemptTest struct {
	name   string
	change func(*GPUPreemptArgs)
	want   []string
}

func checkPreempt(t *testing.T, tests []preemptTest) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			args := legalPreempt(test.change)
			var got []string
			for _, err := range ValidateGPUPreemptArgs(&args, field.NewPath("args")) {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateGPUPreemptArgs(t *testing.T) {
	checkPreempt(t, []preemptTest{
		{name: "least", change: func(*GPUPreemptArgs) {}},
		{name: "most", change: func(a *GPUPreemptArgs) {
			*a = GPUPreemptArgs{
				Mode: PreemptionDryRun, EvictionsPerMinute: 100_000, MinimumRuntime: metav1.Duration{Duration: 720 * time.Hour},
				MinimumRuntimes: manyRuntimes(256), PodDisruptionBudgets: BudgetsRequired, MaxSteps: 1_000_000,
				MaximumGracePeriod: metav1.Duration{Duration: 720 * time.Hour},
				Protected:          ProtectedPods{Namespaces: many(1000), LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": ""}}},
			}
		}},
		{name: "disabled", change: func(a *GPUPreemptArgs) { a.Mode = PreemptionDisabled }},
		{name: "below", change: func(a *GPUPreemptArgs) {
			*a = GPUPreemptArgs{EvictionsPerMinute: -1, MinimumRuntime: metav1.Duration{Duration: -1}}
		}, want: []string{
			`args.mode: Unsupported value: "": supported values: "Disabled", "DryRun", "Enabled"`,
			`args.evictionsPerMinute: Invalid value: -1: must be from 1 to 100000, or 0 for no bound`,
			`args.minimumRuntime: Invalid value: "-1ns": must be from 0s to 720h`,
			`args.podDisruptionBudgets: Unsupported value: "": supported values: "Preferred", "Required"`,
			`args.maxSteps: Invalid value: 0: must be from 1 to 1000000`,
		}},
		{name: "above", change: func(a *GPUPreemptArgs) {
			*a = GPUPreemptArgs{
				Mode: "enabled", EvictionsPerMinute: 100_001, MinimumRuntime: metav1.Duration{Duration: 720*time.Hour + 1},
				PodDisruptionBudgets: "Ignored", MaxSteps: 1_000_001,
			}
		}, want: []string{
			`args.mode: Unsupported value: "enabled": supported values: "Disabled", "DryRun", "Enabled"`,
			`args.evictionsPerMinute: Invalid value: 100001: must be from 1 to 100000, or 0 for no bound`,
			`args.minimumRuntime: Invalid value: "720h0m0.000000001s": must be from 0s to 720h`,
			`args.podDisruptionBudgets: Unsupported value: "Ignored": supported values: "Preferred", "Required"`,
			`args.maxSteps: Invalid value: 1000001: must be from 1 to 1000000`,
		}},
	})
}

func TestValidatePrices(t *testing.T) {
	all := func(d time.Duration) func(*GPUPreemptArgs) {
		of := metav1.Duration{Duration: d}
		return func(a *GPUPreemptArgs) { a.Prices = EvictionPrices{of, of, of, of, of} }
	}
	wrong := func(value string) (want []string) {
		for _, name := range []string{"budgetViolation", "priorityStep", "brokenGang", "servingPod", "victim"} {
			want = append(want, `args.prices.`+name+`: Invalid value: "`+value+`": must be from 0s to 10000h in whole seconds: the time that one GPU works`)
		}
		return want
	}
	checkPreempt(t, []preemptTest{
		{name: "least", change: all(0)},
		{name: "most", change: all(10_000 * time.Hour)},
		{name: "below", change: all(-time.Second), want: wrong("-1s")},
		{name: "above", change: all(10_000*time.Hour + time.Second), want: wrong("10000h0m1s")},
		{name: "part of a second", change: all(1500 * time.Millisecond), want: wrong("1.5s")},
	})
}

func TestValidateMinimumRuntimes(t *testing.T) {
	with := func(list ...any) func(*GPUPreemptArgs) {
		return func(a *GPUPreemptArgs) { a.MinimumRuntimes = runtimes(list...) }
	}
	checkPreempt(t, []preemptTest{
		{name: "least and most", change: with("batch", time.Duration(0), "system-node-critical", 720*time.Hour, "a.b-c.d", time.Hour)},
		{name: "names", change: with("", time.Minute, "Batch", time.Minute, strings.Repeat("a", 254), time.Minute), want: []string{
			`args.minimumRuntimes[0].priorityClassName: Required value: must be the name of a PriorityClass`,
			`args.minimumRuntimes[1].priorityClassName: Invalid value: "Batch": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, ` +
				`'-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is ` +
				`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			`args.minimumRuntimes[2].priorityClassName: Invalid value: "` + strings.Repeat("a", 254) + `": must be no more than 253 characters`,
		}},
		{name: "a class twice", change: with("batch", time.Minute, "other", time.Minute, "batch", time.Hour), want: []string{
			`args.minimumRuntimes[2].priorityClassName: Duplicate value: "batch"`,
		}},
		{name: "runtimes", change: with("a", nil, "b", time.Duration(-1), "c", 720*time.Hour+1), want: []string{
			`args.minimumRuntimes[0].runtime: Required value: must be from 0s to 720h`,
			`args.minimumRuntimes[1].runtime: Invalid value: "-1ns": must be from 0s to 720h`,
			`args.minimumRuntimes[2].runtime: Invalid value: "720h0m0.000000001s": must be from 0s to 720h`,
		}},
		{name: "too many", change: func(a *GPUPreemptArgs) { a.MinimumRuntimes = manyRuntimes(257) }, want: []string{
			`args.minimumRuntimes: Too many: 257: must have at most 256 items`,
		}},
	})
}

func TestValidateProtectedPods(t *testing.T) {
	namespaces := func(names ...string) func(*GPUPreemptArgs) {
		return func(a *GPUPreemptArgs) { a.Protected.Namespaces = names }
	}
	selector := func(s metav1.LabelSelector) func(*GPUPreemptArgs) {
		return func(a *GPUPreemptArgs) { a.Protected.LabelSelector = &s }
	}
	expression := func(key string, op metav1.LabelSelectorOperator, values ...string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: op, Values: values}}}
	}
	checkPreempt(t, []preemptTest{
		{name: "no namespace", change: namespaces()},
		{name: "namespaces", change: namespaces("", "team a", "team", "team", "a.b"), want: []string{
			`args.protected.namespaces[0]: Required value: must be the name of a namespace`,
			`args.protected.namespaces[1]: Invalid value: "team a": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', ` +
				`and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
			`args.protected.namespaces[3]: Duplicate value: "team"`,
			`args.protected.namespaces[4]: Invalid value: "a.b": must not contain dots`,
		}},
		{name: "too many namespaces", change: namespaces(many(1001)...), want: []string{
			`args.protected.namespaces: Too many: 1001: must have at most 1000 items`,
		}},
		{name: "an expression", change: selector(expression("tier", metav1.LabelSelectorOpExists))},
		{name: "a selector of all pods", change: selector(metav1.LabelSelector{}), want: []string{
			`args.protected.labelSelector: Invalid value: "{}": must have a label or an expression: a selector without any matches all pods. ` +
				`Set mode to Disabled to evict none`,
		}},
		{name: "an operator that is none", change: selector(expression("tier", "Is", "gold")), want: []string{
			`args.protected.labelSelector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`,
		}},
		{name: "an operator without values", change: selector(expression("tier", metav1.LabelSelectorOpIn)), want: []string{
			"args.protected.labelSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
		}},
		{name: "a key that is none", change: selector(metav1.LabelSelector{MatchLabels: map[string]string{"tier/": "gold"}}), want: []string{
			`args.protected.labelSelector.matchLabels: Invalid value: "tier/": name part must be non-empty`,
			`args.protected.labelSelector.matchLabels: Invalid value: "tier/": name part must consist of alphanumeric characters, '-', '_' or '.', ` +
				`and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is ` +
				`'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
		}},
		{name: "a value that is none", change: selector(metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold!"}}), want: []string{
			`args.protected.labelSelector.matchLabels: Invalid value: "gold!": a valid label must be an empty string or consist of alphanumeric characters, ` +
				`'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is ` +
				`'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
		}},
	})
}
