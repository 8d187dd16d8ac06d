package kube

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// maxModel is the longest product name that the GPUNode schema admits.
const maxModel = 63

const legalModels = "it must be 1 to 64 product names of GPUs as in GPUNode, separated by commas, each once, for example NVIDIA-A100-SXM4-40GB,Tesla-T4"

// variants returns the models that the pod may use, by name; none for any.
func variants(pod *v1.Pod) ([]vgpu.Variant, error) {
	raw, ok := pod.Annotations[v1alpha1.AnnotationModels]
	if !ok {
		return nil, nil
	}
	names := strings.Split(raw, ",")
	if len(names) > vgpu.MaxVariants {
		return nil, Malformed(v1alpha1.AnnotationModels, raw, legalModels)
	}
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		if names[i] == "" || len(names[i]) > maxModel || slices.Contains(names[:i], names[i]) {
			return nil, Malformed(v1alpha1.AnnotationModels, raw, legalModels)
		}
	}
	slices.Sort(names)
	list := make([]vgpu.Variant, len(names))
	for i, name := range names {
		list[i].Model = name
	}
	return list, nil
}
