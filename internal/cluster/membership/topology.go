package membership

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

var legalLevels = fmt.Sprintf("it must be a list of up to %d keys of node labels or %s, each once, separated by commas, for example topology.kubernetes.io/zone,%s",
	config.MaxLevels, v1alpha1.TopologyNVLink, v1.LabelHostname)

// Topology returns the levels that a gang requires and prefers by annotations, in their order. The given required ones
// come first. The error is a *FieldError: a key that is none or stands twice, and a preferred level that the required
// ones make meaningless.
func Topology(annotations map[string]string, required ...string) (all, preferred []string, err error) {
	written, err := levels(annotations, v1alpha1.AnnotationRequiredTopology)
	if err != nil {
		return nil, nil, err
	}
	all = slices.Clone(required)
	for _, key := range written {
		if !slices.Contains(all, key) {
			all = append(all, key)
		}
	}
	preferred, err = levels(annotations, v1alpha1.AnnotationPreferredTopology)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range preferred {
		if why := pointless(key, all); why != "" {
			return nil, nil, kube.Malformed(v1alpha1.AnnotationPreferredTopology, annotations[v1alpha1.AnnotationPreferredTopology],
				fmt.Sprintf("it must not list %s: %s", key, why))
		}
	}
	return all, preferred, nil
}

// pointless says why a gang cannot come closer by preferring a level, "" where it can.
func pointless(key string, required []string) string {
	switch {
	case slices.Contains(required, key):
		return "the level is required"
	case slices.Contains(required, v1alpha1.TopologyNVLink):
		return v1alpha1.TopologyNVLink + " is required, and nothing is closer"
	case slices.Contains(required, v1.LabelHostname) && key != v1alpha1.TopologyNVLink:
		return v1.LabelHostname + " is required, and only " + v1alpha1.TopologyNVLink + " is closer"
	}
	return ""
}

// levels reads a list of levels; nil where the annotation is missing.
func levels(annotations map[string]string, annotation string) ([]string, error) {
	raw, ok := annotations[annotation]
	if !ok {
		return nil, nil
	}
	keys := strings.Split(raw, ",")
	for i := range keys {
		keys[i] = strings.TrimSpace(keys[i])
		if !config.IsLevel(keys[i]) || slices.Contains(keys[:i], keys[i]) || i >= config.MaxLevels {
			return nil, kube.Malformed(annotation, raw, legalLevels)
		}
	}
	return keys, nil
}
