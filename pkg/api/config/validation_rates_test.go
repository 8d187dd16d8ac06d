package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestValidateMix(t *testing.T) {
	tests := []struct {
		name   string
		change func(*GPUShareArgs)
		want   []string
	}{
		{name: "shortest half-life", change: func(a *GPUShareArgs) { a.MixHalfLife.Duration = 10 * time.Minute }},
		{name: "longest half-life", change: func(a *GPUShareArgs) { a.MixHalfLife.Duration = 720 * time.Hour }},
		{
			name: "half-life too short", change: func(a *GPUShareArgs) { a.MixHalfLife.Duration = 10*time.Minute - 1 },
			want: []string{`args.mixHalfLife: Invalid value: "9m59.999999999s": must be from 10m to 720h`},
		},
		{
			name: "half-life too long", change: func(a *GPUShareArgs) { a.MixHalfLife.Duration = 720*time.Hour + 1 },
			want: []string{`args.mixHalfLife: Invalid value: "720h0m0.000000001s": must be from 10m to 720h`},
		},
		{
			name: "pods without GPUs", change: func(a *GPUShareArgs) { a.PodsWithoutGPUs = "score" },
			want: []string{`args.podsWithoutGPUs: Unsupported value: "score": supported values: "Score", "Skip"`},
		},
		{name: "typical requests", change: func(a *GPUShareArgs) {
			a.PodsWithoutGPUs = ScorePods
			a.TypicalRequests = []TypicalRequest{
				{CPU: resource.MustParse("1M"), Memory: resource.MustParse("1Pi"), VGPU: 128000, VGPUMemory: resource.MustParse("1Pi"), Models: []string{"A100", "T4"}, Weight: 1000000}, {Weight: 1},
			}
		}},
		{
			name: "typical requests beyond the bounds", change: func(a *GPUShareArgs) {
				a.TypicalRequests = []TypicalRequest{
					{CPU: resource.MustParse("1000001"), VGPU: 128001, Models: []string{"T4", "", "T4"}, Weight: 1000001},
					{CPU: resource.MustParse("-1"), VGPU: -1},
					{CPU: resource.MustParse("100u"), Weight: 1},
					{Memory: resource.MustParse("1025Ti"), Weight: 1}, {Memory: resource.MustParse("-1"), Weight: 1}, {Memory: resource.MustParse("500m"), Weight: 1},
					{VGPUMemory: resource.MustParse("1025Ti"), Weight: 1},
				}
			},
			want: []string{
				`args.typicalRequests[0].cpu: Invalid value: "1000001": must be from 0 to 1M, in whole thousandths`,
				`args.typicalRequests[0].vgpu: Invalid value: 128001: must be a number of slots from 0 to 128000`,
				`args.typicalRequests[0].weight: Invalid value: 1000001: must be from 1 to 1000000`,
				`args.typicalRequests[0].models[1]: Required value: a product name as in GPUNode`,
				`args.typicalRequests[0].models[2]: Duplicate value: "T4"`,
				`args.typicalRequests[1].cpu: Invalid value: "-1": must be from 0 to 1M, in whole thousandths`,
				`args.typicalRequests[1].vgpu: Invalid value: -1: must be a number of slots from 0 to 128000`,
				`args.typicalRequests[1].weight: Invalid value: 0: must be from 1 to 1000000`,
				`args.typicalRequests[2].cpu: Invalid value: "100u": must be from 0 to 1M, in whole thousandths`,
				`args.typicalRequests[3].memory: Invalid value: "1025Ti": must be from 0 to 1Pi, in whole bytes`,
				`args.typicalRequests[4].memory: Invalid value: "-1": must be from 0 to 1Pi, in whole bytes`,
				`args.typicalRequests[5].memory: Invalid value: "500m": must be from 0 to 1Pi, in whole bytes`,
				`args.typicalRequests[6].vgpuMemory: Invalid value: "1025Ti": must be from 0 to 1Pi, in whole bytes`,
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

func TestValidateRates(t *testing.T) {
	cost := func(model, cost string) ModelCost { return ModelCost{Model: model, Cost: resource.MustParse(cost)} }
	point := func(model string, share int32, rate string) Throughput {
		return Throughput{Profile: "bert", Model: model, Share: share, Rate: resource.MustParse(rate)}
	}
	both := []ModelCost{cost("A100", "1M"), cost("T4", "0.000001")}
	tests := []struct {
		name   string
		costs  []ModelCost
		points []Throughput
		want   []string
	}{
		{name: "costs alone", costs: both},
		{
			name: "curves, the points in any order", costs: both,
			points: []Throughput{
				point("A100", 100, "1T"), point("T4", 12800, "3"), point("A100", 1, "0.000001"), point("A100", 50, "7"),
				point("T4", 100, "3"),
			},
		},
		{
			name: "costs beyond the bounds", costs: []ModelCost{
				cost("A100", "1000001"), cost("", "1"), cost("T4", "0"), cost("T4", "-1"), cost("V100", "0.0000001"), cost("P100", "1e999999999"),
			},
			want: []string{
				`args.modelCosts[0].cost: Invalid value: "1000001": must be a decimal above 0, at most 1M, with up to six decimals`,
				`args.modelCosts[1].model: Required value: a product name as in GPUNode`,
				`args.modelCosts[2].cost: Invalid value: "0": must be a decimal above 0, at most 1M, with up to six decimals`,
				`args.modelCosts[3].model: Duplicate value: "T4"`,
				`args.modelCosts[3].cost: Invalid value: "-1": must be a decimal above 0, at most 1M, with up to six decimals`,
				`args.modelCosts[4].cost: Invalid value: "100n": must be a decimal above 0, at most 1M, with up to six decimals`,
				`args.modelCosts[5].cost: Invalid value: "1e999999999": must be a decimal above 0, at most 1M, with up to six decimals`,
			},
		},
		{
			name: "points beyond the bounds", costs: both,
			points: []Throughput{
				{Profile: "bert large", Model: "A100", Share: 101, Rate: resource.MustParse("0")},
				{Model: "V100", Share: 0, Rate: resource.MustParse("1000000000001")},
				point("", 12900, "1"),
			},
			want: []string{
				`args.throughputs[0].profile: Invalid value: "bert large": must be a label value of 1 to 63 letters, digits, '-', '_' and '.'`,
				`args.throughputs[0].share: Invalid value: 101: must be from 1 to 100 percent of a device, or a multiple of 100 up to 12800 for whole devices`,
				`args.throughputs[0].rate: Invalid value: "0": must be a decimal above 0, at most 1T, with up to six decimals`,
				`args.throughputs[1].profile: Invalid value: "": must be a label value of 1 to 63 letters, digits, '-', '_' and '.'`,
				`args.throughputs[1].model: Invalid value: "V100": must have an entry in modelCosts`,
				`args.throughputs[1].share: Invalid value: 0: must be from 1 to 100 percent of a device, or a multiple of 100 up to 12800 for whole devices`,
				`args.throughputs[1].rate: Invalid value: "1000000000001": must be a decimal above 0, at most 1T, with up to six decimals`,
				`args.throughputs[2].model: Required value: a product name as in GPUNode`,
				`args.throughputs[2].share: Invalid value: 12900: must be from 1 to 100 percent of a device, or a multiple of 100 up to 12800 for whole devices`,
			},
		},
		{
			name: "a rate beyond all bounds is not compared", costs: both,
			points: []Throughput{point("A100", 100, "1e999999999"), point("A100", 50, "6")},
			want:   []string{`args.throughputs[0].rate: Invalid value: "1e999999999": must be a decimal above 0, at most 1T, with up to six decimals`},
		},
		{
			name: "a curve that falls, a point given twice", costs: both,
			points: []Throughput{point("A100", 100, "5"), point("A100", 50, "6"), point("T4", 100, "5"), point("T4", 100, "5")},
			want: []string{
				`args.throughputs[0].rate: Invalid value: "5": must not be below 6, the rate of share 50`,
				`args.throughputs[3].share: Duplicate value: 100`,
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			args := legal()
			args.ModelCosts, args.Throughputs = test.costs, test.points
			if diff := cmp.Diff(test.want, said(args)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}
