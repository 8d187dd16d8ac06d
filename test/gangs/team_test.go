package gangs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// team is a gang of the history, or a single pod.
type team struct {
	// versions of its PodGroup so far.
	versions int
	name     string
	// source is "label", "xk8s" or "native"; "" for a single pod.
	source       string
	members, min int
	slots, cpus  int
	priority     int
	required     []string
	preferred    []string
	// elastic are the numbers of members with which it runs, "" for a gang that is not elastic. A Job makes its members.
	elastic string
	targets []targeted
	// agile: its profile says that its workers join and leave while it runs.
	agile      bool
	runs, ends time.Duration
	created    time.Time
	arrived    atomic.Int32 // also read when a member is to be made again
	launcher   bool
	uneven     bool
	// again: members that were preempted are made again, as a Job does.
	again        bool
	incarnations int
	// ofJob: a Job makes its members, which may succeed. done are those that have. An elastic gang has a Job anyway.
	ofJob    bool
	jobsMade int
	done     map[int]bool
	grouped  bool
	health   health
	ended    ends
	// shrunk is when somebody else than the scheduler last removed a member, or its PodGroup, of a gang that had not started.
	shrunk time.Time
	// came is when a member of the team was last made again after it had run.
	came   time.Time
	before least
	// spoiled: the scheduler has had the time to see that nobody can place it.
	spoiled bool
}

// least is how many members had to run, of a gang whose number changed at an instant.
type least struct {
	at    time.Time
	count int
}

// leastAt returns how many members must run at an instant: the lowest of its numbers, since nobody may have heard of the last.
func (t *team) leastAt(now time.Time) int {
	count := t.min
	if t.before.at.Equal(now) {
		count = min(t.min, t.before.count)
	}
	if len(t.done) > 0 {
		count = max(1, count-len(t.done))
	}
	return count
}

// needs returns how many members must run: those that are done are not waited for where fewer exist.
func (t *team) needs(c count) int {
	if len(t.done) > 0 && c.exists < t.min {
		return max(1, t.min-len(t.done))
	}
	return t.min
}

// malformed reports whether nobody can place the gang: its members are unlike, or its wishes contradict each other.
func (t *team) malformed() bool {
	return t.uneven || slices.ContainsFunc(t.preferred, t.addsNothing)
}

// addsNothing reports whether a preferred level contradicts the required ones: one of them is as close, or closer.
func (t *team) addsNothing(level string) bool {
	return slices.Contains(t.required, level) || slices.Contains(t.required, v1alpha1.TopologyNVLink) ||
		slices.Contains(t.required, v1.LabelHostname) && level != v1alpha1.TopologyNVLink
}

// member returns the name of a member.
func (t *team) member(i int) string {
	if t.source == "" {
		return t.name
	}
	return fmt.Sprintf("%s-%d", t.name, i)
}

// pod returns a new pod.
func (t *team) pod(i int) *v1.Pod {
	t.incarnations++
	limits := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(t.cpus), resource.DecimalSI)}
	if t.slots > 0 && (i > 0 || !t.launcher) {
		limits[v1alpha1.ResourceVGPU] = *resource.NewQuantity(int64(t.slots), resource.DecimalSI)
	}
	name := t.member(i)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(name + "#" + strconv.Itoa(t.incarnations)), CreationTimestamp: moment(),
			Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec: v1.PodSpec{SchedulerName: v1.DefaultSchedulerName, Containers: []v1.Container{{
			Name: "main", Image: "none", Resources: v1.ResourceRequirements{Limits: limits, Requests: limits},
		}}},
	}
	priority := int32(t.priority)
	if t.uneven && i == 0 {
		priority++
	}
	p.Spec.Priority = &priority
	if t.runs > 0 {
		p.Annotations[runsAnnotation] = t.runs.String()
	}
	if t.ends > 0 {
		seconds := int64(t.ends / time.Second)
		p.Spec.ActiveDeadlineSeconds = &seconds
		p.Annotations[runsAnnotation] = t.ends.String()
	}
	t.join(p)
	if t.elastic != "" {
		p.Labels[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(i)
		if t.agile {
			p.Labels[v1alpha1.LabelProfile] = t.name
		}
	}
	if t.elastic != "" || t.ofJob {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(t.job(), batchv1.SchemeGroupVersion.WithKind("Job"))}
	}
	return p
}

// join makes the pod a member of the gang.
func (t *team) join(p *v1.Pod) {
	switch t.source {
	case "label":
		p.Labels[v1alpha1.LabelGang] = t.name
		p.Annotations[v1alpha1.AnnotationMinMembers] = strconv.Itoa(t.min)
	case "xk8s":
		p.Labels[xk8sLabel] = t.name
	case "native":
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &t.name}
	}
	if t.source == "label" {
		t.wish(&p.ObjectMeta)
	}
}

// wish writes what a gang declares beside its least number of members.
func (t *team) wish(m *metav1.ObjectMeta) {
	if t.elastic != "" {
		metav1.SetMetaDataAnnotation(m, v1alpha1.AnnotationElasticWorkers, t.elastic)
	}
	if len(t.required) > 0 {
		metav1.SetMetaDataAnnotation(m, v1alpha1.AnnotationRequiredTopology, strings.Join(t.required, ","))
	}
	if len(t.preferred) > 0 {
		metav1.SetMetaDataAnnotation(m, v1alpha1.AnnotationPreferredTopology, strings.Join(t.preferred, ","))
	}
}

// nativeGroup returns the gang's PodGroup of scheduling.k8s.io.
func (t *team) nativeGroup() *schedulingv1beta1.PodGroup {
	t.versions++ // the scheduler takes an update of the same version for none
	g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: t.name, CreationTimestamp: moment(), ResourceVersion: strconv.Itoa(t.versions),
	}}
	priority := int32(t.priority)
	g.Spec.Priority = &priority
	g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(t.min)}
	t.wish(&g.ObjectMeta)
	return g
}

// xk8sGroup returns the gang's PodGroup of scheduling.x-k8s.io.
func (t *team) xk8sGroup() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(t.min)}}}
	u.SetGroupVersionKind(xk8sGroups.GroupVersion().WithKind("PodGroup"))
	u.SetNamespace(namespace)
	u.SetName(t.name)
	u.SetCreationTimestamp(moment())
	m := metav1.ObjectMeta{}
	t.wish(&m)
	u.SetAnnotations(m.Annotations)
	return u
}
