package membership

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// PodGroups of both API groups that declare gangs.
var (
	// NativePodGroups are those of Kubernetes in the version that the scheduler's queue knows, and StablePodGroups
	// those in the version of Kubernetes 1.38. For a gang the two are the same object.
	NativePodGroups = schedulingv1beta1.SchemeGroupVersion.WithResource("podgroups")
	StablePodGroups = schema.GroupVersionResource{Group: NativePodGroups.Group, Version: "v1", Resource: NativePodGroups.Resource}
	// XK8sPodGroups are those of the scheduler plugins.
	XK8sPodGroups = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}
)

// PodGroup is what a PodGroup of either API group declares.
type PodGroup struct {
	// Object names it for events.
	Object v1.ObjectReference
	// Created is the creation time.
	Created time.Time
	// MinCount is the least number of members that may run.
	MinCount int
	// Required levels that its spec declares.
	Required []string
	// Annotations of DeclaredAnnotations that it carries; where it has one, those of the pods do not count.
	Annotations map[string]string
}

// DeclaredAnnotations are the annotations that a PodGroup may set for its pods.
var DeclaredAnnotations = []string{
	v1alpha1.AnnotationRequiredTopology, v1alpha1.AnnotationPreferredTopology, v1alpha1.AnnotationElasticWorkers, v1alpha1.AnnotationElasticResize,
}

// ReadPodGroup reads a PodGroup. A malformed PodGroup still has its Object; the error names the field.
func ReadPodGroup(u *unstructured.Unstructured) (PodGroup, error) {
	g := PodGroup{
		Object: v1.ObjectReference{
			Kind: "PodGroup", APIVersion: u.GetAPIVersion(), Namespace: u.GetNamespace(), Name: u.GetName(),
			UID: u.GetUID(),
		},
		Created: u.GetCreationTimestamp().Time,
	}
	for _, key := range DeclaredAnnotations {
		if value, ok := u.GetAnnotations()[key]; ok {
			if g.Annotations == nil {
				g.Annotations = map[string]string{}
			}
			g.Annotations[key] = value
		}
	}
	read := readXK8s
	if u.GroupVersionKind().Group == NativePodGroups.Group {
		read = readNative
	}
	if err := read(u, &g); err != nil {
		return g, fmt.Errorf("PodGroup %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	return g, nil
}

// readNative reads a PodGroup of Kubernetes, in any version. With the basic policy any number of its members may run. A
// group that is part of a CompositePodGroup is an error: no code here makes its siblings run too.
func readNative(u *unstructured.Unstructured, g *PodGroup) error {
	var object schedulingv1beta1.PodGroup
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &object); err != nil {
		return err
	}
	if parent := object.Spec.ParentCompositePodGroupName; parent != nil {
		return &kube.FieldError{
			Field: "spec.parentCompositePodGroupName", Value: kube.Shown(*parent), Object: true,
			Legal: "CompositePodGroups are not supported yet, and its members are not scheduled without the groups beside it: make the PodGroup anew without a parent",
		}
	}
	policy := &object.Spec.SchedulingPolicy
	switch {
	case policy.Gang != nil:
		g.MinCount = int(policy.Gang.MinCount)
	case policy.Basic != nil:
		g.MinCount = 1
	default:
		return &kube.FieldError{Field: "spec.schedulingPolicy", Legal: "it must be gang or basic", Object: true}
	}
	if g.MinCount < 1 {
		return &kube.FieldError{Field: "spec.schedulingPolicy.gang.minCount", Value: fmt.Sprint(g.MinCount), Legal: "it must be 1 or more", Object: true}
	}
	if object.Spec.SchedulingConstraints == nil {
		return nil
	}
	for _, c := range object.Spec.SchedulingConstraints.Topology {
		if !slices.Contains(g.Required, c.Key) {
			g.Required = append(g.Required, c.Key)
		}
	}
	return nil
}

// readXK8s reads a PodGroup of the scheduler plugins. Its minResources and scheduleTimeoutSeconds say nothing that a plan of
// the whole gang does not know better.
func readXK8s(u *unstructured.Unstructured, g *PodGroup) error {
	const legal = "it must be a whole number from 1 to 10000, the least number of members that may run"
	n, found, err := unstructured.NestedInt64(u.Object, "spec", "minMember")
	if err != nil {
		value, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "minMember")
		return &kube.FieldError{Field: "spec.minMember", Value: kube.Shown(fmt.Sprint(value)), Legal: legal, Object: true}
	}
	if !found {
		return &kube.FieldError{Field: "spec.minMember", Legal: "it is missing: " + legal, Object: true}
	}
	if n < 1 || n > MaxMinMembers {
		return &kube.FieldError{Field: "spec.minMember", Value: fmt.Sprint(n), Legal: legal, Object: true}
	}
	g.MinCount = int(n)
	return nil
}
