package deploy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Ways around the policies by the shape of the pod: each is refused, by whichever of them.
func TestWaysAround(t *testing.T) {
	hidden := func(n int) *corev1.Pod { // the container with vGPUs is the last of many, under another scheduler
		p := withContainers(n, nil)
		p.Spec.SchedulerName = ""
		p.Spec.Containers = append(p.Spec.Containers, container("last", v1alpha1.ResourceVGPU, "3"))
		return p
	}
	for name, p := range map[string]*corev1.Pod{
		"vGPUs behind more containers than are looked through": hidden(300),
		"vGPUs behind as many as are":                          hidden(127),
		"more containers with vGPUs than any node has GPUs":    withContainers(17, nil, v1alpha1.ResourceVGPU, "1"),
		"vGPUs in the last init container of many": func() *corev1.Pod {
			p := hidden(300)
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, []corev1.Container{container("main")}
			return p
		}(),
		"vGPUs among more resources than are looked through": func() *corev1.Pod {
			p := edit(func(s *corev1.PodSpec) { s.SchedulerName = "" })
			for _, name := range many(200, "example.com/a") {
				p.Spec.Containers[0].Resources.Limits[corev1.ResourceName(name)] = resource.MustParse("1")
			}
			return p
		}(),
		"a forbidden variable behind 1,000 others": func() *corev1.Pod {
			p := pod("x")
			envs(append(many(1000, "V"), "NVIDIA_VISIBLE_DEVICES")...)(p)
			return p
		}(),
		"a device in a nested namespace of names": func() *corev1.Pod {
			p := pod("x")
			asksFor("deviceclass.resource.kubernetes.io/gpu")(p)
			return p
		}(),
		"a path of the host behind 300 volumes": func() *corev1.Pod {
			p := pod("x")
			for _, name := range many(300, "v") {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name})
			}
			volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev"}})(p)
			return p
		}(),
		"an empty path of the host that the empty default allows": func() *corev1.Pod {
			p := pod("x")
			volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "."}})(p)
			return p
		}(),
		"a capability of another spelling behind legal ones": func() *corev1.Pod {
			p := pod("x")
			capability("NET_RAW", "ſys_admin", "CAP_SYS_ADMIN\t")(p)
			return p
		}(),
		"a sidecar of its own seccomp profile": func() *corev1.Pod {
			p := pod("x")
			side := container("side")
			side.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			side.SecurityContext = &corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}
			p.Spec.InitContainers = []corev1.Container{side}
			return p
		}(),
		"zero slots beside devices": func() *corev1.Pod {
			p := edit(func(s *corev1.PodSpec) {
				s.Containers[0].Resources.Limits[v1alpha1.ResourceVGPU] = resource.MustParse("0")
			})
			envs("NVIDIA_VISIBLE_DEVICES")(p)
			return p
		}(),
		"a promise for which a large container pays and a small one does not": promising("1", "10", "10", "1"),
		"a promise of a container that asks for memory alone":                 func() *corev1.Pod { p := promising("1", "1"); asksFor(v1alpha1.ResourceMemory)(p); return p }(),
		"257 annotations of four-byte characters":                             withAnnotations(pod("x"), 257, "", "😀"),
		"annotations whose characters are few and bytes many":                 withAnnotations(pod("x"), 200, "a", strings.Repeat("😀", 200)),
	} {
		t.Run(name, func(t *testing.T) {
			for _, who := range []account{admin, jane} {
				_, err := client(t.Context(), t, who).CoreV1().Pods(team).Create(t.Context(), p, dryRun)
				wantRefusal(t, err, "ValidatingAdmissionPolicy 'tandem-")
			}
		})
	}
}

// The policy lets the annotations of a pod through right up to the bounds, so that a refusal says what it must.
func TestBoundsOfAnnotations(t *testing.T) {
	c := client(t.Context(), t, jane)
	fits := withAnnotations(pod("x"), 255, "a", "")
	bytes := 0
	for key, value := range fits.Annotations {
		bytes += len(key) + len(value)
	}
	fits.Annotations["b"] = strings.Repeat("é", (128<<10-bytes-1)/2)
	if _, err := c.CoreV1().Pods(team).Create(t.Context(), fits, dryRun); err != nil {
		t.Errorf("at the bounds: %v", err)
	}
	fits.Annotations["b"] += "éé"
	_, err := c.CoreV1().Pods(team).Create(t.Context(), fits, dryRun)
	wantRefusal(t, err, byAnnotations, "at most 131072 bytes")
	fits.Annotations["b"], fits.Annotations["c"] = "", ""
	_, err = c.CoreV1().Pods(team).Create(t.Context(), fits, dryRun)
	wantRefusal(t, err, byAnnotations, "at most 256 annotations, not 257")
	if _, err := c.CoreV1().Pods(team).Create(t.Context(), withAnnotations(plainPod(), 1000, "a", "x"), dryRun); err != nil {
		t.Errorf("a pod without vGPUs: %v", err)
	}
}

// A pod cannot be filled up after it was created, and can still be bound, marked and evicted.
func TestFilledPodsStayUsable(t *testing.T) {
	c := client(t.Context(), t, jane)
	p := create(t.Context(), t, c, withAnnotations(pod("filled"), 1, "a", strings.Repeat("x", 128<<10-2)))
	fill := patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{"b":%q}}}`, strings.Repeat("x", 100<<10)))
	wantRefusal(t, fill(t.Context(), c, p), byAnnotations)
	b := binding(p, genuine)
	b.Annotations["example.com/long"] = strings.Repeat("x", 97<<10)
	by := client(t.Context(), t, scheduler)
	wantRefusal(t, by.CoreV1().Pods(team).Bind(t.Context(), b, metav1.CreateOptions{}), byBindingPolicy, "98304 bytes")
	b.Annotations["example.com/long"] = strings.Repeat("x", 95<<10)
	if err := by.CoreV1().Pods(team).Bind(t.Context(), b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for who, send := range map[account]request{
		kubelet:   patch(types.StrategicMergePatchType, `{"status":{"phase":"Running"}}`, "status"),
		scheduler: patch(types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"DisruptionTarget","status":"True"}]}}`, "status"),
	} {
		if err := send(t.Context(), client(t.Context(), t, who), p); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// Ways around by the request that carries the change: an annotation that injects devices, and a stricter promise.
func TestWaysAroundByOtherRequests(t *testing.T) {
	c := client(t.Context(), t, jane)
	p := createBound(t.Context(), t, genuine)
	for name, send := range map[string]func(context.Context, kubernetes.Interface) error{
		"an ephemeral container without a profile": func(ctx context.Context, c kubernetes.Interface) error {
			return debug(ctx, c, p, func(d *corev1.EphemeralContainerCommon) {
				d.SecurityContext = &corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}
			})
		},
		"an ephemeral container with an SELinux type": func(ctx context.Context, c kubernetes.Interface) error {
			return debug(ctx, c, p, func(d *corev1.EphemeralContainerCommon) {
				d.SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}}
			})
		},
		"an ephemeral container with NVIDIA_GDS": func(ctx context.Context, c kubernetes.Interface) error {
			return debug(ctx, c, p, func(d *corev1.EphemeralContainerCommon) {
				d.Env = []corev1.EnvVar{{Name: "NVIDIA_GDS", Value: "enabled"}}
			})
		},
		"server-side apply of a strict promise": func(ctx context.Context, c kubernetes.Interface) error {
			body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"annotations":{%q:"1"}}}`, p.Name, v1alpha1.AnnotationMaxSlowdown)
			_, err := c.CoreV1().Pods(team).Patch(ctx, p.Name, types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: "test"})
			return err
		},
		"a key of another case": func(ctx context.Context, c kubernetes.Interface) error {
			return patch(types.MergePatchType, `{"metadata":{"annotations":{"tandem-gpu.io/Max-Slowdown":"1"}}}`)(ctx, c, p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, send(t.Context(), c), "ValidatingAdmissionPolicy 'tandem-")
		})
	}
}
