package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// legal returns arguments without a mistake.
func legal() *GPUShareArgs {
	return &GPUShareArgs{
		Policy: "packed", BindTimeout: metav1.Duration{Duration: time.Minute},
		PodsWithoutGPUs: SkipPods, MixHalfLife: metav1.Duration{Duration: time.Hour},
		Interference: InterferenceArgs{Model: "default", Learning: LearningEnabled, MaxProfiles: 10000},
		Weights:      CostWeights{Fragmentation: 100, Interference: 100, Heterogeneity: 100},
		Sharing:      SharingWhenScarce, ScarceBelowPercent: 10, Lifetimes: LifetimesEnabled,
	}
}

// said validates and returns the errors as text.
func said(args *GPUShareArgs) []string {
	var got []string
	for _, err := range ValidateGPUShareArgs(args, []string{"bestfit", "packed", "spread"}, field.NewPath("args")) {
		got = append(got, err.Error())
	}
	return got
}

func TestValidateGPUShareArgs(t *testing.T) {
	tests := []struct {
		name    string
		policy  string
		timeout time.Duration
		want    []string
	}{
		{name: "legal", policy: "packed", timeout: 30 * time.Second},
		{name: "shortest timeout", policy: "spread", timeout: time.Second},
		{name: "longest timeout", policy: "bestfit", timeout: 5 * time.Minute},
		{
			name: "unknown policy", policy: "fullest", timeout: time.Minute,
			want: []string{`args.policy: Unsupported value: "fullest": supported values: "bestfit", "packed", "spread"`},
		},
		{
			name: "empty policy", policy: "", timeout: time.Minute,
			want: []string{`args.policy: Unsupported value: "": supported values: "bestfit", "packed", "spread"`},
		},
		{
			name: "timeout too short", policy: "packed", timeout: time.Second - 1,
			want: []string{`args.bindTimeout: Invalid value: "999.999999ms": must be from 1s to 5m`},
		},
		{
			name: "both wrong: both told", policy: "x", timeout: 5*time.Minute + 1,
			want: []string{
				`args.policy: Unsupported value: "x": supported values: "bestfit", "packed", "spread"`,
				`args.bindTimeout: Invalid value: "5m0.000000001s": must be from 1s to 5m`,
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			args := legal()
			args.Policy, args.BindTimeout.Duration = test.policy, test.timeout
			if diff := cmp.Diff(test.want, said(args)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}
