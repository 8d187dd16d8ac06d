package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidateSharing(t *testing.T) {
	tests := []struct {
		name   string
		change func(*GPUShareArgs)
		want   []string
	}{
		{name: "least", change: func(a *GPUShareArgs) {
			a.Interference = InterferenceArgs{Model: "none", Learning: LearningDisabled, MaxProfiles: 1}
			a.Weights, a.Sharing, a.ScarceBelowPercent = CostWeights{}, SharingAlways, 0
		}},
		{name: "most", change: func(a *GPUShareArgs) {
			a.Interference = InterferenceArgs{Model: "rank1", Learning: LearningEnabled, MaxProfiles: 100_000}
			a.Weights, a.Sharing, a.ScarceBelowPercent, a.Lifetimes = CostWeights{1000, 1000, 1000}, SharingWhenScarce, 100, LifetimesDisabled
		}},
		{
			name: "below", change: func(a *GPUShareArgs) {
				a.Interference, a.Sharing, a.ScarceBelowPercent, a.Lifetimes = InterferenceArgs{}, "", -1, ""
				a.Weights = CostWeights{Fragmentation: -1, Interference: -2, Heterogeneity: -3}
			},
			want: []string{
				`args.interference.model: Unsupported value: "": supported values: "constant", "default", "hinge", "linear-hinge", "none", "rank1", "util-sum"`,
				`args.interference.learning: Unsupported value: "": supported values: "Disabled", "Enabled"`,
				`args.interference.maxProfiles: Invalid value: 0: must be from 1 to 100000`,
				`args.weights.fragmentation: Invalid value: -1: must be from 0 to 1000`,
				`args.weights.interference: Invalid value: -2: must be from 0 to 1000`,
				`args.weights.heterogeneity: Invalid value: -3: must be from 0 to 1000`,
				`args.sharing: Unsupported value: "": supported values: "Always", "WhenScarce"`,
				`args.scarceBelowPercent: Invalid value: -1: must be from 0 to 100`,
				`args.lifetimes: Unsupported value: "": supported values: "Disabled", "Enabled"`,
			},
		},
		{
			name: "above", change: func(a *GPUShareArgs) {
				a.Interference = InterferenceArgs{Model: "table", Learning: "enabled", MaxProfiles: 100_001}
				a.Weights = CostWeights{Fragmentation: 1001, Interference: 1002, Heterogeneity: 1003}
				a.Sharing, a.ScarceBelowPercent = "Never", 101
			},
			want: []string{
				`args.interference.model: Unsupported value: "table": supported values: "constant", "default", "hinge", "linear-hinge", "none", "rank1", "util-sum"`,
				`args.interference.learning: Unsupported value: "enabled": supported values: "Disabled", "Enabled"`,
				`args.interference.maxProfiles: Invalid value: 100001: must be from 1 to 100000`,
				`args.weights.fragmentation: Invalid value: 1001: must be from 0 to 1000`,
				`args.weights.interference: Invalid value: 1002: must be from 0 to 1000`,
				`args.weights.heterogeneity: Invalid value: 1003: must be from 0 to 1000`,
				`args.sharing: Unsupported value: "Never": supported values: "Always", "WhenScarce"`,
				`args.scarceBelowPercent: Invalid value: 101: must be from 0 to 100`,
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			args := legal()
			test.change(args)
			if diff := cmp.Diff(test.want, said(args)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}
