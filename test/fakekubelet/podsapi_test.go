package fakekubelet_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/tandem-gpu/tandem/test/must"
)

// The Pods API tells of a pod in the kubelet's order: it is there, it runs, it is being deleted, nothing of it runs.
func TestPodsAPIReportsTheLifeOfAPod(t *testing.T) {
	b := newBench(t)
	client := podsapi.NewPodsClient(b.dial(b.paths.PodsAPI))
	b.eventually(func() error { // the kubelet knows its pods
		_, err := client.ListPods(t.Context(), &podsapi.ListPodsRequest{})
		return err
	})
	stream, err := client.WatchPods(t.Context(), &podsapi.WatchPodsRequest{})
	must.OK(t, err)
	next := func() (string, *v1.Pod) {
		t.Helper()
		event, err := stream.Recv()
		must.OK(t, err)
		pod := &v1.Pod{}
		must.OK(t, pod.Unmarshal(event.Pod))
		return event.Type.String(), pod
	}
	if kind, _ := next(); kind != "INITIAL_SYNC_COMPLETE" {
		t.Fatalf("first event %s of a node without pods", kind)
	}
	grace := int64(30)
	pod, err := b.admin.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: b.node + "-p", Namespace: "default"},
		Spec:       v1.PodSpec{NodeName: b.node, Containers: []v1.Container{ask("main", 1)}, TerminationGracePeriodSeconds: &grace},
	}, metav1.CreateOptions{})
	must.OK(t, err)
	if kind, p := next(); kind != "ADDED" || p.UID != pod.UID || p.Status.Phase != v1.PodPending {
		t.Errorf("%s of %s in phase %s, want that the pod was added", kind, p.UID, p.Status.Phase)
	}
	b.awaitRunning(pod)
	if kind, p := next(); kind != "MODIFIED" || p.Status.Phase != v1.PodRunning {
		t.Errorf("%s in phase %s, want that the pod runs", kind, p.Status.Phase)
	}
	must.OK(t, b.admin.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	if kind, p := next(); kind != "MODIFIED" || p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 30 {
		t.Errorf("%s, deleted %v, want the deletion with its grace", kind, p.DeletionTimestamp)
	}
	if kind, p := next(); kind != "DELETED" || p.UID != pod.UID || p.Spec.NodeName != "" {
		t.Errorf("%s of %+v, want that nothing of the pod runs, and its names", kind, p.ObjectMeta)
	}
	other := b.create("other", nil, []v1.Container{ask("main", 1)})
	if kind, p := next(); kind != "ADDED" || p.UID != other.UID {
		t.Errorf("%s of %s, want the next pod: the end of a pod is told once", kind, p.Name)
	}
}
