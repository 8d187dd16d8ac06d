package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/test/must"
)

func profiles(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	must.OK(t, err)
	return c.Resource(v1alpha1.WorkloadProfiles).Namespace(team)
}

// asObject returns a profile as clients without its type send it.
func asObject(t *testing.T, profile *v1alpha1.WorkloadProfile) *unstructured.Unstructured {
	t.Helper()
	profile.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkloadProfile"))
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(profile)
	must.OK(t, err)
	return &unstructured.Unstructured{Object: object}
}

func workload(name string, learned bool) *v1alpha1.WorkloadProfile {
	p := &v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: team}}
	if learned {
		p.Labels = map[string]string{v1alpha1.LabelLearned: "true"}
	}
	return p
}

// store creates a profile as the scheduler or an administrator, and removes it when the test ends.
func store(t *testing.T, who account, p *v1alpha1.WorkloadProfile) *unstructured.Unstructured {
	t.Helper()
	stored, err := profiles(t, as(t.Context(), t, who)).Create(t.Context(), asObject(t, p), metav1.CreateOptions{})
	must.OK(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := profiles(t, cluster.Admin()).Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("remove WorkloadProfile: %v", err)
		}
	})
	return stored
}

// declared returns the YAML-like form of a spec with one use and one point.
func declared(use, point map[string]any) map[string]any {
	spec := map[string]any{}
	if use != nil {
		spec["uses"] = []any{use}
	}
	if point != nil {
		spec["throughputs"] = []any{point}
	}
	return spec
}

// manyUses returns n uses of different models.
func manyUses(n int) map[string]any {
	var list []any
	for i := range n {
		list = append(list, map[string]any{"model": fmt.Sprint("m", i), "memory": "8Gi"})
	}
	return map[string]any{"uses": list}
}

// manyPoints returns n points of different shares with rate and latency.
func manyPoints(n int) map[string]any {
	var list []any
	for i := range n {
		list = append(list, map[string]any{
			"model": fmt.Sprint("m", i/100), "sharePercent": int64(i%100 + 1), "rate": "120.000001", "latency": "1h0m0s",
		})
	}
	return map[string]any{"throughputs": list}
}

// spread returns a spec with slowdowns at levels, in turn.
func spread(pairs ...any) map[string]any {
	var list []any
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, map[string]any{"topologyKey": pairs[i], "slowdown": pairs[i+1]})
	}
	return map[string]any{"spread": list}
}

// manySpreads returns n slowdowns at different levels.
func manySpreads(n int) map[string]any {
	var pairs []any
	for i := range n {
		pairs = append(pairs, fmt.Sprint("level", i), "1.1")
	}
	return spread(pairs...)
}

func TestWorkloadProfileSchema(t *testing.T) {
	use := func(pairs ...any) map[string]any {
		u := map[string]any{"model": "A100"}
		for i := 0; i < len(pairs); i += 2 {
			u[pairs[i].(string)] = pairs[i+1]
		}
		return declared(u, nil)
	}
	point := func(share int64, pairs ...any) map[string]any {
		p := map[string]any{"model": "A100", "sharePercent": share}
		for i := 0; i < len(pairs); i += 2 {
			p[pairs[i].(string)] = pairs[i+1]
		}
		return declared(nil, p)
	}
	graph := func(parameters, activations, batch, depth int64) map[string]any {
		return map[string]any{"graph": map[string]any{
			"parameters": parameters, "activations": activations, "batchSize": batch, "depth": depth,
		}}
	}
	classes := interference.ClassNames()
	tests := []struct {
		name string
		spec map[string]any
		want string // "" when legal
	}{
		{name: "nothing", spec: map[string]any{}},
		{name: "a whole use", spec: use("smUtilizationPercent", int64(0), "memoryBandwidthPercent", int64(100), "pcieUtilizationPercent", int64(3), "memory", "8Gi", "step", "40ms", "class", "training")},
		{name: "a use of any model", spec: declared(map[string]any{"model": "*", "memory": "8Gi"}, nil)},
		{name: "the last class", spec: use("class", classes[len(classes)-1])},
		{name: "as many uses as can be", spec: manyUses(64)},
		{name: "too many uses", spec: manyUses(65), want: "spec.uses: Too many"},
		{name: "two uses of one model", spec: map[string]any{"uses": []any{
			map[string]any{"model": "T4", "memory": "8Gi"}, map[string]any{"model": "T4", "memory": "9Gi"},
		}}, want: "spec.uses[1]: Duplicate value"},
		{name: "a use that tells nothing", spec: use(), want: "a use tells at least one of"},
		{name: "a use without a model", spec: declared(map[string]any{"memory": "8Gi"}, nil), want: "spec.uses[0].model: Required value"},
		{name: "an empty model", spec: declared(map[string]any{"model": "", "memory": "8Gi"}, nil), want: "spec.uses[0].model"},
		{name: "utilisation above 100", spec: use("smUtilizationPercent", int64(101)), want: "spec.uses[0].smUtilizationPercent: Invalid value: 101"},
		{name: "negative bandwidth", spec: use("memoryBandwidthPercent", int64(-1)), want: "spec.uses[0].memoryBandwidthPercent: Invalid value: -1"},
		{name: "utilisation in words", spec: use("pcieUtilizationPercent", "NaN"), want: "spec.uses[0].pcieUtilizationPercent"},
		{name: "part of a percent", spec: use("smUtilizationPercent", 0.5), want: "spec.uses[0].smUtilizationPercent"},
		{name: "no memory", spec: use("memory", "0"), want: "spec.uses[0].memory"},
		{name: "negative memory", spec: use("memory", "-1Gi"), want: "spec.uses[0].memory"},
		{name: "memory with an exponent", spec: use("memory", "1e999999999"), want: "spec.uses[0].memory"},
		{name: "unknown class", spec: use("class", "mining"), want: `spec.uses[0].class: Unsupported value: "mining"`},
		{name: "a step that takes no time", spec: use("step", "0s"), want: "step must be from 1us to 1h"},
		{name: "a step of a day", spec: use("step", "24h"), want: "step must be from 1us to 1h"},
		{name: "a graph", spec: graph(25_600_000, 11_000_000, 32, 50)},
		{name: "a graph without layers", spec: graph(1, 1, 1, 0), want: "spec.graph.depth"},
		{name: "a graph beyond all models", spec: graph(1e13+1, 1, 1, 1), want: "spec.graph.parameters"},
		{name: "half a graph", spec: map[string]any{"graph": map[string]any{"parameters": int64(1)}}, want: "spec.graph.batchSize: Required value"},
		{name: "a rate", spec: point(50, "rate", "0.5")},
		{name: "a rate as a number", spec: point(100, "rate", int64(120))},
		{name: "a latency on two devices", spec: point(200, "latency", "40ms")},
		{name: "the shortest latency", spec: point(1, "latency", "1us")},
		{name: "the longest latency on the most devices", spec: point(12800, "latency", "1h0m0s")},
		{name: "as many points as can be", spec: manyPoints(256)},
		{name: "too many points", spec: manyPoints(257), want: "spec.throughputs: Too many"},
		{name: "two points of one share", spec: map[string]any{"throughputs": []any{
			map[string]any{"model": "T4", "sharePercent": int64(5), "rate": "1"}, map[string]any{"model": "T4", "sharePercent": int64(5), "latency": "1s"},
		}}, want: "spec.throughputs[1]: Duplicate value"},
		{name: "a point that tells nothing", spec: point(50), want: "a point tells a rate, a latency, or both"},
		{name: "a point of any model", spec: declared(nil, map[string]any{"model": "*", "sharePercent": int64(5), "rate": "1"}), want: "spec.throughputs[0].model"},
		{name: "no share", spec: point(0, "rate", "1"), want: "spec.throughputs[0].sharePercent"},
		{name: "a device and a half", spec: point(150, "rate", "1"), want: "a multiple of 100 up to 12800"},
		{name: "too many devices", spec: point(12900, "rate", "1"), want: "spec.throughputs[0].sharePercent"},
		{name: "a rate with an exponent", spec: point(50, "rate", "1e9"), want: "spec.throughputs[0].rate"},
		{name: "a negative rate", spec: point(50, "rate", "-1"), want: "spec.throughputs[0].rate"},
		{name: "a latency without a unit", spec: point(50, "latency", "40"), want: "spec.throughputs[0].latency"},
		{name: "a negative latency", spec: point(50, "latency", "-40ms"), want: "spec.throughputs[0].latency"},
		{name: "no latency at all", spec: point(50, "latency", "0s"), want: "latency must be from 1us to 1h"},
		{name: "too long a latency", spec: point(50, "latency", "60m1s"), want: "latency must be from 1us to 1h"},
		{name: "slowdowns at three levels", spec: spread("kubernetes.io/hostname", "1.02", "nvlink", "1", "topology.kubernetes.io/zone", "10.000")},
		{name: "no slowdown, as a number", spec: spread("rack", int64(1))},
		{name: "the largest slowdown, as a number", spec: spread("rack", int64(10))},
		{name: "as many levels as can be", spec: manySpreads(8)},
		{name: "too many levels", spec: manySpreads(9), want: "spec.spread: Too many"},
		{name: "two slowdowns at one level", spec: spread("rack", "1.1", "rack", "1.2"), want: "spec.spread[1]: Duplicate value"},
		{name: "a slowdown at no level", spec: map[string]any{"spread": []any{map[string]any{"slowdown": "1.1"}}}, want: "spec.spread[0].topologyKey: Required value"},
		{name: "a level without a slowdown", spec: map[string]any{"spread": []any{map[string]any{"topologyKey": "rack"}}}, want: "spec.spread[0].slowdown: Required value"},
		{name: "faster apart", spec: spread("rack", "0.999"), want: "spec.spread[0].slowdown"},
		{name: "too slow", spec: spread("rack", "10.001"), want: "spec.spread[0].slowdown"},
		{name: "too many decimals", spec: spread("rack", "1.0001"), want: "spec.spread[0].slowdown"},
		{name: "a slowdown in percent", spec: spread("rack", "2%"), want: "spec.spread[0].slowdown"},
		{name: "a slowdown of 0", spec: spread("rack", int64(0)), want: "slowdown must be a decimal from 1 to 10"},
		{name: "a slowdown of 11", spec: spread("rack", int64(11)), want: "slowdown must be a decimal from 1 to 10"},
		{name: "a slowdown without quotes", spec: spread("rack", 1.02), want: "spec.spread[0].slowdown"},
		{name: "an unknown field", spec: map[string]any{"utilisation": int64(3)}, want: `unknown field "spec.utilisation"`},
	}
	all := profiles(t, cluster.Admin())
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			object := asObject(t, workload("schema", false))
			object.Object["spec"] = test.spec
			strict := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
			_, err := all.Create(t.Context(), object, strict)
			if test.want != "" {
				wantRefusal(t, err, test.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// Every class of work that core knows can be declared, and no other.
func TestClassesOfTheSchema(t *testing.T) {
	all := profiles(t, cluster.Admin())
	for _, class := range append(interference.ClassNames(), "class(9)") {
		object := asObject(t, workload("classes", false))
		object.Object["spec"] = declared(map[string]any{"model": "*", "class": class}, nil)
		_, err := all.Create(t.Context(), object, dryRun)
		if _, unknown := interference.ClassByName(class); (err == nil) != (unknown == nil) {
			t.Errorf("class %s: the schema says %v, core %v", class, err, unknown)
		}
	}
}

// The schema and the arguments of the scheduler agree on what a level of a topology is.
func TestLevelsOfTheSchema(t *testing.T) {
	all := profiles(t, cluster.Admin())
	for _, key := range []string{
		"nvlink", "rack", "R", "a-b_c.d", "kubernetes.io/hostname", "example.com/Row-1", "a/b", strings.Repeat("a", 63), strings.Repeat("a", 253) + "/" + strings.Repeat("b", 63),
		"", " ", "a b", "/", "/rack", "example.com/", "a/b/c", "-rack", "rack-", "Example.com/row", "example..com/row", "exa_mple.com/row", "räck",
		strings.Repeat("a", 64), "a/" + strings.Repeat("b", 64), strings.Repeat("a", 254) + "/b", "rack\n",
	} {
		object := asObject(t, workload("levels", false))
		object.Object["spec"] = spread(key, "1.1")
		_, err := all.Create(t.Context(), object, dryRun)
		if (err == nil) != config.IsLevel(key) {
			t.Errorf("level %q: the schema says %v, the arguments %v", key, err, config.IsLevel(key))
		}
	}
}

// The scheduler's arguments name the models that core has, and no other: "table" needs measured pairs.
func TestModelsOfTheArguments(t *testing.T) {
	want := slices.DeleteFunc(interference.Models(), func(name string) bool { return name == "table" })
	if diff := cmp.Diff(want, config.InterferenceModels()); diff != "" {
		t.Errorf("core has (-), the arguments name (+):\n%s", diff)
	}
}

// learnedStatus is a status with all fields.
func learnedStatus() v1alpha1.WorkloadProfileStatus {
	sm, memory, rate := int32(80), resource.MustParse("8Gi"), resource.MustParse("120.5")
	return v1alpha1.WorkloadProfileStatus{
		Workload: &v1alpha1.LearnedWorkload{OwnerKind: "Deployment.apps", OwnerName: "bert", Images: []string{"registry/bert@sha256:0"}},
		Learned: []v1alpha1.LearnedUse{{
			Model: "A100", SMUtilizationPercent: &sm, Memory: &memory, SoloObservations: 12, SoloRate: &rate,
			SensitivityMilli: -4000, PressureMilli: 4000, OffsetMilli: 12, SureSensitivityMilli: 1000, SurePressureMilli: 0, SureOffsetMilli: 500, CoRuns: 7, Neighbours: 3, LastObserved: &metav1.Time{Time: time.Unix(1_800_000_000, 0)},
		}},
		CoRuns: 7,
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionConsistent, Status: metav1.ConditionTrue, Reason: v1alpha1.ConsistentAgrees,
			LastTransitionTime: metav1.Time{Time: time.Unix(1_800_000_000, 0)},
		}},
	}
}

// The API server refuses values that core cannot have learned.
func TestLearnedSchema(t *testing.T) {
	all := profiles(t, as(t.Context(), t, scheduler))
	stored := store(t, scheduler, workload("learned-3", true))
	for want, change := range map[string]func(*v1alpha1.LearnedUse){
		"status.learned[0].smUtilizationPercent": func(l *v1alpha1.LearnedUse) { l.SMUtilizationPercent = new(int32(101)) },
		"status.learned[0].memory":               func(l *v1alpha1.LearnedUse) { l.Memory = new(resource.MustParse("-1")) },
		"status.learned[0].soloRate":             func(l *v1alpha1.LearnedUse) { l.SoloRate = new(resource.MustParse("-1")) },
		"status.learned[0].soloSharePercent":     func(l *v1alpha1.LearnedUse) { l.SoloSharePercent = new(int32(0)) },
		"status.learned[0].sensitivityMilli":     func(l *v1alpha1.LearnedUse) { l.SensitivityMilli = 4001 },
		"status.learned[0].pressureMilli":        func(l *v1alpha1.LearnedUse) { l.PressureMilli = -4001 },
		"status.learned[0].offsetMilli":          func(l *v1alpha1.LearnedUse) { l.OffsetMilli = 4001 },
		"status.learned[0].sureSensitivityMilli": func(l *v1alpha1.LearnedUse) { l.SureSensitivityMilli = 1001 },
		"status.learned[0].surePressureMilli":    func(l *v1alpha1.LearnedUse) { l.SurePressureMilli = -1 },
		"status.learned[0].coRuns":               func(l *v1alpha1.LearnedUse) { l.CoRuns = 1 << 31 },
		"status.learned[0].neighbours":           func(l *v1alpha1.LearnedUse) { l.Neighbours = -1 },
		"status.learned[0].model":                func(l *v1alpha1.LearnedUse) { l.Model = "" },
	} {
		p := workload("learned-3", true)
		p.Status = learnedStatus()
		change(&p.Status.Learned[0])
		object := stored.DeepCopy()
		object.Object["status"] = asObject(t, p).Object["status"]
		_, err := all.UpdateStatus(t.Context(), object, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		wantRefusal(t, err, want)
	}
}

// The API server serves the resource under its short name and in its category.
func TestWorkloadProfileIsListedByItsShortName(t *testing.T) {
	lists, err := client(t.Context(), t, admin).Discovery().ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	must.OK(t, err)
	i := slices.IndexFunc(lists.APIResources, func(r metav1.APIResource) bool { return r.Name == "workloadprofiles" })
	if i < 0 {
		t.Fatalf("the API server serves %v", lists.APIResources)
	}
	r := lists.APIResources[i]
	if !r.Namespaced || !slices.Contains(r.ShortNames, "wp") || !slices.Contains(r.Categories, "tandem") || !strings.EqualFold(r.Kind, "WorkloadProfile") {
		t.Errorf("served as %+v", r)
	}
}
