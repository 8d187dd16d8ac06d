package victims

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

func annotated(p *v1.Pod, pairs ...string) *v1.Pod {
	p.Annotations = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		p.Annotations[pairs[i]] = pairs[i+1]
	}
	return p
}

func container(name, limit string) v1.Container {
	slots, memory, _ := strings.Cut(limit, "/")
	list := v1.ResourceList{}
	if slots != "" {
		list[v1alpha1.ResourceVGPU] = resource.MustParse(slots)
	}
	if memory != "" {
		list[v1alpha1.ResourceMemory] = resource.MustParse(memory)
	}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: list}}
}

func labelled(p *v1.Pod, key, value string) *v1.Pod {
	p.Labels = map[string]string{key: value}
	return p
}

// noon is the time that these tests take for now.
var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// owned returns a pod of a controller, with one container of slots and one without.
func owned(apiVersion, kind, name string) *v1.Pod {
	p := pod("3", "")
	p.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "not-the-controller"},
		{APIVersion: apiVersion, Kind: kind, Name: name, Controller: new(true)},
	}
	p.Spec.Containers[0].Image, p.Spec.Containers[1].Image = "reg/bert@sha256:0", "envoy:1"
	return p
}

// pod returns a pod with one app container per limit, "vgpu" or "vgpu/memory" ("3", "3/8Gi").
func pod(limits ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"}}
	for i, l := range limits {
		p.Spec.Containers = append(p.Spec.Containers, container(string(rune('a'+i)), l))
	}
	return p
}

// quick returns a pod of a profile that accepts a latency.
func quick(latency string, limits ...string) *v1.Pod {
	p := annotated(pod(limits...), v1alpha1.AnnotationMaxLatency, latency)
	return labelled(p, v1alpha1.LabelProfile, "bert")
}

func saved(p *v1.Pod, raw string) *v1.Pod {
	return annotated(p, v1alpha1.AnnotationCheckpointTime, raw)
}
