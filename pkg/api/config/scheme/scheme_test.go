package scheme_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	inTree "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme"
	"github.com/tandem-gpu/tandem/test/must"
)

// configuration is a KubeSchedulerConfiguration whose pluginConfig holds the given arguments of GPUShare.
func configuration(args string) []byte {
	return []byte(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: tandem-scheduler
  plugins:
    multiPoint:
      enabled:
      - name: GPUShare
` + args)
}

// equalQuantities compares quantities by value: one that was printed remembers its text.
var equalQuantities = cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })

func decode(t *testing.T, raw []byte) (*schedulerconfig.KubeSchedulerConfiguration, error) {
	t.Helper()
	obj, _, err := inTree.Codecs.UniversalDecoder().Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	return obj.(*schedulerconfig.KubeSchedulerConfiguration), nil
}

// argsOf returns the arguments of a plugin in the first profile.
func argsOf[T any](t *testing.T, c *schedulerconfig.KubeSchedulerConfiguration, plugin string) *T {
	t.Helper()
	for _, p := range c.Profiles[0].PluginConfig {
		if p.Name == plugin {
			return any(p.Args).(*T)
		}
	}
	t.Fatalf("the profile has no arguments for %s", plugin)
	return nil
}

func gpuShareArgs(t *testing.T, c *schedulerconfig.KubeSchedulerConfiguration) *config.GPUShareArgs {
	t.Helper()
	return argsOf[config.GPUShareArgs](t, c, "GPUShare")
}

// with returns the defaults with a change.
func with(change func(*config.GPUShareArgs)) config.GPUShareArgs {
	args := config.GPUShareArgs{
		Policy: "tandem", BindTimeout: metav1.Duration{Duration: 30 * time.Second},
		PodsWithoutGPUs: config.SkipPods, MixHalfLife: metav1.Duration{Duration: 24 * time.Hour},
		Interference: config.InterferenceArgs{Model: "default", Learning: config.LearningEnabled, MaxProfiles: 10000},
		Weights:      config.CostWeights{Fragmentation: 100, Interference: 100, Heterogeneity: 100},
		Sharing:      config.SharingWhenScarce, ScarceBelowPercent: 10, Lifetimes: config.LifetimesEnabled,
	}
	change(&args)
	return args
}

func TestDecode(t *testing.T) {
	tests := []struct {
		name string
		args string
		want config.GPUShareArgs
	}{
		{
			name: "no arguments: defaults",
			want: with(func(*config.GPUShareArgs) {}),
		},
		{
			name: "one field set, the other by default",
			args: "  pluginConfig: [{name: GPUShare, args: {policy: spread}}]",
			want: with(func(a *config.GPUShareArgs) { a.Policy = "spread" }),
		},
		{
			name: "all fields set, with the type written out",
			args: `  pluginConfig:
  - name: GPUShare
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: GPUShareArgs
      policy: bestfit
      bindTimeout: 1m
      seed: -7
      podsWithoutGPUs: Score
      typicalRequests: [{cpu: 500m, memory: 2Gi, vgpu: 3, models: [A100], weight: 2}, {weight: 1}]
      mixHalfLife: 1h
      modelCosts: [{model: A100, cost: 3.06}, {model: Tesla-T4, cost: "0.35"}]
      throughputs: [{profile: bert, model: A100, share: 100, rate: 120.5}]
      interference: {model: rank1, learning: Disabled, maxProfiles: 7}
      weights: {fragmentation: 0, interference: 200, heterogeneity: 3}
      sharing: Always
      scarceBelowPercent: 0
      lifetimes: Disabled
`,
			want: config.GPUShareArgs{
				Policy: "bestfit", BindTimeout: metav1.Duration{Duration: time.Minute}, Seed: -7,
				PodsWithoutGPUs: config.ScorePods, MixHalfLife: metav1.Duration{Duration: time.Hour},
				TypicalRequests: []config.TypicalRequest{
					{CPU: resource.MustParse("500m"), Memory: resource.MustParse("2Gi"), VGPU: 3, Models: []string{"A100"}, Weight: 2}, {Weight: 1},
				},
				ModelCosts: []config.ModelCost{
					{Model: "A100", Cost: resource.MustParse("3.06")}, {Model: "Tesla-T4", Cost: resource.MustParse("0.35")},
				},
				Throughputs:  []config.Throughput{{Profile: "bert", Model: "A100", Share: 100, Rate: resource.MustParse("120.5")}},
				Interference: config.InterferenceArgs{Model: "rank1", Learning: config.LearningDisabled, MaxProfiles: 7},
				Weights:      config.CostWeights{Fragmentation: 0, Interference: 200, Heterogeneity: 3},
				Sharing:      config.SharingAlways, Lifetimes: config.LifetimesDisabled,
			},
		},
		{
			name: "parts of a group set, the others by default",
			args: "  pluginConfig: [{name: GPUShare, args: {interference: {learning: Disabled}, weights: {interference: 0}}}]",
			want: with(func(a *config.GPUShareArgs) {
				a.Interference.Learning, a.Weights.Interference = config.LearningDisabled, 0
			}),
		},
		{
			// An explicit empty string is a value, and an illegal one: it must reach validation.
			name: "empty policy is not absent",
			args: `  pluginConfig: [{name: GPUShare, args: {policy: ""}}]`,
			want: with(func(a *config.GPUShareArgs) { a.Policy = "" }),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := decode(t, configuration(test.args))
			must.OK(t, err)
			if diff := cmp.Diff(&test.want, gpuShareArgs(t, c), equalQuantities); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	tests := []struct {
		name, args string
		want       []string
	}{
		{
			name: "unknown field",
			args: "  pluginConfig: [{name: GPUShare, args: {polcy: spread}}]",
			want: []string{"GPUShare", `unknown field "polcy"`},
		},
		{
			name: "field given twice",
			args: "  pluginConfig: [{name: GPUShare, args: {policy: spread, policy: packed}}]",
			want: []string{`"policy" already set`},
		},
		{
			name: "wrong type of a field",
			args: "  pluginConfig: [{name: GPUShare, args: {policy: 3}}]",
			want: []string{"GPUShareArgs.policy"},
		},
		{
			name: "malformed duration",
			args: "  pluginConfig: [{name: GPUShare, args: {bindTimeout: soon}}]",
			want: []string{"GPUShare", `invalid duration "soon"`},
		},
		{
			name: "a cost that is no number",
			args: "  pluginConfig: [{name: GPUShare, args: {modelCosts: [{model: A100, cost: dear}]}}]",
			want: []string{"GPUShare", "quantities must match"},
		},
		{
			name: "unknown field of a group",
			args: "  pluginConfig: [{name: GPUShare, args: {weights: {fragmentaton: 1}}}]",
			want: []string{"GPUShare", `unknown field "weights.fragmentaton"`},
		},
		{
			name: "part of a percent",
			args: "  pluginConfig: [{name: GPUShare, args: {weights: {fragmentation: 0.5}}}]",
			want: []string{"number 0.5", "weights.fragmentation"},
		},
		{
			name: "wrong kind",
			args: "  pluginConfig: [{name: GPUShare, args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeAffinityArgs}}]",
			want: []string{"args for plugin GPUShare were not of type GPUShareArgs", "NodeAffinityArgs"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := decode(t, configuration(test.args))
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

// The scheduler prints its whole configuration at start in the versioned form: arguments must survive the way there
// and back.
func TestRoundTrip(t *testing.T) {
	c, err := decode(t, configuration("  pluginConfig: [{name: GPUShare, args: {policy: spread, bindTimeout: 7s, seed: 3, "+
		"typicalRequests: [{cpu: 500m, models: [A100], weight: 2}], modelCosts: [{model: A100, cost: 3.06}], "+
		"throughputs: [{profile: bert, model: A100, share: 100, rate: 120.5}], "+
		"interference: {model: none}, weights: {heterogeneity: 0}, sharing: Always}}]"))
	must.OK(t, err)
	info, ok := runtime.SerializerInfoForMediaType(inTree.Codecs.SupportedMediaTypes(), runtime.ContentTypeYAML)
	if !ok {
		t.Fatal("the scheduler's codecs know no YAML")
	}
	version := inTree.Scheme.PrioritizedVersionsForGroup(schedulerconfig.GroupName)[0]
	raw, err := runtime.Encode(inTree.Codecs.EncoderForVersion(info.Serializer, version), c)
	must.OK(t, err)
	again, err := decode(t, raw)
	must.OK(t, err)
	if diff := cmp.Diff(gpuShareArgs(t, c), gpuShareArgs(t, again), equalQuantities); diff != "" {
		t.Errorf("arguments after encoding and decoding (-before +after):\n%s", diff)
	}
}
