package integration

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// An operated kind is one that an operator adds to Kubernetes, with the place of its CustomResourceDefinition in the operator's
// source.
type operated struct {
	name         string
	module, file string
	resource     schema.GroupVersionResource
	kind         string
	// spec is that of an object with two members whose pods have this template.
	spec func(template map[string]any) map[string]any
	// labels are those by which the operator marks the pod with a number.
	labels func(index string) map[string]string
	// field is where the number stands.
	field []string
}

// Kinds of operators, in the versions that tools/operators names.
func operatedKinds() []operated {
	indexed := func(template map[string]any) map[string]any {
		return map[string]any{"spec": map[string]any{"completionMode": "Indexed", "parallelism": int64(2), "completions": int64(2), "template": template}}
	}
	roles := func(specs string, more map[string]any) func(map[string]any) map[string]any {
		return func(template map[string]any) map[string]any {
			spec := map[string]any{specs: map[string]any{"Worker": map[string]any{"replicas": int64(2), "restartPolicy": "OnFailure", "template": template}}}
			for key, value := range more {
				spec[key] = value
			}
			return spec
		}
	}
	launched := func(spec func(map[string]any) map[string]any) func(map[string]any) map[string]any {
		return func(template map[string]any) map[string]any {
			with := spec(template)
			launcher := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "launcher", "image": "none"}}}}
			with["mpiReplicaSpecs"].(map[string]any)["Launcher"] = map[string]any{"replicas": int64(1), "restartPolicy": "OnFailure", "template": launcher}
			return with
		}
	}
	workers := func(index string) map[string]string {
		return map[string]string{"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": index}
	}
	kubeflow := schema.GroupVersion{Group: "kubeflow.org", Version: "v1"}
	return []operated{
		{
			"jobset", "sigs.k8s.io/jobset", "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
			schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}, "JobSet",
			func(template map[string]any) map[string]any {
				return map[string]any{"replicatedJobs": []any{map[string]any{"name": "worker", "replicas": int64(1), "template": indexed(template)}}}
			},
			func(index string) map[string]string {
				return map[string]string{"jobset.sigs.k8s.io/replicatedjob-name": "worker", "jobset.sigs.k8s.io/job-index": "0", batchv1.JobCompletionIndexAnnotation: index}
			},
			[]string{"spec", "replicatedJobs", "0", "template", "spec", "completions"},
		},
		{
			"trainjob", "github.com/kubeflow/trainer/v2", "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
			schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"}, "TrainJob",
			func(map[string]any) map[string]any {
				return map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}, "trainer": map[string]any{"numNodes": int64(2)}}
			},
			func(index string) map[string]string {
				return map[string]string{batchv1.JobCompletionIndexAnnotation: index}
			},
			[]string{"spec", "trainer", "numNodes"},
		},
		{
			"pytorchjob", "github.com/kubeflow/training-operator", "manifests/base/crds/kubeflow.org_pytorchjobs.yaml", kubeflow.WithResource("pytorchjobs"), "PyTorchJob",
			roles("pytorchReplicaSpecs", map[string]any{"elasticPolicy": map[string]any{"minReplicas": int64(2), "maxReplicas": int64(8), "rdzvBackend": "c10d"}}), workers,
			[]string{"spec", "pytorchReplicaSpecs", "Worker", "replicas"},
		},
		{
			"tfjob", "github.com/kubeflow/training-operator", "manifests/base/crds/kubeflow.org_tfjobs.yaml", kubeflow.WithResource("tfjobs"), "TFJob",
			roles("tfReplicaSpecs", nil), workers, []string{"spec", "tfReplicaSpecs", "Worker", "replicas"},
		},
		{
			"mpijob", "github.com/kubeflow/mpi-operator", "manifests/base/kubeflow.org_mpijobs.yaml",
			schema.GroupVersionResource{Group: "kubeflow.org", Version: "v2beta1", Resource: "mpijobs"}, "MPIJob",
			launched(roles("mpiReplicaSpecs", nil)), func(index string) map[string]string {
				return map[string]string{"training.kubeflow.org/job-role": "worker", "training.kubeflow.org/replica-index": index}
			},
			[]string{"spec", "mpiReplicaSpecs", "Worker", "replicas"},
		},
		{
			"raycluster", "github.com/ray-project/kuberay/ray-operator", "config/crd/bases/ray.io_rayclusters.yaml",
			schema.GroupVersionResource{Group: "ray.io", Version: "v1", Resource: "rayclusters"}, "RayCluster",
			func(template map[string]any) map[string]any {
				group := map[string]any{
					"groupName": "gpu", "replicas": int64(2), "minReplicas": int64(1), "maxReplicas": int64(8), "rayStartParams": map[string]any{}, "template": template,
				}
				head := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "head", "image": "none"}}}}
				return map[string]any{"headGroupSpec": map[string]any{"rayStartParams": map[string]any{}, "template": head}, "workerGroupSpecs": []any{group}}
			},
			func(string) map[string]string { return map[string]string{"ray.io/group": "gpu"} },
			[]string{"spec", "workerGroupSpecs", "0", "replicas"},
		},
	}
}

// TestSizeFieldsOfOperators has the controller, under its account, resize objects of the kinds that operators add, with their real
// CustomResourceDefinitions, and without the operators: the test makes the pods.
func TestSizeFieldsOfOperators(t *testing.T) {
	t.Parallel()
	c := startGangCluster(t, gangModes()[0], schedulerProgram(t))
	c.startKubelets(t)
	c.startController(t)
	for _, kind := range operatedKinds() {
		c.play(t, kind.name, func(t *testing.T, c *gangCluster) { c.resizesByFields(t, kind) })
	}
	c.play(t, "the examples have the fields of the operators", operatorExamples)
}

// operatorExamples: the API server takes each file of examples/operators with the schemas of the operators, in which every field is known.
func operatorExamples(t *testing.T, c *gangCluster) {
	for _, kind := range operatedKinds() {
		c.applySource(t, kind.module, kind.file)
	}
	c.applySource(t, "sigs.k8s.io/lws", "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml")
	c.applySource(t, "github.com/kubeflow/trainer/v2", "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml")
	files, err := filepath.Glob(operatorExample(t, "*"))
	if err != nil || len(files) != 6 {
		t.Fatalf("the examples are %v, want one of each operator; %v", files, err)
	}
	for _, file := range files {
		if !c.applyExample(t, file) {
			t.Errorf("%s: the API server does not serve a kind", file)
		}
	}
}

// operatorExample returns the path of the example of an operator.
func operatorExample(t *testing.T, name string) string {
	t.Helper()
	root, err := sandbox.Root()
	must.OK(t, err)
	return filepath.Join(root, "examples", "operators", name+".yaml")
}

// applySource applies a file of the source of an operator.
func (c *gangCluster) applySource(t *testing.T, module, file string) {
	t.Helper()
	dir, err := sandbox.OperatorSource(t.Context(), module)
	must.OK(t, err)
	raw, err := fs.ReadFile(os.DirFS(dir), filepath.ToSlash(file))
	must.OK(t, err)
	c.plane.ApplyForTest(t.Context(), t, string(raw))
}

// operatedPod returns the pod of an elastic gang of 2 to 8 members that is resized by fields, in the containers' names of operators.
func (c *gangCluster) operatedPod(name string) *v1.Pod {
	pod := c.member(testGang{name: name, min: 2, slots: 10}, 0)
	annotate(pod, 8)
	pod.Annotations[v1alpha1.AnnotationElasticResize] = v1alpha1.ResizeSizeFields
	pod.Labels[v1alpha1.LabelProfile] = name
	pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	pod.Spec.Containers[0].Name = "pytorch"
	return pod
}

// templateOf returns the template of pods like this one.
func templateOf(t *testing.T, pod *v1.Pod) map[string]any {
	t.Helper()
	template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec,
	})
	must.OK(t, err)
	delete(template["metadata"].(map[string]any), "creationTimestamp")
	return template
}

// operatedObject returns an object with two members.
func (c *gangCluster) operatedObject(t *testing.T, kind operated, pod *v1.Pod) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"spec": kind.spec(templateOf(t, pod))}}
	object.SetGroupVersionKind(kind.resource.GroupVersion().WithKind(kind.kind))
	object.SetName(pod.Labels[v1alpha1.LabelGang])
	if kind.kind == "TrainJob" { // its template is in its runtime
		object.SetLabels(map[string]string{v1alpha1.LabelGang: object.GetName()})
	}
	return object
}

// tryOperated makes an object with two members, for the time of a test, if the API server takes it. The schema must know all its fields.
func (c *gangCluster) tryOperated(t *testing.T, kind operated, pod *v1.Pod) (*unstructured.Unstructured, error) {
	t.Helper()
	objects := c.objects.Resource(kind.resource).Namespace(c.namespace)
	made, err := objects.Create(t.Context(), c.operatedObject(t, kind, pod), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { // an operator would make the pods again that the test removes
		if err := objects.Delete(life(t), made.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return made, nil
}

// createOperated is tryOperated where the API server takes the object.
func (c *gangCluster) createOperated(t *testing.T, kind operated, pod *v1.Pod) *unstructured.Unstructured {
	t.Helper()
	made, err := c.tryOperated(t, kind, pod)
	must.OK(t, err)
	return made
}

// awaitField waits until the field of an object says a number.
func (c *gangCluster) awaitField(t *testing.T, kind operated, name string, want int64) *unstructured.Unstructured {
	t.Helper()
	var now *unstructured.Unstructured
	c.poll(t, fmt.Sprintf("%s %s is %d", kind.kind, strings.Join(kind.field, "."), want), func() (bool, string) {
		var err error
		if now, err = c.objects.Resource(kind.resource).Namespace(c.namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		got := valueAt(now.Object, kind.field)
		return got == want, fmt.Sprintf("%v; target %+v", got, c.target(t, name))
	})
	return now
}

// valueAt returns what stands at a path, in which 0 is the first element of a list.
func valueAt(from any, path []string) any {
	for _, step := range path {
		switch container := from.(type) {
		case map[string]any:
			from = container[step]
		case []any:
			from = container[0]
		}
	}
	return from
}

// resizesByFields: an object grows to its largest size, and shrinks by one for a gang that waits. The names of the pods that leave
// are written where the kind wants them.
func (c *gangCluster) resizesByFields(t *testing.T, kind operated) {
	c.applySource(t, kind.module, kind.file)
	c.joinsAtOnce(t, kind.name)
	pod := c.operatedPod(kind.name)
	owner := c.createOperated(t, kind, pod)
	submit := func(i int) {
		p := pod.DeepCopy()
		p.Name = fmt.Sprint(kind.name, "-", i)
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())}
		for key, value := range kind.labels(fmt.Sprint(i)) {
			p.Labels[key] = value
		}
		c.submit(t, p)
	}
	submit(0)
	submit(1)
	c.awaitField(t, kind, kind.name, 8)
	for i := 2; i < 8; i++ {
		submit(i)
	}
	c.poll(t, "8 members run", func() (bool, string) { return len(c.namesOnNodes(t, kind.name)) == 8, c.phases(t, kind.name) })
	c.create(t, testGang{name: "rigid", members: 9, min: 9, slots: 10})
	now := c.awaitField(t, kind, kind.name, 7)
	if kind.kind == "RayCluster" {
		names := valueAt(now.Object, []string{"spec", "workerGroupSpecs", "0", "scaleStrategy", "workersToDelete"})
		if fmt.Sprint(names) != "[raycluster-7]" {
			t.Errorf("the pods %v leave", names)
		}
	}
	must.OK(t, c.admin.CoreV1().Pods(c.namespace).Delete(t.Context(), kind.name+"-7", metav1.DeleteOptions{}))
	c.awaitGang(t, "rigid", 9)
}
