package elasticity

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/test/must"
)

// wants has all pods state a rate, with servers ps.
func wants(rate string, pods []*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		p.Annotations[v1alpha1.AnnotationElasticRate] = rate
		p.Annotations[v1alpha1.AnnotationElasticServers] = "statefulset/ps 1-3"
		p.Labels[v1alpha1.LabelProfile] = "sizes"
	}
	return pods
}

// serverSet is the StatefulSet of the servers of train, all of which are ready.
func serverSet(replicas int32) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ps", Labels: map[string]string{v1alpha1.LabelGang: "train"}}}
	set.Spec.Replicas, set.Status.ReadyReplicas = &replicas, replicas
	set.Spec.Template.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}}}}
	return set
}

// sized is a profile of a gang that changes its size while it runs: (workers, servers) (2, 1) has 50, (4, 1) 90, (4, 2) 170,
// (8, 1) 180, (8, 2) 200.
func sized() *v1alpha1.WorkloadProfile {
	p := &v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sizes"}}
	p.Spec.Scaling = &v1alpha1.ProfileScaling{ResizeTime: &metav1.Duration{}}
	for _, r := range []struct {
		workers, servers int32
		rate             string
	}{{2, 1, "50"}, {4, 1, "90"}, {4, 2, "170"}, {8, 1, "180"}, {8, 2, "200"}} {
		p.Spec.Scaling.Rates = append(p.Spec.Scaling.Rates, v1alpha1.ScalingRate{Workers: r.workers, Servers: r.servers, Rate: resource.MustParse(r.rate)})
	}
	return p
}

// serverWorld is a world in which train states a rate; patches are those of scales.
type serverWorld struct {
	*world
	patches []string
}

func newServerWorld(t *testing.T, pods []*v1.Pod, replicas int32) *serverWorld {
	t.Helper()
	w := &serverWorld{world: newWorld(t, 8, pods...)}
	must.OK(t, w.objects.Create(t.Context(), sized()))
	must.OK(t, w.kube.Tracker().Add(serverSet(replicas)))
	w.kube.PrependReactor("patch", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if patch, is := a.(k8stesting.PatchAction); is && a.GetSubresource() == "scale" {
			w.patches = append(w.patches, a.GetResource().Resource+" "+patch.GetName()+" "+string(patch.GetPatch()))
			return w.refuse("scale", patch.GetName()) != nil, nil, w.refuse("scale", patch.GetName())
		}
		return false, nil, nil
	})
	w.look()
	return w
}

// look has the informers see the StatefulSets and autoscalers.
func (w *serverWorld) look() {
	w.Helper()
	sets, err := w.kube.AppsV1().StatefulSets("").List(w.Context(), metav1.ListOptions{})
	must.OK(w, err)
	list := make([]any, 0, 1)
	for i := range sets.Items {
		list = append(list, &sets.Items[i])
	}
	must.OK(w, w.options.Informers.Apps().V1().StatefulSets().Informer().GetStore().Replace(list, ""))
}

// replicas returns the number of servers, after which all are ready.
func (w *serverWorld) replicas() int32 {
	w.Helper()
	set, err := w.kube.AppsV1().StatefulSets("ns").Get(w.Context(), "ps", metav1.GetOptions{})
	must.OK(w, err)
	set.Status.ReadyReplicas = *set.Spec.Replicas
	must.OK(w, w.kube.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("statefulsets"), set, "ns"))
	w.look()
	return *set.Spec.Replicas
}

// condition returns the condition RateReached of train.
func (w *serverWorld) condition() metav1.Condition {
	w.Helper()
	c := meta.FindStatusCondition(w.target("train").Status.Conditions, v1alpha1.ConditionRateReached)
	if c == nil {
		w.Fatal("no condition RateReached")
	}
	return *c
}

// TestServers: eight members and one server run, and 160 is wanted: four members with two servers reach that with four GPUs
// less. Then 85 is wanted: one server is enough. Then 50: two members are enough.
func TestServers(t *testing.T) {
	w := newServerWorld(t, wants("160", members(t, "train", 8, 8, 0)), 1)
	w.pass(0) // there is no target yet
	w.check("train", 4, reasonRate)
	w.same("servers", int32(2), w.replicas())
	w.same("patches", []string{`statefulsets ps [{"op":"test","path":"/spec/replicas","value":1},{"op":"replace","path":"/spec/replicas","value":2}]`}, w.patches)
	w.same("events", []string{"Normal ElasticServersGrow the servers of StatefulSet ps grow from 1 to 2: the rate 160 is wanted, and 4 members with 2 servers " +
		"have the known rate 170 at the lowest cost"}, w.events())
	s := w.target("train").Status
	w.same("tuning", &v1alpha1.ElasticTuning{Wanted: resource.MustParse("160"), Expected: new(resource.MustParse("170")), Workers: 4, Servers: new(int32(2)), ServersReady: new(int32(1))}, s.Tuning)
	if c := w.condition(); c.Status != metav1.ConditionTrue || c.Reason != reasonReached {
		t.Errorf("condition %+v", c)
	}
	w.same("notices", leavers(at5), w.notices())

	w.drop(members(t, "train", 8, 8, 0)[4:]...)
	w.put(wants("85", members(t, "train", 8, 4, 0))...)
	w.pass(10)
	w.check("train", 4, reasonRate)
	w.same("servers", int32(1), w.replicas())
	w.same("events", []string{"Normal ElasticServersShrink the servers of StatefulSet ps shrink from 2 to 1: the rate 85 is wanted, and 4 members with 1 servers " +
		"have the known rate 90 at the lowest cost"}, w.events())

	w.put(wants("50", members(t, "train", 8, 4, 0))...)
	w.pass(20)
	w.check("train", 2, reasonRate)
	w.same("servers", int32(1), w.replicas())
	w.same("events", []string{"Normal ElasticShrink shrinks from 4 to 2 members: the rate 50 is wanted, and 2 members with 1 servers have the known rate 50 at the lowest cost"}, w.events())
	if got := testutil.ToFloat64(w.metrics.servers.WithLabelValues(scaleDone)); got != 2 {
		t.Errorf("%v changes were counted, want 2", got)
	}
}

// TestServersTooSlow: no combination reaches the rate. The servers are those of the fastest combination, and the members any
// number for which there are GPUs.
func TestServersTooSlow(t *testing.T) {
	w := newServerWorld(t, wants("1000", members(t, "train", 8, 2, 0)), 1)
	w.pass(0)
	w.check("train", 8, "Idle")
	w.same("servers", int32(2), w.replicas())
	if c := w.condition(); c.Status != metav1.ConditionFalse || c.Reason != reasonNotReached ||
		!strings.Contains(c.Message, "8 workers with 2 servers is the fastest, with 200") {
		t.Errorf("condition %+v", c)
	}
}

// TestServersShort: GPUs are short, so the job gets what there is.
func TestServersShort(t *testing.T) {
	w := newServerWorld(t, wants("190", members(t, "train", 8, 2, 0)), 1)
	other := member("other", 0)
	other.Labels = nil
	place(t, other, "n1", 7)
	other.Spec.NodeName = "n1"
	w.put(other)
	w.pass(0)
	w.check("train", 4, "Idle")
	w.same("servers", int32(2), w.replicas())
	if c := w.condition(); c.Status != metav1.ConditionFalse || c.Reason != reasonFewerMembers || !strings.Contains(c.Message, "the target is 4 members") {
		t.Errorf("condition %+v", c)
	}
}

// TestServersProblems: a problem that keeps the controller from tuning is a condition, no server is scaled, and the members
// are decided on as without a rate.
func TestServersProblems(t *testing.T) {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "auto"}}
	hpa.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{Kind: "StatefulSet", Name: "ps"}
	for _, tc := range []struct {
		name    string
		change  func(w *serverWorld, pods []*v1.Pod)
		reason  string
		message string
	}{
		{"no object", func(_ *serverWorld, pods []*v1.Pod) {
			for _, p := range pods {
				p.Annotations[v1alpha1.AnnotationElasticServers] = "statefulset/other 1-3"
			}
		}, reasonServersMissing, "StatefulSet other, which tandem-gpu.io/elastic-servers names, does not exist"},
		{"no Deployment", func(_ *serverWorld, pods []*v1.Pod) {
			for _, p := range pods {
				p.Annotations[v1alpha1.AnnotationElasticServers] = "deployment/ps 1-3"
			}
		}, reasonServersMissing, "Deployment ps, which"},
		{"not given", func(w *serverWorld, _ []*v1.Pod) {
			set := serverSet(1)
			set.Labels = nil
			must.OK(w, w.kube.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("statefulsets"), set, "ns"))
		}, reasonServersNotGiven, "does not have the label tandem-gpu.io/gang: train"},
		{"an autoscaler", func(w *serverWorld, _ []*v1.Pod) {
			must.OK(w, w.options.Informers.Autoscaling().V2().HorizontalPodAutoscalers().Informer().GetStore().Add(hpa))
		}, reasonServersScaled, "HorizontalPodAutoscaler auto scales StatefulSet ps"},
		{"a malformed rate", func(_ *serverWorld, pods []*v1.Pod) {
			for _, p := range pods {
				p.Annotations[v1alpha1.AnnotationElasticRate] = "fast"
			}
		}, reasonInvalidRate, `"fast" is not legal`},
		{"unlike rates", func(_ *serverWorld, pods []*v1.Pod) {
			pods[3].Annotations[v1alpha1.AnnotationElasticRate] = "3"
		}, reasonInvalidRate, "it must be the same on all members"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pods := wants("160", members(t, "train", 8, 2, 0))
			w := newServerWorld(t, nil, 1)
			tc.change(w, pods)
			w.look()
			w.put(pods...)
			w.pass(0)
			w.check("train", 8, "Idle")
			if c := w.condition(); c.Status != metav1.ConditionFalse || c.Reason != tc.reason || !strings.Contains(c.Message, tc.message) {
				t.Errorf("condition %+v", c)
			}
			w.same("patches", []string(nil), w.patches)
		})
	}
}

// TestRateChangesStepByStep: while a user changes the rate of one member after the other, the gang does not grow as if it wanted none.
func TestRateChangesStepByStep(t *testing.T) {
	pods := wants("85", members(t, "train", 8, 4, 0))
	w := newServerWorld(t, pods, 1)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 4)))
	for i, p := range pods {
		p.Annotations[v1alpha1.AnnotationElasticRate] = "160"
		w.put(p)
		w.look()
		w.pass(i)
		if got := w.target("train"); got.Spec.Workers != 4 {
			t.Fatalf("%d members want 160: %+v", i+1, got)
		}
	}
}

// TestServersChangedMeanwhile: the API server refuses the patch where the number is no longer what the controller has read. That
// is no failure of the pass; any other refusal is one.
func TestServersChangedMeanwhile(t *testing.T) {
	w := newServerWorld(t, wants("160", members(t, "train", 8, 8, 0)), 1)
	kind := schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
	refusal := error(apierrors.NewInvalid(kind, "ps", nil))
	w.refuse = func(verb, _ string) error {
		if verb == "scale" {
			return refusal
		}
		return nil
	}
	w.pass(0)
	w.same("servers", int32(1), w.replicas())
	refusal = apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "statefulsets"}, "ps", nil)
	if err := w.try(10); err == nil || !strings.Contains(err.Error(), "scale StatefulSet ps") {
		t.Errorf("says %v", err)
	}
	for result, want := range map[string]float64{scaleDone: 0, scaleStale: 1, scaleFailed: 1} {
		if got := testutil.ToFloat64(w.metrics.servers.WithLabelValues(result)); got != want {
			t.Errorf("%s: %v, want %v", result, got, want)
		}
	}
	w.same("events of servers", false, strings.Contains(strings.Join(w.events(), "\n"), "the servers of"))
}

// TestServersLearn: the learner keeps rates by the number of servers, and nothing while their number changes.
func TestServersLearn(t *testing.T) {
	g := gangOf(wants("160", members(t, "train", 2, 2, 0)), nil)
	l := listersOf(t, serverSet(2))
	m := remember(g, testRules, noon)
	observe := func(after int, each float64) {
		g.tuning = l.tuned(g)
		must.OK(t, m.observe(g, map[types.UID]report{"uid-train-0": {rate: each}, "uid-train-1": {rate: each}}, false, seconds(after)))
	}
	observe(0, 10)
	set := serverSet(3)
	set.Status.ReadyReplicas = 2
	l = listersOf(t, set)
	observe(10, 99)
	l = listersOf(t, serverSet(3))
	observe(20, 15)
	want := []elastic.CombinationRate{
		{Combination: elastic.Combination{Workers: 2, Servers: 2}, Rate: 20}, {Combination: elastic.Combination{Workers: 2, Servers: 3}, Rate: 30},
	}
	if diff := cmp.Diff(want, m.learner.Combinations()); diff != "" {
		t.Errorf("learned: %s", diff)
	}
	// A new process has them from the status.
	target := targetOf("train", 2, 8, 2)
	target.Status.Rates = ratesIn(&m.learner)
	again := remember(gangOf(g.all, target), testRules, noon)
	if diff := cmp.Diff(want, again.learner.Combinations()); diff != "" {
		t.Errorf("read again: %s", diff)
	}
}

// TestRateWithoutServers: a gang without servers gets the fewest members that reach its rate.
func TestRateWithoutServers(t *testing.T) {
	pods := members(t, "train", 8, 8, 0)
	for _, p := range pods {
		p.Annotations[v1alpha1.AnnotationElasticRate] = "3.5"
		p.Labels[v1alpha1.LabelProfile] = "alone"
	}
	w := newServerWorld(t, pods, 1)
	profile := &v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "alone"}}
	profile.Spec.Scaling = &v1alpha1.ProfileScaling{ResizeTime: &metav1.Duration{}, Rates: []v1alpha1.ScalingRate{
		{Workers: 2, Rate: resource.MustParse("2")}, {Workers: 4, Hosts: 1, Rate: resource.MustParse("3.6")}, {Workers: 8, Rate: resource.MustParse("5")},
	}}
	must.OK(t, w.objects.Create(t.Context(), profile))
	w.pass(0)
	w.check("train", 4, reasonRate)
	if s := w.target("train").Status.Tuning; s == nil || s.Servers != nil || s.Workers != 4 {
		t.Errorf("tuning %+v", s)
	}
	w.same("patches", []string(nil), w.patches)
}

// A gang without a node waits, whatever its rate needs, and its rate is not reached.
func TestRateOfAGangThatWaits(t *testing.T) {
	pods := append(wants("50", members(t, "train", 8, 0, 0)), members(t, "rigid", 8, 8, 0)...)
	w := newServerWorld(t, pods, 1)
	w.pass(0)
	w.check("train", 2, "Waits")
	if c := w.condition(); c.Status != metav1.ConditionFalse || c.Message != "no member has a node yet" {
		t.Errorf("%+v", c)
	}
}
