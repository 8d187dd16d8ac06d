package sizefield

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	k8stesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/test/must"
)

// object reads an object. Its UID is "uid-" and its name.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	must.OK(t, err)
	o := &unstructured.Unstructured{}
	must.OK(t, o.UnmarshalJSON(raw))
	o.SetNamespace("ns")
	o.SetUID(types.UID("uid-" + o.GetName()))
	return o
}

// pods returns members of the gang train that an object owns, with these labels each. A # in a value is the number of the pod.
func pods(owner *unstructured.Unstructured, count int, labels map[string]string) (list []*v1.Pod) {
	for i := range count {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p-", i), Labels: map[string]string{"tandem-gpu.io/gang": "train"}}}
		p.OwnerReferences = []metav1.OwnerReference{controlledBy(owner)}
		p.Spec.NodeName = "n1"
		for key, value := range labels {
			p.Labels[key] = strings.ReplaceAll(value, "#", fmt.Sprint(i))
		}
		list = append(list, p)
	}
	return list
}

func controlledBy(owner *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true)}
}

// finder returns a Finder of these objects.
func finder(t *testing.T, objects ...*unstructured.Unstructured) (*Finder, *dynamicfake.FakeDynamicClient) {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{}
	for _, k := range Kinds() {
		for _, version := range []string{"v1", "v1alpha1", "v1alpha2", "v2beta1"} {
			lists[k.GroupKind.WithVersion(version).GroupVersion().WithResource(k.Resource)] = k.Kind + "List"
		}
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	for _, o := range objects {
		if k := kindOf(o.GroupVersionKind().GroupKind()); k != nil {
			must.OK(t, client.Tracker().Create(o.GroupVersionKind().GroupVersion().WithResource(k.Resource), o, "ns"))
		}
	}
	return &Finder{Client: client}, client
}

// Specs of owners.
const (
	indexed = "completionMode: Indexed, parallelism: 4, completions: 4"
	member  = "metadata: {labels: {tandem-gpu.io/gang: train}}"
	aJob    = "{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {" + indexed + "}}"
)

func names(list []*v1.Pod) (all []string) {
	for _, p := range list {
		all = append(all, p.Name)
	}
	return all
}

func TestKinds(t *testing.T) {
	const index, role, number = "batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
	for _, test := range []struct {
		name, owner string
		labels      map[string]string
		now, to     int
		beyond      []string
		patch       string
		legal       string
	}{
		{
			"a Job", aJob, map[string]string{index: "#"}, 4, 2, []string{"p-2", "p-3"},
			"test /spec/parallelism 4, test /spec/completions 4, replace /spec/parallelism 2, replace /spec/completions 2", "from 1 to any in steps of 1",
		},
		{
			"a JobSet of one Job", "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: a}, spec: {replicatedJobs: [{name: ps, replicas: 1}, " +
				"{name: worker, replicas: 1, template: {spec: {" + indexed + "}}}]}}",
			map[string]string{"jobset.sigs.k8s.io/replicatedjob-name": "worker", "jobset.sigs.k8s.io/job-index": "0", index: "#"}, 4, 3, []string{"p-3"},
			"test /spec/replicatedJobs/1/template/spec/parallelism 4, test /spec/replicatedJobs/1/template/spec/completions 4, " +
				"replace /spec/replicatedJobs/1/template/spec/parallelism 3, replace /spec/replicatedJobs/1/template/spec/completions 3", "from 1 to any in steps of 1",
		},
		{
			"a JobSet of several Jobs", "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: a}, spec: {replicatedJobs: [" +
				"{name: worker, replicas: 3, template: {spec: {completionMode: Indexed, parallelism: 2, completions: 2}}}]}}",
			map[string]string{"jobset.sigs.k8s.io/replicatedjob-name": "worker", "jobset.sigs.k8s.io/job-index": "#"}, 6, 4, []string{"p-2", "p-3"},
			"test /spec/replicatedJobs/0/replicas 3, replace /spec/replicatedJobs/0/replicas 2", "from 4 to any in steps of 2",
		},
		{
			"a TrainJob", "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: a}, spec: {trainer: {numNodes: 4}}}",
			map[string]string{index: "#"}, 4, 3, []string{"p-3"}, "test /spec/trainer/numNodes 4, replace /spec/trainer/numNodes 3", "from 1 to any in steps of 1",
		},
		{
			"a PyTorchJob with a master", "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a}, spec: {elasticPolicy: {minReplicas: 2, maxReplicas: 6}, " +
				"pytorchReplicaSpecs: {Master: {replicas: 1, template: {" + member + "}}, Worker: {replicas: 3, template: {" + member + "}}}}}",
			map[string]string{role: "worker", number: "#"}, 4, 3, []string{"p-2", "p-3"},
			"test /spec/pytorchReplicaSpecs/Worker/replicas 3, replace /spec/pytorchReplicaSpecs/Worker/replicas 2", "from 3 to 7 in steps of 1",
		},
		{
			"an MPIJob whose launcher is no member", "{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: a}, spec: {" +
				"mpiReplicaSpecs: {Launcher: {replicas: 1, template: {}}, Worker: {replicas: 4, template: {" + member + "}}}}}",
			map[string]string{"training.kubeflow.org/job-role": "worker", number: "#"}, 4, 3, []string{"p-3"},
			"test /spec/mpiReplicaSpecs/Worker/replicas 4, replace /spec/mpiReplicaSpecs/Worker/replicas 3", "from 1 to any in steps of 1",
		},
		{
			"a TFJob with a chief and parameter servers", "{apiVersion: kubeflow.org/v1, kind: TFJob, metadata: {name: a}, spec: {tfReplicaSpecs: {PS: {replicas: 2, template: {}}, " +
				"Chief: {template: {" + member + "}}, Worker: {replicas: 3, template: {" + member + "}}}}}",
			map[string]string{role: "worker", number: "#"}, 4, 3, []string{"p-2", "p-3"},
			"test /spec/tfReplicaSpecs/Worker/replicas 3, replace /spec/tfReplicaSpecs/Worker/replicas 2", "from 2 to any in steps of 1",
		},
		{
			"a RayCluster", "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: a}, spec: {headGroupSpec: {template: {}}, workerGroupSpecs: [{groupName: other}, " +
				"{groupName: gpu, replicas: 4, minReplicas: 2, maxReplicas: 8, numOfHosts: 1}]}}",
			map[string]string{"ray.io/group": "gpu"}, 4, 2, []string{"p-2", "p-3"}, "test /spec/workerGroupSpecs/1/replicas 4, replace /spec/workerGroupSpecs/1/replicas 2, " +
				"add /spec/workerGroupSpecs/1/scaleStrategy map[workersToDelete:[p-2 p-3]]", "from 2 to 8 in steps of 1",
		},
		{
			"a RayCluster that has named pods before", "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: a}, spec: {headGroupSpec: {template: {" + member + "}}, " +
				"workerGroupSpecs: [{groupName: gpu, replicas: 3, scaleStrategy: {workersToDelete: [x]}}]}}",
			map[string]string{"ray.io/group": "gpu"}, 4, 5, nil, "test /spec/workerGroupSpecs/0/replicas 3, replace /spec/workerGroupSpecs/0/replicas 4, " +
				"add /spec/workerGroupSpecs/0/scaleStrategy/workersToDelete []", "from 2 to any in steps of 1",
		},
		{
			"a StatefulSet that counts from 5", "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}, spec: {replicas: 4, ordinals: {start: 5}}}",
			map[string]string{"apps.kubernetes.io/pod-index": "#"}, 4, 1, []string{"p-6", "p-7"}, "test /spec/replicas 4, replace /spec/replicas 1", "from 1 to any in steps of 1",
		},
		{
			"a ReplicaSet", "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: a}, spec: {replicas: 4}}", nil, 4, 3, []string{"p-3", "p-4", "p-5", "p-6", "p-7"},
			"test /spec/replicas 4, replace /spec/replicas 3", "from 1 to any in steps of 1",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			count := 4
			if strings.HasPrefix(test.owner, "{apiVersion: apps") {
				count = 8
			}
			owner := object(t, test.owner)
			members := pods(owner, count, test.labels)
			f, _ := finder(t, owner)
			o, err := f.Find(t.Context(), members)
			must.OK(t, err)
			beyond := o.Beyond(members, test.to)
			if diff := cmp.Diff(test.beyond, names(beyond)); diff != "" || o.Members() != test.now || o.Legal() != test.legal {
				t.Errorf("%d members, legal %s; beyond %d (-want +got):\n%s", o.Members(), o.Legal(), test.to, diff)
			}
			if got := shown(t, o, test.to, beyond); got != test.patch {
				t.Errorf("patch\n%s\nwant\n%s", got, test.patch)
			}
			if !o.Fits(test.to) {
				t.Errorf("%d members do not fit", test.to)
			}
		})
	}
}

// shown returns a patch in words.
func shown(t *testing.T, o *Owner, members int, leave []*v1.Pod) string {
	t.Helper()
	raw, err := o.patch(members, leave)
	must.OK(t, err)
	list := &unstructured.Unstructured{}
	must.OK(t, list.UnmarshalJSON([]byte(`{"apiVersion":"v1","kind":"Patch","operations":`+string(raw)+`}`)))
	var words []string
	for _, raw := range list.Object["operations"].([]any) {
		op := raw.(map[string]any)
		words = append(words, fmt.Sprint(op["op"], " ", op["path"], " ", op["value"]))
	}
	return strings.Join(words, ", ")
}

func TestFits(t *testing.T) {
	o := &Owner{Size: Size{Per: 2, Least: 2, Most: 3, Others: 1}}
	for members, want := range map[int]bool{0: false, 1: false, 3: false, 4: false, 5: true, 6: false, 7: true, 9: false} {
		if o.Fits(members) != want {
			t.Errorf("%d members: %v", members, !want)
		}
	}
}

// The highest object that the table knows decides, and one above it that nobody knows might change the number back.
func TestTop(t *testing.T) {
	trainJob := object(t, "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: top}, spec: {trainer: {numNodes: 4}}}")
	jobSet := object(t, "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: middle}, spec: {}}")
	job := object(t, aJob)
	under := func(o, above *unstructured.Unstructured) *unstructured.Unstructured {
		o = o.DeepCopy()
		o.SetOwnerReferences([]metav1.OwnerReference{controlledBy(above)})
		return o
	}
	cron := object(t, "{apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly}}")
	sweep := object(t, "{apiVersion: example.com/v1, kind: Sweep, metadata: {name: sweep}}")
	for name, test := range map[string]struct {
		objects      []*unstructured.Unstructured
		top          string
		reason, says string
	}{
		"a TrainJob":    {[]*unstructured.Unstructured{under(job, jobSet), under(jobSet, trainJob), trainJob}, "TrainJob.trainer.kubeflow.org top", "", ""},
		"a CronJob":     {[]*unstructured.Unstructured{under(job, cron)}, "Job.batch a", "", ""},
		"a stranger":    {[]*unstructured.Unstructured{under(job, sweep)}, "", OtherOwner, "Sweep.example.com sweep owns Job.batch a"},
		"it is gone":    {[]*unstructured.Unstructured{under(job, jobSet)}, "", OwnerMissing, "JobSet.jobset.x-k8s.io middle does not exist, or the API server does not serve"},
		"no Job":        {[]*unstructured.Unstructured{}, "", OwnerMissing, "Job.batch a does not exist"},
		"a loop":        {[]*unstructured.Unstructured{under(job, job)}, "", UnknownOwner, "more than 8"},
		"itself queued": {[]*unstructured.Unstructured{under(job, jobSet), queued(jobSet)}, "", OtherOwner, "JobSet.jobset.x-k8s.io middle has kueue.x-k8s.io/queue-name"},
	} {
		f, _ := finder(t, test.objects...)
		o, err := f.Find(t.Context(), pods(job, 2, nil))
		refusal, refused := errors.AsType[*Refusal](err)
		switch {
		case test.top != "" && (err != nil || o.String() != test.top):
			t.Errorf("%s: %v, %v", name, o, err)
		case test.top == "" && (!refused || refusal.Reason != test.reason || !strings.Contains(refusal.Message, test.says)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func queued(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	o.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "q"})
	return o
}

// The fields of an object can keep its number from changing.
func TestNotElastic(t *testing.T) {
	ray := func(spec string) string {
		return "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: a}, spec: {" + spec + "workerGroupSpecs: [{groupName: gpu, replicas: 2, numOfHosts: 2}, {groupName: b, replicas: 1}]}}"
	}
	pytorch := func(spec string) string {
		return "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a}, spec: {" + spec + "}}"
	}
	for _, test := range []struct {
		owner  string
		labels map[string]string
		says   string
	}{
		{ray("enableInTreeAutoscaling: true, "), map[string]string{"ray.io/group": "gpu"}, "enableInTreeAutoscaling"},
		{ray(""), map[string]string{"ray.io/group": "gpu"}, "numOfHosts is 2"},
		{ray(""), map[string]string{"ray.io/group": "c"}, `none with the groupName "c"`},
		{ray(""), map[string]string{"ray.io/group": "c#"}, "several worker groups"},
		{pytorch("pytorchReplicaSpecs: {Worker: {}}"), nil, "spec.pytorchReplicaSpecs.Worker.replicas is missing"},
		{pytorch("pytorchReplicaSpecs: {Worker: {replicas: 2}}, elasticPolicy: {metrics: [{}]}"), nil, "HorizontalPodAutoscaler"},
		{strings.ReplaceAll(pytorch("pytorchReplicaSpecs: {Worker: {replicas: 2}}, runLauncherAsWorker: true"), "PyTorchJob", "MPIJob"), nil, "mpiReplicaSpecs.Worker.replicas is missing"},
		{"{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: a}, spec: {mpiReplicaSpecs: {Worker: {replicas: 2}}, runLauncherAsWorker: true}}", nil, "runLauncherAsWorker"},
		{"{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: a}, spec: {}}", map[string]string{"jobset.sigs.k8s.io/replicatedjob-name": "#"}, "several replicatedJobs"},
		{"{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: a}, spec: {}}", map[string]string{"jobset.sigs.k8s.io/replicatedjob-name": "w"}, `none with the name "w"`},
		{"{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: a}, spec: {replicas: x}}", nil, "spec.replicas is no whole number"},
	} {
		owner := object(t, test.owner)
		f, _ := finder(t, owner)
		_, err := f.Find(t.Context(), pods(owner, 2, test.labels))
		if refusal, refused := errors.AsType[*Refusal](err); !refused || refusal.Reason != NotElastic || !strings.Contains(refusal.Message, test.says) {
			t.Errorf("%s: %v", test.says, err)
		}
	}
}

// Without rights the condition names the role that gives them.
func TestNotAllowed(t *testing.T) {
	owner := object(t, "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: a}, spec: {}}")
	f, client := finder(t, owner)
	client.PrependReactor("get", "rayclusters", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "rayclusters"}, "a", errors.New("no"))
	})
	_, err := f.Find(t.Context(), pods(owner, 2, nil))
	if refusal, refused := errors.AsType[*Refusal](err); !refused || refusal.Reason != NotAllowed || !strings.Contains(refusal.Message, "bind the ClusterRole tandem-controller-resize-ray") {
		t.Errorf("%v", err)
	}
}

// An answer of the authorizer to a write names the right and the role; one of admission, with the same code, is a change that is refused.
func TestWriteNotAllowed(t *testing.T) {
	owner := object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 2}}")
	for says, want := range map[string]Refusal{
		`User "tandem" cannot patch resource "deployments/scale" in API group "apps" in the namespace "ns"`: {NotAllowed,
			"no right to patch deployments.apps/scale in the namespace ns, and so cannot change spec.replicas of Deployment.apps a"},
		"exceeded quota": {ChangeRefused, "does not let spec.replicas of Deployment.apps a change from 2 to 3"},
	} {
		f, client := finder(t, owner)
		o, err := f.Find(t.Context(), pods(owner, 2, nil))
		must.OK(t, err)
		client.PrependReactor("patch", "deployments", func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "a", errors.New(says))
		})
		err = o.Write(t.Context(), client, Change{Members: 3})
		if refusal, refused := errors.AsType[*Refusal](err); !refused || refusal.Reason != want.Reason || !strings.Contains(refusal.Message, want.Message) {
			t.Errorf("%s: %v", says, err)
		} else if want.Reason == NotAllowed && !strings.HasSuffix(refusal.Message, "bind the ClusterRole tandem-controller-resize-apps to its account") {
			t.Error(err)
		}
	}
}

// Pods that have no number leave from the last one on, those without a node first.
func TestBeyondWithoutNumbers(t *testing.T) {
	owner := object(t, "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: a}, spec: {replicas: 5}}")
	members := pods(owner, 5, nil)
	members[1].Spec.NodeName = ""
	members[3].DeletionTimestamp = &metav1.Time{}
	f, _ := finder(t, owner)
	o, err := f.Find(t.Context(), members)
	must.OK(t, err)
	for to, want := range map[int][]string{4: nil, 3: {"p-1"}, 2: {"p-1", "p-4"}, 9: nil} {
		if diff := cmp.Diff(want, names(o.Beyond(members, to))); diff != "" {
			t.Errorf("beyond %d (-want +got):\n%s", to, diff)
		}
	}
}

// KubeRay counts pods in deletion as running unless the write names them, and would delete a healthy pod for one, or make one too few. Only pods of
// the worker group are named.
func TestNamesPodsInDeletion(t *testing.T) {
	owner := object(t, "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: a}, spec: {headGroupSpec: {template: {"+member+"}}, "+
		"workerGroupSpecs: [{groupName: gpu, replicas: 4, scaleStrategy: {workersToDelete: [x]}}]}}")
	for _, test := range []struct {
		name     string
		deletion []int // the pods in deletion; 4 is the head
		to       int   // workers
		leave    []string
		named    string
	}{
		{"no pod is in deletion", nil, 3, []string{"p-3"}, "[p-3]"},
		{"the pod in deletion is the one too many", []int{1}, 3, nil, "[p-1]"},
		{"a second pod leaves", []int{1}, 2, []string{"p-3"}, "[p-3 p-1]"},
		{"more pods are in deletion than leave", []int{0, 2}, 3, nil, "[p-0 p-2]"},
		{"the group grows", []int{1, 3}, 6, nil, "[p-1 p-3]"},
		{"the head is in deletion", []int{4}, 3, []string{"p-3"}, "[p-3]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			members := pods(owner, 5, map[string]string{"ray.io/group": "gpu"})
			members[4].Labels["ray.io/group"] = "headgroup"
			for _, i := range test.deletion {
				members[i].DeletionTimestamp = &metav1.Time{}
			}
			f, _ := finder(t, owner)
			o, err := f.Find(t.Context(), members)
			must.OK(t, err)
			leave := o.Beyond(members, test.to+1)
			if diff := cmp.Diff(test.leave, names(leave)); diff != "" {
				t.Errorf("beyond %d workers (-want +got):\n%s", test.to, diff)
			}
			want := fmt.Sprintf("test /spec/workerGroupSpecs/0/replicas 4, replace /spec/workerGroupSpecs/0/replicas %d, "+
				"add /spec/workerGroupSpecs/0/scaleStrategy/workersToDelete %s", test.to, test.named)
			if got := shown(t, o, test.to+1, leave); got != want {
				t.Errorf("patch\n%s\nwant\n%s", got, want)
			}
		})
	}
}
