package connection

import (
	"slices"
	"strings"
	"testing"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

func schedulerPod(name string, phase v1.PodPhase) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tandem-system", Name: name, Labels: map[string]string{"app.kubernetes.io/name": "tandem-scheduler"}},
		Status:     v1.PodStatus{Phase: phase},
	}
}

func held(by string) *coordination.Lease {
	return &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "tandem-system", Name: "tandem-scheduler"}, Spec: coordination.LeaseSpec{HolderIdentity: &by}}
}

// The pod that holds the lease is asked; all are where the lease does not say it; errors say what is missing.
func TestCandidates(t *testing.T) {
	a, b := schedulerPod("s-a", v1.PodRunning), schedulerPod("s-ab", v1.PodRunning)
	long := schedulerPod(strings.Repeat("x", 62)+"-yz", v1.PodRunning)
	hosts := schedulerPod("s-c", v1.PodRunning)
	hosts.Spec.HostNetwork, hosts.Spec.NodeName = true, "node-7"
	for _, test := range []struct {
		name    string
		objects []runtime.Object
		forbid  string
		want    []string
		says    string
	}{
		{"holder", []runtime.Object{a, b, held("s-a_1")}, "", []string{"s-a"}, ""},
		{"other holder", []runtime.Object{a, b, held("s-ab_1")}, "", []string{"s-ab"}, ""},
		{"name beyond a host name", []runtime.Object{long, a, held(strings.Repeat("x", 62) + "_1")}, "", []string{long.Name}, ""},
		{"network of the host", []runtime.Object{hosts, a, held("node-7_1")}, "", []string{"s-c"}, ""},
		{"no lease", []runtime.Object{a, b}, "", []string{"s-a", "s-ab"}, ""},
		{"no right to the lease", []runtime.Object{a, b, held("s-a_1")}, "leases", []string{"s-a", "s-ab"}, ""},
		{"no right to pods", []runtime.Object{a, held("s-a_1")}, "pods", nil, "rights to list pods and to create pods/portforward in the namespace tandem-system"},
		{"pods that do not run", []runtime.Object{schedulerPod("s-a", v1.PodPending), held("s-a_1")}, "", nil, "it does not run: the pod tandem-system/s-a is Pending; kubectl -n tandem-system describe pod s-a says why"},
		{"no pods", []runtime.Object{held("s-a_1")}, "", nil, "no pod with the label app.kubernetes.io/name=tandem-scheduler runs"},
		{"holder elsewhere", []runtime.Object{a, b, held("old_1")}, "", nil, "old_1 holds the lease tandem-system/tandem-scheduler, and the running pods are s-a, s-ab"},
		{"no holder", []runtime.Object{a, held("")}, "", nil, "no scheduler holds the lease"},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := fake.NewClientset(test.objects...)
			client.PrependReactor("*", "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
				r := action.GetResource().Resource
				return r == test.forbid, nil, apierrors.NewForbidden(schema.GroupResource{Resource: r}, "", nil)
			})
			o := Defaults()
			got, err := candidates(t.Context(), client, &o)
			if !slices.Equal(got, test.want) || (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
