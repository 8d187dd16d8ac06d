package deploy

import (
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// exampleFleet returns the fleet of examples/inference.
func exampleFleet(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile("../../examples/inference/fleet.yaml")
	must.OK(t, err)
	first, _, _ := strings.Cut(string(text), "\n---\n")
	raw, err := yaml.YAMLToJSON([]byte(first))
	must.OK(t, err)
	o := &unstructured.Unstructured{}
	must.OK(t, o.UnmarshalJSON(raw))
	return o
}

// The example is legal as it stands, and the schema refuses what the controller cannot use.
func TestInferenceFleetSchema(t *testing.T) {
	c, err := dynamic.NewForConfig(as(t.Context(), t, admin))
	must.OK(t, err)
	// at changes what stands at a path of the spec; nil removes it.
	type at map[string]any
	most := func(n int) []any {
		var all []any
		for i := range n {
			v := exampleFleet(t).Object["spec"].(map[string]any)["variants"].([]any)[0].(map[string]any)
			v["name"] = fmt.Sprint("v", i)
			v["service"].(map[string]any)["name"] = fmt.Sprint("s", i)
			v["scaleTargetRef"].(map[string]any)["name"] = strings.Repeat("t", 250) + fmt.Sprint(i)
			all = append(all, v)
		}
		return all
	}
	for _, test := range []struct {
		name   string
		change at
		want   string // "" when legal
	}{
		{"the example", nil, ""},
		{"as many variants as can be", at{"variants": most(16)}, ""},
		{"too many variants", at{"variants": most(17)}, "spec.variants: Too many"},
		{"no variants", at{"variants": []any{}}, "spec.variants"},
		{"two variants of one name", at{"variants.1.name": "a100"}, "spec.variants[1]: Duplicate value"},
		{"two variants of one Service", at{"variants.1.service.name": "bert-a100"}, "two variants name one Service"},
		{"two variants of one InferencePool", at{"variants.0.inferencePool": "pool", "variants.1.inferencePool": "pool"}, "two variants name one InferencePool"},
		{"an InferencePool with a name that is not legal", at{"variants.0.inferencePool": "Pool"}, "spec.variants[0].inferencePool"},
		{"two variants of one target", at{"variants.1.scaleTargetRef.name": "bert-a100"}, "two variants name one scale target"},
		{"bounds that cross", at{"variants.0.minReplicas": int64(9)}, "minReplicas must be at most maxReplicas"},
		{"too many replicas", at{"variants.0.maxReplicas": int64(10001)}, "maxReplicas"},
		{"a cost of 0", at{"variants.0.cost": int64(0)}, "cost"},
		{"no cost", at{"variants.0.cost": nil}, ""},
		{"a median", at{"promise.quantile": "0.5"}, ""},
		{"a quantile below the median", at{"promise.quantile": "0.49"}, "quantile must be a decimal from 0.5 to below 1"},
		{"a quantile of 1", at{"promise.quantile": "1"}, "spec.promise.quantile"},
		{"a quantile in percent", at{"promise.quantile": "99"}, "quantile must be a decimal from 0.5 to below 1"},
		{"no quantile", at{"promise.quantile": nil}, ""},
		{"a promise of 0", at{"promise.latency": "0s"}, "latency must be a duration from 1us to 24h, such as 200ms"},
		{"a promise of days", at{"promise.latency": "25h"}, "latency must be a duration from 1us to 24h, such as 200ms"},
		{"a promise without a unit", at{"promise.latency": "200"}, "latency must be a duration from 1us to 24h"},
		{"no promise", at{"promise.latency": nil}, "spec.promise.latency: Required"},
		{"a rate of 0", at{"variants.0.replica.rate": "0.00"}, "rate must be a decimal above 0"},
		{"a rate in words", at{"variants.0.replica.rate": "fast"}, "rate must be a decimal above 0"},
		{"a variation below 0", at{"variants.0.replica.variation": "-1"}, "variation must be a decimal from 0"},
		{"a gate", at{"variants.0.replica.gate": "5ms"}, ""},
		{"a gate without a unit", at{"variants.0.replica.gate": "5"}, "gate must be a duration from 0s to 24h, such as 5ms"},
		{"a time in words", at{"variants.0.replica.time": "25 ms"}, "time must be a duration from 1us to 24h, such as 25ms"},
		{"a load time in words", at{"variants.0.loadTime": "a minute"}, "loadTime must be a duration from 0s to 24h"},
		{"a profile", at{"variants.0.replica": nil, "variants.0.profile": "bert"}, ""},
		{"the profile of the pods", at{"variants.0.replica": nil}, ""},
		{"a profile and a replica", at{"variants.0.profile": "bert"}, "replica and profile say the same thing: remove one of them"},
		{"an empty profile", at{"variants.0.replica": nil, "variants.0.profile": ""}, "spec.variants[0].profile"},
		{"a profile without a model", at{"variants.0.replica": nil, "variants.0.gpuModel": nil}, "without replica, gpuModel and slots are needed"},
		{"a profile without slots", at{"variants.0.replica": nil, "variants.0.slots": nil}, "without replica, gpuModel and slots are needed"},
		{"a profile with a promise of tokens", at{"variants.0.replica": nil, "variants.1.replica": nil, "promise.of": "FirstToken", "promise.perToken": "40ms", "metrics.preset": "vllm"}, ""},
		{"a replica without tokens beside a profile", at{"variants.0.replica": nil, "promise.of": "FirstToken", "metrics.preset": "vllm"}, "each variant needs replica.firstToken"},
		{"a load time of days", at{"variants.0.loadTime": "24h1s"}, "loadTime must be a duration from 0s to 24h, such as 60s"},
		{"an unknown objective", at{"objective": "fair"}, "spec.objective: Unsupported value"},
		{"an unknown preset", at{"metrics.preset": "seldon"}, "spec.metrics.preset: Unsupported value"},
		{"no preset and no queries", at{"metrics.preset": nil}, "without a preset, queries must have rate or variantRate"},
		{"queries without a rate", at{"metrics.preset": nil, "metrics.queries": map[string]any{"latency": "x"}}, "without a preset, queries must have rate or variantRate"},
		{"queries with a rate", at{"metrics.preset": nil, "metrics.queries": map[string]any{"rate": "x"}}, ""},
		{"a window of seconds", at{"metrics.window": "29s"}, "window must be a duration from 30s to 10m, such as 1m"},
		{"no address", at{"metrics.prometheusURL": nil}, "prometheusURL is missing: only the preset reported does without"},
		{"reported rates", at{"metrics.prometheusURL": nil, "metrics.preset": "reported"}, ""},
		{"reported rates and a query", at{"metrics.preset": "reported", "metrics.queries": map[string]any{"latency": "x"}}, ""},
		{"a query without an address", at{"metrics.prometheusURL": nil, "metrics.preset": "reported", "metrics.queries": map[string]any{"latency": "x"}}, "queries need prometheusURL"},
		{"an address with a password", at{"metrics.prometheusURL": "http://a:b@prometheus"}, "prometheusURL must be http:// or https:// with a host"},
		{"an address of a file", at{"metrics.prometheusURL": "file:///etc/passwd"}, "prometheusURL must be http:// or https:// with a host"},
		{"an address with a blank", at{"metrics.prometheusURL": "http://prometheus /"}, "prometheusURL must be"},
		{"an address with a path", at{"metrics.prometheusURL": "https://prometheus:9090/team-a"}, ""},
		{"an address without http", at{"metrics.prometheusURL": "prometheus:9090"}, "prometheusURL must be"},
		{"a rule below 0", at{"route.httpRoute.rule": int64(-1)}, "spec.route.httpRoute.rule"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := exampleFleet(t)
			for path, value := range test.change {
				set(t, o.Object["spec"], strings.Split(path, "."), value)
			}
			_, err := c.Resource(v1alpha1.InferenceFleets).Namespace(team).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

// set changes what stands at a path. A number in the path is the index of a list.
func set(t *testing.T, in any, path []string, value any) {
	t.Helper()
	switch c := in.(type) {
	case []any:
		var i int
		if _, err := fmt.Sscan(path[0], &i); err != nil {
			t.Fatal(err)
		}
		set(t, c[i], path[1:], value)
	case map[string]any:
		switch {
		case len(path) > 1:
			set(t, c[path[0]], path[1:], value)
		case value == nil:
			delete(c, path[0])
		default:
			c[path[0]] = value
		}
	}
}

// The pods of the example ask for what it says of its variants, and the parts refer to one another.
func TestInferenceExample(t *testing.T) {
	text, err := os.ReadFile("../../examples/inference/fleet.yaml")
	must.OK(t, err)
	var fleet v1alpha1.InferenceFleet
	deployments, services := map[string]*appsv1.Deployment{}, map[string]*corev1.Service{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		into := map[string]any{"\nkind: InferenceFleet\n": &fleet, "\nkind: Deployment\n": &appsv1.Deployment{}, "\nkind: Service\n": &corev1.Service{}}
		for kind, o := range into {
			if !strings.Contains("\n"+document, kind) {
				continue
			}
			if err := yaml.UnmarshalStrict([]byte(document), o); err != nil {
				t.Error(err)
			}
			switch o := o.(type) {
			case *appsv1.Deployment:
				deployments[o.Name] = o
			case *corev1.Service:
				services[o.Name] = o
			}
		}
	}
	if len(fleet.Spec.Variants) != 2 {
		t.Fatalf("the fleet has %d variants", len(fleet.Spec.Variants))
	}
	for i := range fleet.Spec.Variants {
		v := &fleet.Spec.Variants[i]
		d, s := deployments[v.ScaleTargetRef.Name], services[v.Service.Name]
		if d == nil || s == nil {
			t.Errorf("variant %s names Deployment %v and Service %v", v.Name, d, s)
			continue
		}
		pods := d.Spec.Template
		slots := pods.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceVGPU]
		if pods.Annotations[v1alpha1.AnnotationModels] != v.GPUModel || slots.Value() != int64(v.Slots) || pods.Spec.SchedulerName != v1alpha1.SchedulerName {
			t.Errorf("variant %s is %d slots of %s, and its pods ask for %v of %v", v.Name, v.Slots, v.GPUModel, &slots, pods.Annotations)
		}
		if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pods.Labels)) || s.Spec.Ports[0].Port != v.Service.Port {
			t.Errorf("variant %s: Service %+v does not select %v", v.Name, s.Spec, pods.Labels)
		}
	}
}
