// Package pods makes pods for tests of the packages that read a pod's requests and annotations.
package pods

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// New returns a pod with one app container per limit, "vgpu" or "vgpu/memory" ("3", "3/8Gi").
func New(limits ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"}}
	for i, l := range limits {
		p.Spec.Containers = append(p.Spec.Containers, Container(string(rune('a'+i)), l))
	}
	return p
}

// Container returns a container with a limit, "" for none.
func Container(name, limit string) v1.Container {
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

// Annotated gives a pod the annotations of pairs of key and value, and no others.
func Annotated(p *v1.Pod, pairs ...string) *v1.Pod {
	p.Annotations = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		p.Annotations[pairs[i]] = pairs[i+1]
	}
	return p
}
