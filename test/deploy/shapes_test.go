package deploy

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// shape is a request that grows with n. Most is the size at which the API server refuses it, by the size of the request (3 MiB),
// of the stored object or of the annotations.
type shape struct {
	name string
	most int
	of   func(n int) *sent
}

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

func creates(p *corev1.Pod) *sent { return send(p, nil, podKind, "pods", "") }

// updates returns the request that changes a pod, or one that brings a new status alone where change is nil.
func updates(p *corev1.Pod, subresource string, change func(*corev1.Pod)) *sent {
	changed := p.DeepCopy()
	changed.Status.Message = "all is well"
	if change != nil {
		change(changed)
	}
	return send(changed, p, podKind, "pods", subresource)
}

// many returns n different short strings.
func many(n int, prefix string) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = prefix + strconv.FormatInt(int64(i), 36)
	}
	return names
}

func withAnnotations(p *corev1.Pod, n int, prefix, value string) *corev1.Pod {
	for _, key := range many(n, prefix) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
	}
	return p
}

// withContainers gives a pod so many containers with vGPUs, or without.
func withContainers(n int, change func(i int, c *corev1.Container), amounts ...string) *corev1.Pod {
	p := pod("large")
	p.Spec.Containers = nil
	for i := range n {
		c := container("c"+strconv.FormatInt(int64(i), 36), amounts...)
		if change != nil {
			change(i, &c)
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// oneLong is a pod of one container whose lists are long.
func oneLong(change func(*corev1.Container)) *sent {
	return creates(withContainers(1, func(_ int, c *corev1.Container) { change(c) }, v1alpha1.ResourceVGPU, "3"))
}

// others are as many requests as limits of other resources, n in all, of the same amount.
func others(n int, amount string) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, name := range many((n+1)/2, "example.com/") {
		q := resource.MustParse(amount)
		r.Requests[corev1.ResourceName(name)], r.Limits[corev1.ResourceName(name)] = q, q
	}
	return r
}

// shapes are all the lists that a policy looks through, at their longest and in their dearest form.
func shapes() []shape {
	vgpu := []string{v1alpha1.ResourceVGPU, "3"}
	worstPath := strings.Repeat("/.", 100) + "/tmp/nvidia-mp"
	return []shape{
		{"small annotations", 50_000, func(n int) *sent { return creates(withAnnotations(pod("x"), n, "", "")) }},
		{"annotations that inject devices", 13_000, func(n int) *sent { return creates(withAnnotations(pod("x"), n, "cdi.k8s.io/", "")) }},
		{"annotations of Tandem's domain", 12_000, func(n int) *sent { return creates(withAnnotations(plainPod(), n, v1alpha1.Domain+"/", "")) }},
		{"long annotations", 262_000, func(n int) *sent { return creates(withAnnotations(pod("x"), 1, "a", strings.Repeat("é", n/2))) }},
		{"one annotation more on a pod with many", 50_000, func(n int) *sent {
			return updates(withAnnotations(pod("x"), n, "", ""), "", annotation("more"))
		}},
		{"all annotations changed", 50_000, func(n int) *sent {
			return updates(withAnnotations(pod("x"), n, "", ""), "", func(p *corev1.Pod) { withAnnotations(p, n, "", "1") })
		}},
		{"a status of a pod with many annotations", 50_000, func(n int) *sent {
			return updates(withAnnotations(pod("x"), n, "", ""), "status", nil)
		}},
		{"labels", 50_000, func(n int) *sent {
			p := pod("x")
			p.Labels = map[string]string{}
			for _, key := range many(n, v1alpha1.Domain+"/") {
				p.Labels[key] = ""
			}
			return creates(p)
		}},
		{"bare keys of a Deployment", 50_000, func(n int) *sent {
			p := withContainers(n, nil)
			p.Spec.Containers[n-1] = container("last", vgpu...)
			for _, key := range []string{"max-slowdown", "vgpu", "workload-profile"} {
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, "")
				metav1.SetMetaDataLabel(&p.ObjectMeta, key, "")
			}
			d := &appsv1.Deployment{}
			d.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
			return send(d, nil, appsv1.SchemeGroupVersion.WithKind("Deployment"), "deployments", "")
		}},
		{"containers", 50_000, func(n int) *sent { return creates(withContainers(n, nil, vgpu...)) }},
		{"containers without vGPUs", 50_000, func(n int) *sent { return creates(withContainers(n, nil)) }},
		{"init containers", 50_000, func(n int) *sent {
			p := withContainers(n, nil, vgpu...)
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, []corev1.Container{container("main")}
			return creates(p)
		}},
		{"ephemeral containers", 50_000, func(n int) *sent {
			return updates(pod("x"), "ephemeralcontainers", func(p *corev1.Pod) {
				for _, name := range many(n, "e") {
					p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers,
						corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "i"}})
				}
			})
		}},
		{"variables", 100_000, func(n int) *sent {
			return oneLong(func(c *corev1.Container) {
				for _, name := range many(n, "NVIDIA_") {
					c.Env = append(c.Env, corev1.EnvVar{Name: name})
				}
			})
		}},
		{"variables of many containers", 1024, func(n int) *sent {
			return creates(withContainers(8, func(i int, c *corev1.Container) {
				for _, name := range many(n/8, "NVIDIA_") {
					c.Env = append(c.Env, corev1.EnvVar{Name: name})
				}
			}, vgpu...))
		}},
		{"a long name of a variable", 1_000_000, func(n int) *sent {
			return oneLong(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "NVIDIA_" + strings.Repeat("A", n)}} })
		}},
		{"mounts", 4096, func(n int) *sent {
			return oneLong(func(c *corev1.Container) {
				for _, path := range many(n, worstPath) {
					c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: path})
				}
			})
		}},
		{"mounts of many containers", 1024, func(n int) *sent {
			return creates(withContainers(8, func(i int, c *corev1.Container) {
				for _, path := range many(n/8, worstPath) {
					c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: path})
				}
			}, vgpu...))
		}},
		{"a long mountPath", 1_000_000, func(n int) *sent {
			return oneLong(func(c *corev1.Container) {
				c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: strings.Repeat("/.", n/2) + "/tmp/nvidia-mps"}}
			})
		}},
		{"resources", 1024, func(n int) *sent {
			return creates(withContainers(8, func(i int, c *corev1.Container) {
				for _, name := range many(n/8, "example.com/") {
					c.Resources.Limits[corev1.ResourceName(name)] = resource.MustParse("1")
				}
			}, vgpu...))
		}},
		{"resources without vGPUs", 50_000, func(n int) *sent {
			return creates(withContainers(1, func(_ int, c *corev1.Container) { c.Resources = others(n, "1e3000000") }))
		}},
		{"resources of many containers", 8192, func(n int) *sent {
			return creates(withContainers(64, func(_ int, c *corev1.Container) { c.Resources = others(n/64, "123456789012345678m") }))
		}},
		{"resources of many digits", 50_000, func(n int) *sent {
			digits := strings.Repeat("9", 3_000_000/max(n, 300))
			return creates(withContainers(1, func(_ int, c *corev1.Container) { c.Resources = others(n, digits) }))
		}},
		{"capabilities", 8192, func(n int) *sent {
			return creates(withContainers(128, func(_ int, c *corev1.Container) {
				c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{}}
				for _, name := range many(n/128, "CAP_NET_") {
					c.SecurityContext.Capabilities.Add = append(c.SecurityContext.Capabilities.Add, corev1.Capability(name))
				}
			}, vgpu...))
		}},
		{"a long capability", 1_000_000, func(n int) *sent {
			return oneLong(func(c *corev1.Container) {
				c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{corev1.Capability(strings.Repeat("a", n))}}}
			})
		}},
		{"volumes", 50_000, func(n int) *sent {
			p := pod("x")
			for _, name := range many(n, "v") {
				v := corev1.Volume{Name: name}
				v.HostPath = &corev1.HostPathVolumeSource{Path: "/data/" + name}
				p.Spec.Volumes = append(p.Spec.Volumes, v)
			}
			return creates(p)
		}},
		{"a long path of the host", 1_000_000, func(n int) *sent {
			p := pod("x")
			hostPath("/" + strings.Repeat("a/", n/2))(p)
			return creates(p)
		}},
		{"a long promise", 262_000, func(n int) *sent { return creates(promising(strings.Repeat("1", n), "3")) }},
		{"a number of many digits", 10_000, func(n int) *sent {
			q := resource.MustParse("1" + strings.Repeat("0", n))
			p := pod("x")
			p.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceVGPU] = q
			p.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = q
			return creates(p)
		}},
		{"a long time of leaving", 262_000, func(n int) *sent {
			return updates(leaving(plainPod(), strings.Repeat("1", n)), "", func(p *corev1.Pod) { leaving(p, strings.Repeat("1", n-1)+"2") })
		}},
		{"the status of an ElasticTarget", 20_000, func(n int) *sent {
			old := elasticTarget("gang")
			for _, name := range many(n, "Condition") {
				old.Status.Conditions = append(old.Status.Conditions, metav1.Condition{Type: name})
			}
			changed := old.DeepCopy()
			changed.Status.Conditions[n-1].Message = "the last one changes"
			changed.Status.Scheduler = &v1alpha1.ElasticTargetAdmission{Workers: 4}
			return send(changed, old, v1alpha1.GroupVersion.WithKind("ElasticTarget"), "elastictargets", "status")
		}},
		{"a message of an ElasticTarget", 1_000_000, func(n int) *sent {
			old := elasticTarget("gang")
			old.Status.Message = strings.Repeat("a", n)
			changed := old.DeepCopy()
			changed.Status.Message += "b"
			return send(changed, old, v1alpha1.GroupVersion.WithKind("ElasticTarget"), "elastictargets", "status")
		}},
		{"annotations of a Binding", 50_000, func(n int) *sent {
			b := &corev1.Binding{}
			b.Annotations = withAnnotations(pod("x"), n, v1alpha1.Domain+"/", "").Annotations
			return send(b, nil, corev1.SchemeGroupVersion.WithKind("Binding"), "pods", "binding")
		}},
	}
}
