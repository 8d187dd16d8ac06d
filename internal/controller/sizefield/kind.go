package sizefield

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a row of the table: a kind of object that makes pods, and where it says how many.
type Kind struct {
	schema.GroupKind
	// Resource is the name of the kind in the paths of the API.
	Resource string
	// Scale says that the number is written by the subresource scale.
	Scale bool
	// Leave says which pods the owner deletes when the number gets smaller.
	Leave Leave
	// Size reads an object. The error says in words why its number cannot change.
	Size func(o *unstructured.Unstructured, pods []*v1.Pod) (Size, error)
	// ManagedBy is the path of the field that names the controller of the object, and Managers the names that this kind's own
	// controllers have there.
	ManagedBy []string
	Managers  []string
	// Suspend is the path of the field that suspends the object.
	Suspend []string
	// Role is the ClusterRole that lets the controller resize this kind.
	Role string
}

// Leave says which pods leave when the number gets smaller.
type Leave int

const (
	// HighestIndex says that the owner deletes the pods with the highest numbers.
	HighestIndex Leave = iota
	// Named says that the owner deletes the pods that the write names. It does not count pods in deletion that are named.
	Named
	// Cheapest says that the owner deletes the pods with the least annotation CostAnnotation first, after those without a node.
	Cheapest
)

// CostAnnotation orders the pods of a ReplicaSet: those with the least number are deleted first.
const CostAnnotation = "controller.kubernetes.io/pod-deletion-cost"

// Size is what an object says of the number of its pods.
type Size struct {
	// Fields are the JSON paths that hold the number; all of them hold the same one.
	Fields [][]string
	// Number is what they hold.
	Number int
	// Per is how many members one of the number stands for, 1 or more.
	Per int
	// Least and Most bound the number; Most is 0 for no bound.
	Least, Most int
	// Others is how many members of the gang the object makes that the number does not count, for example a master.
	Others int
	// Counted selects the pods that the number counts by their labels; none for all pods.
	Counted map[string]string
	// Index is the label with the number of a pod, First that of the first one.
	Index string
	First int
	// Names is the JSON path of the list that names the pods that leave, nil where Leave is not Named. NamesParent says that the
	// object above the list exists.
	Names       []string
	NamesParent bool
}

// Labels by which controllers mark their pods.
const (
	jobSetJobLabel    = "jobset.sigs.k8s.io/replicatedjob-name"
	jobSetIndexLabel  = "jobset.sigs.k8s.io/job-index"
	trainRoleLabel    = "training.kubeflow.org/replica-type"
	trainIndexLabel   = "training.kubeflow.org/replica-index"
	mpiRoleLabel      = "training.kubeflow.org/job-role"
	rayGroupLabel     = "ray.io/group"
	statefulPodsLabel = "apps.kubernetes.io/pod-index"
)

// Groups of APIs.
const (
	kubeflow = "kubeflow.org"
	apps     = "apps"
)

func kind(group, name, resource string) Kind {
	return Kind{GroupKind: schema.GroupKind{Group: group, Kind: name}, Resource: resource, Role: roleOf(group)}
}

// roleOf returns the ClusterRole with the rights on the objects of an API group.
func roleOf(group string) string {
	return map[string]string{
		batchv1.GroupName: "tandem-controller-resize-jobs", apps: "tandem-controller-resize-apps", "jobset.x-k8s.io": "tandem-controller-resize-jobsets",
		"trainer.kubeflow.org": "tandem-controller-resize-trainjobs", kubeflow: "tandem-controller-resize-kubeflow", "ray.io": "tandem-controller-resize-ray",
	}[group]
}

// Kinds returns the table.
func Kinds() []Kind {
	job := kind(batchv1.GroupName, "Job", "jobs")
	job.Size, job.Suspend = indexedJob, []string{"spec", "suspend"}
	job.ManagedBy, job.Managers = []string{"spec", "managedBy"}, []string{batchv1.JobControllerName}

	jobSet := kind("jobset.x-k8s.io", "JobSet", "jobsets")
	jobSet.Size, jobSet.Suspend = replicatedJob, []string{"spec", "suspend"}
	jobSet.ManagedBy, jobSet.Managers = []string{"spec", "managedBy"}, []string{"jobset.sigs.k8s.io/jobset-controller"}

	trainJob := kind("trainer.kubeflow.org", "TrainJob", "trainjobs")
	trainJob.Size, trainJob.Suspend = number(batchv1.JobCompletionIndexAnnotation, "spec", "trainer", "numNodes"), []string{"spec", "suspend"}
	trainJob.ManagedBy, trainJob.Managers = []string{"spec", "managedBy"}, []string{"trainer.kubeflow.org/trainjob-controller"}

	ray := kind("ray.io", "RayCluster", "rayclusters")
	ray.Size, ray.Suspend, ray.Leave = workerGroup, []string{"spec", "suspend"}, Named
	ray.ManagedBy, ray.Managers = []string{"spec", "managedBy"}, []string{"ray.io/kuberay-operator"}

	stateful := kind(apps, "StatefulSet", "statefulsets")
	stateful.Size, stateful.Scale = statefulSet, true
	deployment := kind(apps, "Deployment", "deployments")
	deployment.Size, deployment.Scale, deployment.Leave = number("", "spec", "replicas"), true, Cheapest
	replicaSet := kind(apps, "ReplicaSet", "replicasets")
	replicaSet.Size, replicaSet.Scale, replicaSet.Leave = number("", "spec", "replicas"), true, Cheapest

	return []Kind{
		job, jobSet, trainJob, ray, stateful, deployment, replicaSet,
		training("PyTorchJob", "pytorchjobs", "pytorchReplicaSpecs"),
		training("MPIJob", "mpijobs", "mpiReplicaSpecs"),
		training("TFJob", "tfjobs", "tfReplicaSpecs"),
	}
}

// training returns the row of a kind of the training operator or of the MPI operator: the number of its workers changes.
func training(name, resource, specs string) Kind {
	k := kind(kubeflow, name, resource)
	k.Size, k.Suspend = workers(specs), []string{"spec", "runPolicy", "suspend"}
	k.ManagedBy = []string{"spec", "runPolicy", "managedBy"}
	k.Managers = []string{"kubeflow.org/training-operator", "kubeflow.org/mpi-operator"} // both make MPIJobs
	return k
}

// makers are kinds that make an object and do not change its size afterwards.
var makers = []schema.GroupKind{{Group: batchv1.GroupName, Kind: "CronJob"}}

// kindOf returns the row of a kind, nil where the table has none.
func kindOf(gk schema.GroupKind) *Kind {
	all := Kinds()
	if i := slices.IndexFunc(all, func(k Kind) bool { return k.GroupKind == gk }); i >= 0 {
		return &all[i]
	}
	return nil
}
