package victims

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/pods"
)

func labelled(p *v1.Pod, key, value string) *v1.Pod {
	p.Labels = map[string]string{key: value}
	return p
}

// noon is the time that these tests take for now.
var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// owned returns a pod of a controller, with one container of slots and one without.
func owned(apiVersion, kind, name string) *v1.Pod {
	p := pods.New("3", "")
	p.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "not-the-controller"},
		{APIVersion: apiVersion, Kind: kind, Name: name, Controller: new(true)},
	}
	p.Spec.Containers[0].Image, p.Spec.Containers[1].Image = "reg/bert@sha256:0", "envoy:1"
	return p
}

// quick returns a pod of a profile that accepts a latency.
func quick(latency string, limits ...string) *v1.Pod {
	p := pods.Annotated(pods.New(limits...), v1alpha1.AnnotationMaxLatency, latency)
	return labelled(p, v1alpha1.LabelProfile, "bert")
}

func saved(p *v1.Pod, raw string) *v1.Pod {
	return pods.Annotated(p, v1alpha1.AnnotationCheckpointTime, raw)
}
