package deploy

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const bySlowdown = "ValidatingAdmissionPolicy 'tandem-slowdown'"

// strictestLabel is the label of a namespace that says which promises are legal in it.
const strictestLabel = v1alpha1.Domain + "/strictest-slowdown"

// promising returns a pod with a container for each number of slots.
func promising(slowdown string, slots ...string) *corev1.Pod {
	p := pod("promising")
	p.Annotations = map[string]string{v1alpha1.AnnotationMaxSlowdown: slowdown}
	p.Spec.Containers = nil
	for i, n := range slots {
		p.Spec.Containers = append(p.Spec.Containers, container(fmt.Sprint("c", i), v1alpha1.ResourceVGPU, n))
	}
	return p
}

func tolerates(slowdown string, subresources ...string) request {
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationMaxSlowdown, slowdown)
	return patch(types.MergePatchType, body, subresources...)
}

// A promise takes slots: N × 0.1 ÷ (0.1 + s − 1) of ten for a slowdown of s.
func TestPromisesArePaidFor(t *testing.T) {
	for _, test := range []struct {
		slowdown string
		slots    []string
		want     []string // none where it is legal
	}{
		{"1", []string{"10"}, nil},
		{"1", []string{"20"}, nil},
		{"1", []string{"1k"}, nil},
		{"1", []string{"9"}, []string{"takes at least 10 of 10 slots", "asks for 9", "tolerate at least 1.012"}},
		{"1", []string{"1"}, []string{"takes at least 10 of 10 slots", "asks for 1:", "tolerate at least 1.9"}},
		{"1.012", []string{"9"}, nil},
		{"1.011", []string{"9"}, []string{"takes at least 10 of 10 slots"}},
		{"1.1", []string{"5"}, nil},
		{"1.1", []string{"4"}, []string{"takes at least 5 of 10 slots", "tolerate at least 1.15"}},
		{"1.15", []string{"4"}, nil},
		{"1.4", []string{"2"}, nil},
		{"1.399", []string{"2"}, []string{"takes at least 3 of 10 slots", "tolerate at least 1.4"}},
		{"1.9", []string{"1"}, nil},
		{"10", []string{"1"}, nil},
		{"1.1", []string{"9", "1"}, []string{"asks for 1:"}}, // the second may be on a device of its own
		{"1.1", []string{"5", "6"}, nil},
		{"0.9", []string{"10"}, []string{`"0.9" is not legal`}},
		{"1e0", []string{"10"}, []string{"is not legal"}},
		{"1.0000", []string{"10"}, []string{"is not legal"}},
		{"", []string{"10"}, []string{"is not legal"}},
		{"10.001", []string{"10"}, []string{"is not legal"}},
	} {
		t.Run(fmt.Sprint(test.slowdown, " for ", test.slots), func(t *testing.T) {
			_, err := client(t.Context(), t, jane).CoreV1().Pods(team).Create(t.Context(), promising(test.slowdown, test.slots...), dryRun)
			if test.want != nil {
				wantRefusal(t, err, append(test.want, bySlowdown, v1alpha1.AnnotationMaxSlowdown)...)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// An init container may be alone on a device too.
func TestPromisesOfInitContainersArePaidFor(t *testing.T) {
	p := promising("1.1", "10")
	p.Spec.InitContainers = []corev1.Container{container("warmup", v1alpha1.ResourceVGPU, "1")}
	_, err := client(t.Context(), t, jane).CoreV1().Pods(team).Create(t.Context(), p, dryRun)
	wantRefusal(t, err, bySlowdown, "asks for 1:")
}

// From its creation on a pod can tolerate more, not less, whoever says so and however.
func TestPromisesOnlyLoosen(t *testing.T) {
	c := client(t.Context(), t, jane)
	for _, p := range []*corev1.Pod{
		create(t.Context(), t, c, promising("1.5", "2")),
		func() *corev1.Pod {
			p := create(t.Context(), t, c, promising("1.5", "2"))
			if err := client(t.Context(), t, scheduler).CoreV1().Pods(team).Bind(t.Context(), binding(p, genuine), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			return get(t.Context(), t, p)
		}(),
	} {
		for _, who := range []account{admin, jane} {
			by := client(t.Context(), t, who)
			wantRefusal(t, tolerates("1.499")(t.Context(), by, p), bySlowdown, "can only tolerate more")
			wantRefusal(t, tolerates("1")(t.Context(), by, p), bySlowdown)
			wantRefusal(t, tolerates("1", "status")(t.Context(), by, p), bySlowdown)
			wantRefusal(t, tolerates("any")(t.Context(), by, p), bySlowdown, "is not legal")
		}
		for _, step := range []struct {
			send request
			want string
		}{
			{tolerates("1.500"), ""}, {tolerates("2"), ""}, {tolerates("1.5"), bySlowdown}, {tolerates("10.0"), ""},
			{patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationMaxSlowdown)), ""},
			{tolerates("10"), bySlowdown}, // any slowdown was tolerated
		} {
			err := step.send(t.Context(), c, p)
			if step.want != "" {
				wantRefusal(t, err, step.want, "can only tolerate more")
			} else if err != nil {
				t.Error(err)
			}
		}
	}
}

// A Binding merges annotations and labels into the pod past the policies on pods.
func TestBindingsBringNoKeysOfTandem(t *testing.T) {
	c := client(t.Context(), t, jane)
	legacy := func(ctx context.Context, c kubernetes.Interface, b *corev1.Binding) error {
		return c.CoreV1().RESTClient().Post().Namespace(team).Resource("bindings").Body(b).Do(ctx).Error()
	}
	direct := func(ctx context.Context, c kubernetes.Interface, b *corev1.Binding) error {
		return c.CoreV1().Pods(team).Bind(ctx, b, metav1.CreateOptions{})
	}
	for key, label := range map[string]bool{
		v1alpha1.AnnotationMaxSlowdown: false, v1alpha1.AnnotationCheckpointTime: false, v1alpha1.Domain + "/no-such": false,
		v1alpha1.LabelGang: true, v1alpha1.LabelProfile: true,
	} {
		for name, send := range map[string]func(context.Context, kubernetes.Interface, *corev1.Binding) error{"pods/binding": direct, "bindings": legacy} {
			for _, who := range []account{admin, jane, scheduler} {
				if who == scheduler && name == "bindings" {
					continue // RBAC refuses it
				}
				t.Run(fmt.Sprint(key, " by ", name, " of ", who), func(t *testing.T) {
					p := create(t.Context(), t, c, pod("bound"))
					b := binding(p, "")
					field := "metadata.annotations["
					if label {
						b.Labels, field = map[string]string{key: "1"}, "metadata.labels["
					} else {
						b.Annotations = map[string]string{key: "1"}
					}
					wantRefusal(t, send(t.Context(), client(t.Context(), t, who), b), byBindingPolicy, field+key+"]", "when you create it")
				})
			}
		}
	}
	p := create(t.Context(), t, c, plainPod())
	b := binding(p, "")
	b.Annotations, b.Labels = map[string]string{"example.com/device": "3"}, map[string]string{"example.com/bound": "yes"}
	if err := direct(t.Context(), client(t.Context(), t, kubeScheduler), b); err != nil {
		t.Errorf("keys of another scheduler: %v", err)
	}
}

// An administrator bounds promises by a label of the namespace, stricter or looser than the cluster's.
func TestStrictestSlowdownOfNamespace(t *testing.T) {
	c := client(t.Context(), t, admin)
	for name, test := range map[string]struct {
		label   string
		legal   string
		refused string
		want    string
	}{
		"bounded":  {"1.5", "1.5", "1.499", "name at least 1.5"},
		"free":     {"1", "1", "0.5", "is not legal"},
		"misspelt": {"none", "", "10", "no promise is legal"},
	} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "promises-" + name, Labels: map[string]string{strictestLabel: test.label}}}
		if _, err := c.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		send := func(slowdown string) error {
			p := promising(slowdown, "10")
			p.Namespace = namespace.Name
			_, err := c.CoreV1().Pods(namespace.Name).Create(t.Context(), p, dryRun)
			return err
		}
		wantRefusal(t, send(test.refused), bySlowdown, test.want)
		if test.legal == "" {
			continue
		}
		if err := send(test.legal); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Sizes that no device has are refused with those that are legal, however the number is written.
func TestSizes(t *testing.T) {
	for _, test := range []struct{ resource, size, want string }{
		{v1alpha1.ResourceVGPU, "0", "from 1 to 128000"}, {v1alpha1.ResourceVGPU, "1e3000000", "from 1 to 128000"},
		{v1alpha1.ResourceVGPU, "1000000", "from 1 to 128000"}, {v1alpha1.ResourceVGPU, "128001", "from 1 to 128000"}, {v1alpha1.ResourceVGPU, "129k", "from 1 to 128000"}, {v1alpha1.ResourceVGPU, "1E", "from 1 to 128000"},
		{v1alpha1.ResourceVGPU, "3", ""}, {v1alpha1.ResourceVGPU, "1000", ""}, {v1alpha1.ResourceVGPU, "2k", ""}, {v1alpha1.ResourceVGPU, "128", ""}, {v1alpha1.ResourceVGPU, "128k", ""},
		{v1alpha1.ResourceMemory, "8", "from 64Mi to 1Pi"}, {v1alpha1.ResourceMemory, "0", "from 64Mi to 1Pi"},
		{v1alpha1.ResourceMemory, "8M", "from 64Mi to 1Pi"}, {v1alpha1.ResourceMemory, "1e3000000", "from 64Mi to 1Pi"},
		{v1alpha1.ResourceMemory, "9223372036854775808", "from 64Mi to 1Pi"}, {v1alpha1.ResourceMemory, "2Pi", "from 64Mi to 1Pi"},
		{v1alpha1.ResourceMemory, "8Gi", ""}, {v1alpha1.ResourceMemory, "64Mi", ""}, {v1alpha1.ResourceMemory, "8e9", ""},
		{v1alpha1.ResourceMemory, "1500M", ""}, {v1alpha1.ResourceMemory, "1.5Gi", ""}, {v1alpha1.ResourceMemory, "8589934592", ""},
	} {
		t.Run(test.resource+" "+test.size, func(t *testing.T) {
			p := edit(func(s *corev1.PodSpec) {
				s.Containers[0].Resources.Limits[corev1.ResourceName(test.resource)] = resource.MustParse(test.size)
			})
			_, err := client(t.Context(), t, jane).CoreV1().Pods(team).Create(t.Context(), p, dryRun)
			if test.want != "" {
				wantRefusal(t, err, byPods, "spec.containers[0].resources.limits["+test.resource+"]", test.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
