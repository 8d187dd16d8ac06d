package snapshot

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/admission"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// condensed returns what an informer keeps of an object.
func condensed[T any](t *testing.T, c *Condenser, object T) T {
	t.Helper()
	out, err := c.Condense(object)
	must.OK(t, err)
	return out.(T)
}

// rich returns a pod with all that the controller reads, and more.
func rich(t *testing.T) *v1.Pod {
	p := on(t, pod("train-3", 5), "n1", 0)
	p.Labels = map[string]string{v1alpha1.LabelGang: "train", batchv1.JobCompletionIndexAnnotation: "3"}
	p.Annotations[v1alpha1.AnnotationElasticWorkers] = "2-8"
	p.Annotations["kubectl.kubernetes.io/last-applied-configuration"] = strings.Repeat("x", maxForeign+1)
	p.Annotations["example.com/short"] = "kept"
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job", Controller: new(true)}}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	p.DeletionTimestamp, p.Finalizers = &metav1.Time{}, []string{"batch.kubernetes.io/job-tracking"}
	s := &p.Spec
	s.SchedulerName, s.Priority, s.PriorityClassName = "tandem-scheduler", new(int32(7)), "urgent"
	s.NodeSelector, s.Tolerations = map[string]string{"zone": "a"}, []v1.Toleration{{Key: "gpu"}}
	s.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}, PodAffinity: &v1.PodAffinity{}}
	s.SchedulingGates, s.SchedulingGroup = []v1.PodSchedulingGate{{Name: "later"}}, &v1.PodSchedulingGroup{PodGroupName: new("train")}
	s.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	s.InitContainers = []v1.Container{{Name: "side", RestartPolicy: new(v1.ContainerRestartPolicyAlways), Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")},
	}}}
	s.Containers[0].Env = []v1.EnvVar{{Name: "A", Value: "B"}}
	s.Volumes = []v1.Volume{{Name: "data"}}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady}, {Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Unix(5, 0)}}
	p.Status.StartTime = &metav1.Time{}
	return p
}

// The controller reads the same of a pod before and after.
func TestCondensedPod(t *testing.T) {
	read := func(p *v1.Pod) string {
		request, err := kube.Request(p)
		host, errHost := kube.Host(p)
		assignment, errAssigned := kube.AssignmentOf(p)
		return fmt.Sprintln(request, err, host, errHost, assignment, errAssigned, membership.GangsOf(p), membership.RankOf(p), p.Name, p.Namespace, p.UID,
			p.Labels, p.Finalizers, metav1.GetControllerOf(p).UID, p.DeletionTimestamp, p.CreationTimestamp, p.ResourceVersion, p.Annotations["example.com/short"],
			p.Annotations[v1alpha1.AnnotationElasticWorkers], p.Spec.NodeName, p.Spec.SchedulerName, *p.Spec.Priority, p.Spec.PriorityClassName, p.Spec.SchedulingGates,
			p.Spec.SchedulingGroup, p.Status.Phase, p.Status.StartTime)
	}
	p := rich(t)
	out := condensed(t, &Condenser{}, p.DeepCopy())
	if diff := cmp.Diff(read(p), read(out)); diff != "" {
		t.Error(diff)
	}
	if !admission.Alike(p, out) {
		t.Error("other nodes take the pod")
	}
	if c := out.Status.Conditions; len(c) != 1 || c[0].Type != v1.PodScheduled || c[0].LastTransitionTime.Unix() != 5 {
		t.Errorf("conditions %v", c)
	}
	if out.ManagedFields != nil || len(out.Annotations) != len(p.Annotations)-1 || out.Spec.Volumes != nil || out.Spec.Containers[0].Env != nil {
		t.Errorf("it has more than the controller reads: %v", out)
	}
}

// The last end of the containers of a pod that has ended is kept, and nothing else of any container.
func TestCondensedEnd(t *testing.T) {
	ended := func(at int64) v1.ContainerStatus {
		return v1.ContainerStatus{Name: "c", Image: "large", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			FinishedAt: metav1.Unix(at, 0), Message: "long",
		}}}
	}
	last := v1.ContainerStatus{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.Unix(9, 0)}}}
	for _, test := range []struct {
		name  string
		phase v1.PodPhase
		of    []v1.ContainerStatus
		want  []v1.ContainerStatus
	}{
		{"it succeeded", v1.PodSucceeded, []v1.ContainerStatus{ended(5), ended(9), ended(7)}, []v1.ContainerStatus{last}},
		{"it failed", v1.PodFailed, []v1.ContainerStatus{ended(9), {}}, []v1.ContainerStatus{last}},
		{"it failed before any container ran", v1.PodFailed, []v1.ContainerStatus{{}}, nil},
		{"one container has ended, and the pod runs", v1.PodRunning, []v1.ContainerStatus{ended(5), {}}, nil},
	} {
		p := pod("train-3", 5)
		p.Status.Phase, p.Status.ContainerStatuses = test.phase, test.of
		if diff := cmp.Diff(test.want, condensed(t, &Condenser{}, p).Status.ContainerStatuses); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// Pods of one owner share what they have in common, and nothing else.
func TestSharedTemplates(t *testing.T) {
	c := &Condenser{}
	first, second, other := condensed(t, c, rich(t)), condensed(t, c, rich(t)), rich(t)
	if &first.Spec.Containers[0] != &second.Spec.Containers[0] || &first.Spec.Tolerations[0] != &second.Spec.Tolerations[0] {
		t.Error("two pods of one Job share nothing")
	}
	other.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("9")}
	other = condensed(t, c, other)
	if cpu := other.Spec.Containers[0].Resources.Requests.Cpu().Value(); cpu != 9 || first.Spec.Containers[0].Resources.Requests.Cpu().Value() == 9 {
		t.Errorf("the requests of one pod became those of another: %d", cpu)
	}
	for i := range maxTemplates {
		p := pod("p", 1)
		p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(fmt.Sprint(i)), Controller: new(true)}}
		condensed(t, c, p)
	}
	if len(c.templates) > maxTemplates {
		t.Errorf("%d templates", len(c.templates))
	}
}

func TestCondensedNodes(t *testing.T) {
	n := node("n1", "zone", "a")
	n.Spec.Taints, n.Spec.Unschedulable = []v1.Taint{{Key: "gpu"}}, true
	n.Status.Images = []v1.ContainerImage{{Names: []string{"large"}}}
	n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: v1.NodeMemoryPressure})
	want := n.DeepCopy()
	want.Status.Images, want.Status.Conditions = nil, want.Status.Conditions[:1]
	if diff := cmp.Diff(want, condensed(t, &Condenser{}, n)); diff != "" {
		t.Error(diff)
	}
	g := gpus("n1", 2)
	g.Status.Devices[0].Message = "long"
	g.Status.Devices[0].Tenants = []v1alpha1.GPUTenant{{UID: "a", MemoryUsed: new(resource.MustParse("1Gi")), Rate: new(resource.MustParse("5")), SMUtilizationPercent: new(int32(7)), Measured: true},
		{UID: "b", SMUtilizationPercent: new(int32(7))}}
	before, err := kube.Devices(g)
	must.OK(t, err)
	g = condensed(t, &Condenser{}, g)
	after, err := kube.Devices(g)
	if diff := cmp.Diff(before, after); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if d := g.Status.Devices[0]; d.Message != "" || d.Tenants[0].MemoryUsed != nil || d.Tenants[0].Rate == nil || d.Tenants[0].SMUtilizationPercent == nil || d.Tenants[1].SMUtilizationPercent != nil {
		t.Errorf("%+v", d)
	}
	target := &v1alpha1.ElasticTarget{ObjectMeta: metav1.ObjectMeta{Name: "train", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", Subresource: "scale"}, {Manager: "tandem-activator"}}}}
	if out := condensed(t, &Condenser{}, target); out.ManagedFields != nil || out.Name != "train" {
		t.Errorf("%+v", out)
	}
}
