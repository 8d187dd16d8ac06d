package sizefield

import (
	"strings"
	"testing"
)

// An object consents by its template, wherever its kind has it, or by its label. A template that names another gang or another way of resizing is no
// consent, nor is a missing one.
func TestConsents(t *testing.T) {
	const (
		both   = "{metadata: {labels: {tandem-gpu.io/gang: train}, annotations: {tandem-gpu.io/elastic-resize: size-fields}}}"
		label  = "{metadata: {labels: {tandem-gpu.io/gang: train}}}"
		resize = "{metadata: {annotations: {tandem-gpu.io/elastic-resize: size-fields}}}"
		held   = "{metadata: {labels: {tandem-gpu.io/gang: train}, annotations: {tandem-gpu.io/elastic-resize: held-members}}}"
		other  = "{metadata: {labels: {tandem-gpu.io/gang: other}, annotations: {tandem-gpu.io/elastic-resize: size-fields}}}"
		xk8s   = "{metadata: {labels: {scheduling.x-k8s.io/pod-group: train}}}"
		native = "{spec: {schedulingGroup: {podGroupName: train}}}"
		aSet   = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, labels: {app: web}}, spec: {replicas: 5, template: TEMPLATE}}"
	)
	for _, test := range []struct {
		name, owner, template string
		byLabel, byGroup      bool
	}{
		{"a Deployment", aSet, both, true, true},
		{"a Deployment of somebody else", aSet, "{metadata: {labels: {app: web}}}", false, false},
		{"without a template", aSet, "null", false, false},
		{"the label alone", aSet, label, false, false},
		{"the annotation alone", aSet, resize, false, true},
		{"another gang", aSet, other, false, false},
		{"another PodGroup", aSet, "{metadata: {labels: {scheduling.x-k8s.io/pod-group: other}, annotations: {tandem-gpu.io/elastic-resize: size-fields}}}", false, false},
		{"another PodGroup of Kubernetes", aSet, "{metadata: {annotations: {tandem-gpu.io/elastic-resize: size-fields}}, spec: {schedulingGroup: {podGroupName: other}}}", false, false},
		{"another gang below", aSet, "{metadata: {annotations: {tandem-gpu.io/elastic-resize: size-fields}}, spec: {template: " + other + "}}", false, false},
		{"another gang beside",
			"{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: a}, spec: {headGroupSpec: {template: " + other + "}, workerGroupSpecs: [{template: TEMPLATE}]}}", resize, false, true},
		{"held members", aSet, held, false, false},
		{"a PodGroup", aSet, xk8s, false, true},
		{"a PodGroup of Kubernetes", aSet, native, false, true},
		{"its own label", "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: a, labels: {tandem-gpu.io/gang: train}}, spec: {}}", "", true, true},
		{"a label of another gang", "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: a, labels: {tandem-gpu.io/gang: other}}, spec: {}}", "", false, false},
		{"its own annotation", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, annotations: {tandem-gpu.io/elastic-resize: size-fields}}, spec: {}}", "", false, false},
		{"a status", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, status: {template: TEMPLATE}}", both, false, false},
		{"a Job", "{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: TEMPLATE}}", both, true, true},
		{"a JobSet", "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: a}, spec: {replicatedJobs: [{name: ps}, {name: worker, template: {spec: {template: TEMPLATE}}}]}}", both, true, true},
		{"a PyTorchJob", "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a}, spec: {pytorchReplicaSpecs: {Master: {}, Worker: {template: TEMPLATE}}}}", both, true, true},
		{"a RayCluster", "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: a}, spec: {headGroupSpec: {}, workerGroupSpecs: [{template: TEMPLATE}]}}", both, true, true},
		{"label and annotation of two templates",
			"{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: a}, spec: {headGroupSpec: {template: TEMPLATE}, workerGroupSpecs: [{template: " + resize + "}]}}", label, false, true},
	} {
		o := &Owner{Object: object(t, strings.ReplaceAll(test.owner, "TEMPLATE", test.template))}
		for byLabel, want := range map[bool]bool{true: test.byLabel, false: test.byGroup} {
			if err := o.Consents("train", byLabel); (err == nil) != want {
				t.Errorf("%s, of a gang by label %t: %v", test.name, byLabel, err)
			}
		}
	}
}
