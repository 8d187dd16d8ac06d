package config

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestValidateGPUGangArgs(t *testing.T) {
	args := func(deadline, after time.Duration, drain string, domains int32, levels ...string) GPUGangArgs {
		return GPUGangArgs{
			DrainTimeout:      metav1.Duration{Duration: 720 * time.Hour},
			PlacementDeadline: metav1.Duration{Duration: deadline}, DrainAfter: metav1.Duration{Duration: after},
			Drain: drain, MaxDomains: domains, PreferredTopology: levels,
		}
	}
	tests := []struct {
		name string
		args GPUGangArgs
		want []string
	}{
		{name: "least", args: args(time.Second, 0, DrainDisabled, 1)},
		{
			name: "most",
			args: args(15*time.Minute, 24*time.Hour, DrainEnabled, 1000, "nvlink", "a", "b", "c", "d", "e", "f", "topology.kubernetes.io/zone"),
		},
		{
			name: "below", args: args(time.Second-1, -1, "", 0, ""),
			want: []string{
				`args.placementDeadline: Invalid value: "999.999999ms": must be from 1s to 15m`,
				`args.drainAfter: Invalid value: "-1ns": must be from 0s to 24h`,
				`args.drain: Unsupported value: "": supported values: "Bounded", "Disabled", "Enabled"`,
				`args.maxDomains: Invalid value: 0: must be from 1 to 1000`,
				`args.preferredTopology[0]: Invalid value: "": must be the key of a node label, or nvlink for the GPUs of one node that NVLink joins`,
			},
		},
		{
			name: "above", args: args(15*time.Minute+1, 24*time.Hour+1, "enabled", 1001, "a", "b", "c", "d", "e", "f", "g", "h", "a"),
			want: []string{
				`args.placementDeadline: Invalid value: "15m0.000000001s": must be from 1s to 15m`,
				`args.drainAfter: Invalid value: "24h0m0.000000001s": must be from 0s to 24h`,
				`args.drain: Unsupported value: "enabled": supported values: "Bounded", "Disabled", "Enabled"`,
				`args.maxDomains: Invalid value: 1001: must be from 1 to 1000`,
				`args.preferredTopology: Too many: 9: must have at most 8 items`,
				`args.preferredTopology[8]: Duplicate value: "a"`,
			},
		},
		{
			name: "keys that are none", args: args(time.Minute, 0, DrainEnabled, 1, "rack id", "example.com/", "/rack", "NVLink", "nvlink"),
			want: []string{
				`args.preferredTopology[0]: Invalid value: "rack id": must be the key of a node label, or nvlink for the GPUs of one node that NVLink joins`,
				`args.preferredTopology[1]: Invalid value: "example.com/": must be the key of a node label, or nvlink for the GPUs of one node that NVLink joins`,
				`args.preferredTopology[2]: Invalid value: "/rack": must be the key of a node label, or nvlink for the GPUs of one node that NVLink joins`,
			},
		},
	}
	drainTimeout := func(d time.Duration) GPUGangArgs {
		a := args(time.Second, 0, DrainDisabled, 1)
		a.DrainTimeout.Duration = d
		return a
	}
	for _, d := range []time.Duration{time.Minute - 1, time.Minute, 720*time.Hour + 1} {
		var want []string
		if d != time.Minute {
			want = []string{fmt.Sprintf(`args.drainTimeout: Invalid value: "%v": must be from 1m to 720h`, d)}
		}
		tests = append(tests, struct {
			name string
			args GPUGangArgs
			want []string
		}{"drain timeout " + d.String(), drainTimeout(d), want})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, err := range ValidateGPUGangArgs(&test.args, field.NewPath("args")) {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}
