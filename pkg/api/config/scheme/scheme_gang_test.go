package scheme_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	inTree "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/test/must"
)

// gangConfiguration is a KubeSchedulerConfiguration with arguments of GPUGang; "" for none.
func gangConfiguration(args string) []byte {
	text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" +
		"profiles:\n- schedulerName: tandem-scheduler\n  plugins: {multiPoint: {enabled: [{name: GPUShare}, {name: GPUGang}]}}\n"
	if args != "" {
		text += "  pluginConfig: [{name: GPUGang, args: " + args + "}]\n"
	}
	return []byte(text)
}

func gpuGangArgs(t *testing.T, c *schedulerconfig.KubeSchedulerConfiguration) *config.GPUGangArgs {
	t.Helper()
	return argsOf[config.GPUGangArgs](t, c, "GPUGang")
}

func TestDecodeGang(t *testing.T) {
	with := func(change func(*config.GPUGangArgs)) config.GPUGangArgs {
		args := config.GPUGangArgs{
			PlacementDeadline: metav1.Duration{Duration: 5 * time.Minute}, DrainAfter: metav1.Duration{Duration: 24 * time.Hour},
			DrainTimeout: metav1.Duration{Duration: 24 * time.Hour}, Drain: "Bounded", MaxDomains: 32, PreferredTopology: []string{"kubernetes.io/hostname", "topology.kubernetes.io/zone"},
		}
		change(&args)
		return args
	}
	tests := []struct {
		name, args string
		want       config.GPUGangArgs
	}{
		{name: "no arguments: defaults", want: with(func(*config.GPUGangArgs) {})},
		{name: "one field set", args: "{maxDomains: 7}", want: with(func(a *config.GPUGangArgs) { a.MaxDomains = 7 })},
		{name: "drains begin soon where they are enabled", args: "{drain: Enabled}", want: with(func(a *config.GPUGangArgs) {
			a.Drain, a.DrainAfter = "Enabled", metav1.Duration{Duration: time.Minute}
		})},
		{
			name: "all fields set, with the type written out",
			args: "{apiVersion: kubescheduler.config.k8s.io/v1, kind: GPUGangArgs, placementDeadline: 7s, drainAfter: 1h, drainTimeout: 2h, drain: Disabled, " +
				"maxDomains: 3, preferredTopology: [nvlink, example.com/rack]}",
			want: config.GPUGangArgs{
				PlacementDeadline: metav1.Duration{Duration: 7 * time.Second}, DrainAfter: metav1.Duration{Duration: time.Hour},
				DrainTimeout: metav1.Duration{Duration: 2 * time.Hour}, Drain: "Disabled", MaxDomains: 3, PreferredTopology: []string{"nvlink", "example.com/rack"},
			},
		},
		{
			name: "zero and empty are values", args: `{drainAfter: 0s, drain: "", maxDomains: 0, preferredTopology: []}`,
			want: with(func(a *config.GPUGangArgs) {
				a.DrainAfter, a.Drain, a.MaxDomains, a.PreferredTopology = metav1.Duration{}, "", 0, []string{}
			}),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := decode(t, gangConfiguration(test.args))
			must.OK(t, err)
			if diff := cmp.Diff(&test.want, gpuGangArgs(t, c)); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(&test.want, gpuGangArgs(t, again(t, c))); diff != "" {
				t.Errorf("arguments after encoding and decoding (-want +got):\n%s", diff)
			}
		})
	}
}

// again encodes a configuration as the scheduler prints it at start, and decodes it.
func again(t *testing.T, c *schedulerconfig.KubeSchedulerConfiguration) *schedulerconfig.KubeSchedulerConfiguration {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(inTree.Codecs.SupportedMediaTypes(), runtime.ContentTypeYAML)
	if !ok {
		t.Fatal("the scheduler's codecs know no YAML")
	}
	version := inTree.Scheme.PrioritizedVersionsForGroup(schedulerconfig.GroupName)[0]
	raw, err := runtime.Encode(inTree.Codecs.EncoderForVersion(info.Serializer, version), c)
	must.OK(t, err)
	out, err := decode(t, raw)
	must.OK(t, err)
	return out
}

func TestDecodeGangRefuses(t *testing.T) {
	tests := []struct {
		name, args string
		want       []string
	}{
		{"unknown field", "{maxDomain: 3}", []string{"GPUGang", `unknown field "maxDomain"`}},
		{"field given twice", "{drain: Enabled, drain: Disabled}", []string{`"drain" already set`}},
		{"a list that is text", "{preferredTopology: nvlink}", []string{"GPUGangArgs.preferredTopology"}},
		{"malformed duration", "{placementDeadline: soon}", []string{`invalid duration "soon"`}},
		{
			"wrong kind", "{apiVersion: kubescheduler.config.k8s.io/v1, kind: GPUShareArgs}",
			[]string{"args for plugin GPUGang were not of type GPUGangArgs", "GPUShareArgs"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := decode(t, gangConfiguration(test.args))
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
