package parking

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

func set(replicas *int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nb", UID: "set"},
		Spec:       appsv1.StatefulSetSpec{Replicas: replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "nb"}}},
	}
}

func TestUnfit(t *testing.T) {
	host := set(new(int32(1)))
	host.Spec.Template.Spec.HostNetwork = true
	long := set(nil)
	long.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: make([]string, MaxSelector-1)}}
	for _, test := range []struct {
		w    *Workload
		want string
	}{
		{OfStatefulSet(set(nil)), ""},
		{OfStatefulSet(set(new(int32(0)))), ""},
		{OfStatefulSet(set(new(int32(2)))), "spec.replicas: a notebook has one pod, StatefulSet ns/nb asks for 2"},
		{OfStatefulSet(host), "spec.template.spec.hostNetwork"},
		{OfStatefulSet(long), "spec.selector: that of a notebook has at most 16 labels, expressions and values together, StatefulSet ns/nb has 17"},
	} {
		if got := test.w.Unfit(); !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%+v: %q, want %q", test.w, got, test.want)
		}
	}
	if n := OfStatefulSet(set(nil)).Replicas; n != 1 {
		t.Errorf("a StatefulSet without a number asks for %d pods", n)
	}
}

// A selector that the API server would not take matches no pod.
func TestBadSelector(t *testing.T) {
	s := set(nil)
	s.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}
	if OfStatefulSet(s).Selector.Matches(labels.Set{"app": "nb"}) {
		t.Error("it matches")
	}
}

func TestPod(t *testing.T) {
	owned := func(name, kind, owner string, uid types.UID) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner, UID: uid, Controller: new(true)}}}}
	}
	mine, other := owned("mine", "StatefulSet", "nb", "set"), owned("other", "StatefulSet", "nb", "")
	leaving, failed, ended := owned("leaving", "StatefulSet", "nb", "set"), owned("failed", "StatefulSet", "nb", "set"), owned("ended", "StatefulSet", "nb", "set")
	leaving.DeletionTimestamp, failed.Status.Phase, ended.Status.Phase = &metav1.Time{}, v1.PodFailed, v1.PodSucceeded
	w := OfStatefulSet(set(nil))
	if p, err := w.Pod([]*v1.Pod{leaving, other, mine, failed, ended, {}}); err != nil || p != mine {
		t.Errorf("%v %v", p, err)
	}
	if _, err := w.Pod([]*v1.Pod{mine, owned("second", "StatefulSet", "nb", "set")}); err == nil || !strings.Contains(err.Error(), "pods mine and second") {
		t.Error(err)
	}
	d := OfDeployment(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "nb"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}})
	replica := owned("a", "ReplicaSet", "nb-5d8f", "")
	if p, err := d.Pod([]*v1.Pod{owned("b", "ReplicaSet", "nbx-1", ""), mine, replica}); err != nil || p != replica {
		t.Errorf("%v %v", p, err)
	}
}
