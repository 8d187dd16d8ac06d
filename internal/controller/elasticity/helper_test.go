package elasticity

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/resize"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// noon is the time of the first pass.
var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func seconds(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }

// ref names a gang by label.
func ref(name string) podgroup.Ref {
	return podgroup.Ref{Source: podgroup.Label, Namespace: "ns", Name: name}
}

// owned returns the reference to a controller.
func owned(apiVersion, kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: new(true)}}
}

// member returns a member of a gang by its number, which waits for one device. A Job of the gang's name made it an hour ago.
func member(gang string, index int) *v1.Pod {
	name := fmt.Sprintf("%s-%d", gang, index)
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)), Annotations: map[string]string{},
		Labels:          map[string]string{v1alpha1.LabelGang: gang, batchv1.JobCompletionIndexAnnotation: fmt.Sprint(index)},
		OwnerReferences: owned("batch/v1", "Job", gang),
	}}
	p.Spec.SchedulerName = v1alpha1.SchedulerName
	p.Spec.Containers = []v1.Container{{Name: "c0", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1alpha1.ResourceVGPU: resource.MustParse("10")}}}}
	return p
}

// members returns the members of a gang, the first ones of which run: on the devices of n1 from one on.
func members(t testing.TB, gang string, count, running, device int) (pods []*v1.Pod) {
	for i := range count {
		p := member(gang, i)
		if i < running {
			place(t, p, "n1", device+i)
		}
		pods = append(pods, p)
	}
	return pods
}

// place gives a pod a device of a node.
func place(t testing.TB, p *v1.Pod, node string, device int) {
	t.Helper()
	a := testkit.Assignment(t, testkit.Node(t, node, testkit.A100, 16), device, "ns/"+p.Name, 10)
	a.UID = vgpu.UID(p.UID)
	raw, err := kube.EncodeAssignment(a)
	must.OK(t, err)
	p.Annotations[v1alpha1.AnnotationAssignment] = raw
	p.Spec.NodeName, p.Status.Phase = node, v1.PodRunning
}

// targetOf returns the ElasticTarget of a gang by label.
func targetOf(gang string, least, most, workers int32) *v1alpha1.ElasticTarget {
	return &v1alpha1.ElasticTarget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: gang},
		Spec:       v1alpha1.ElasticTargetSpec{Source: "label", Min: least, Max: most, Workers: workers},
	}
}

// yes is a verdict for a gang that may change its size.
var yes = verdict{yes: true, reason: reasonHeldMembers, message: "members wait, or are evicted"}

// testRules are those of package resize.
var testRules = resize.Config{Notice: 5 * time.Second, Within: 2 * time.Minute}

// gangOf returns a gang that runs with 2, 4 or 8 members and may change its size.
func gangOf(pods []*v1.Pod, target *v1alpha1.ElasticTarget) *elasticGang {
	g := newGang(&podgroup.Gang{Ref: ref("train"), MinCount: 2, Sizes: []int{2, 4, 8}, Members: pods, Created: noon.Add(-time.Hour)}, pods, target)
	g.resizable = yes
	g.view = g.show()
	return g
}

// jobOf returns a Job whose evicted pods do not count as failures.
func jobOf(name string, parallelism int32) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}, Spec: batchv1.JobSpec{
		Parallelism: &parallelism,
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{v1alpha1.LabelGang: name}, Annotations: map[string]string{v1alpha1.AnnotationElasticResize: v1alpha1.ResizeSizeFields},
		}},
		PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
		}}},
	}}
}

// listersOf returns listers over these objects.
func listersOf(t testing.TB, objects ...runtime.Object) *listers {
	t.Helper()
	all := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	byKind := map[string]cache.Indexer{}
	for _, o := range objects {
		kind := fmt.Sprintf("%T", o)
		if byKind[kind] == nil {
			byKind[kind] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		}
		must.OK(t, byKind[kind].Add(o))
	}
	of := func(kind string) cache.Indexer {
		if byKind[kind] == nil {
			return all
		}
		return byKind[kind]
	}
	return &listers{
		statefulSets: appslisters.NewStatefulSetLister(of("*v1.StatefulSet")), deployments: appslisters.NewDeploymentLister(of("*v1.Deployment")),
		jobs: batchlisters.NewJobLister(of("*v1.Job")), replicaSets: appslisters.NewReplicaSetLister(of("*v1.ReplicaSet")),
		autoscalers: autoscalinglisters.NewHorizontalPodAutoscalerLister(of("*v2.HorizontalPodAutoscaler")),
	}
}
