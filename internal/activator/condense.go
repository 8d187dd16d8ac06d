package activator

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condense is a transform for informers: it keeps what the activator reads, a small part of what a large cluster has.
func Condense(object any) (any, error) {
	switch o := object.(type) {
	case *v1.Pod:
		out := &v1.Pod{ObjectMeta: condenseMeta(&o.ObjectMeta)}
		out.Status.Phase, out.Status.PodIP = o.Status.Phase, o.Status.PodIP
		out.Labels, out.OwnerReferences = o.Labels, o.OwnerReferences
		for i := range o.Status.Conditions {
			if c := &o.Status.Conditions[i]; c.Type == v1.PodReady {
				out.Status.Conditions = []v1.PodCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
			}
		}
		return out, nil
	case *appsv1.StatefulSet:
		out := &appsv1.StatefulSet{ObjectMeta: condenseMeta(&o.ObjectMeta)}
		out.Annotations = o.Annotations
		out.Spec.Replicas, out.Spec.Selector, out.Spec.Template.Spec.HostNetwork = o.Spec.Replicas, o.Spec.Selector, o.Spec.Template.Spec.HostNetwork
		return out, nil
	case *appsv1.Deployment:
		out := &appsv1.Deployment{ObjectMeta: condenseMeta(&o.ObjectMeta)}
		out.Annotations = o.Annotations
		out.Spec.Replicas, out.Spec.Selector, out.Spec.Template.Spec.HostNetwork = o.Spec.Replicas, o.Spec.Selector, o.Spec.Template.Spec.HostNetwork
		return out, nil
	}
	return object, nil
}

func condenseMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, DeletionTimestamp: m.DeletionTimestamp}
}
