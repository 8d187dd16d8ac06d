package workloads

import (
	"runtime"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// allocated returns the bytes that a function allocates. They are what its arithmetic needs, whatever the machine: a number of
// three million digits has 1.2 MB.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

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

// endless are quantities that the API server accepts and that take seconds or hours to calculate with.
var endless = []string{"1e3000000", "1e2000000000", "0.5e2000000000", "7e31", "1" + strings.Repeat("0", 100_000)}

// pod returns a pod with one app container per limit, "vgpu" or "vgpu/memory" ("3", "3/8Gi").
func pod(limits ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"}}
	for i, l := range limits {
		p.Spec.Containers = append(p.Spec.Containers, container(string(rune('a'+i)), l))
	}
	return p
}
