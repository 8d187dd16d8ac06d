package fakekubelet_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/tandem-gpu/tandem/test/must"
)

func TestRunningPodHasAnAddress(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"first", "second", "without"} {
		created := b.create(name, nil, []v1.Container{ask("main", 1)})
		b.awaitRunning(created)
		pod, err := b.admin.CoreV1().Pods("default").Get(t.Context(), created.Name, metav1.GetOptions{})
		must.OK(t, err)
		var all []v1.PodIP
		if addresses[name] != "" {
			all = []v1.PodIP{{IP: addresses[name]}}
		}
		if pod.Status.PodIP != addresses[name] || !slices.Equal(pod.Status.PodIPs, all) {
			t.Errorf("pod %s has the address %q and the addresses %v, want %q", name, pod.Status.PodIP, pod.Status.PodIPs, addresses[name])
		}
	}
}

// refusing refuses the first requests that change one pod each, by method and path.
type refusing struct {
	http.RoundTripper
	seen *sync.Map
}

func (r refusing) RoundTrip(q *http.Request) (*http.Response, error) {
	if _, seen := r.seen.LoadOrStore(q.Method+" "+q.URL.Path, true); !seen && strings.Contains(q.URL.Path, "/pods/") && q.Method != http.MethodGet {
		status := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no relationship found"}`
		return &http.Response{
			StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)), Request: q,
		}, nil
	}
	return r.RoundTripper.RoundTrip(q)
}

// The API server's authorizer of nodes learns late which pods are on a node. The kubelet sends a request again that the
// authorizer refuses until then.
func TestRefusedRequestsAreSentAgain(t *testing.T) {
	b := newBenchWith(t, func(rt http.RoundTripper) http.RoundTripper { return refusing{rt, &sync.Map{}} })
	runs := b.create("runs", nil, []v1.Container{ask("main", 4)})
	b.awaitRunning(runs)
	rejected := b.create("rejected", nil, []v1.Container{ask("main", 5)})
	b.awaitPod(rejected, "failed", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	must.OK(t, b.admin.CoreV1().Pods("default").Delete(t.Context(), runs.Name, *metav1.NewDeleteOptions(30)))
	b.eventually(func() error {
		_, err := b.admin.CoreV1().Pods("default").Get(t.Context(), runs.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("get deleted pod: want not found, got %w", err)
		}
		return nil
	})
}

func TestDeletedPodFreesItsDevices(t *testing.T) {
	b := newBench(t)
	first := b.create("first", nil, []v1.Container{ask("main", 4)})
	b.awaitRunning(first)
	grace := metav1.NewDeleteOptions(30) // the kubelet must confirm
	must.OK(t, b.admin.CoreV1().Pods("default").Delete(t.Context(), first.Name, *grace))
	b.eventually(func() error {
		_, err := b.admin.CoreV1().Pods("default").Get(t.Context(), first.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("get deleted pod: want not found, got %w", err)
		}
		return nil
	})
	second := b.create("second", nil, []v1.Container{ask("main", 4)})
	b.awaitRunning(second)
	diff(t, "checkpoint", map[string]string{"second/main": "{s0 s1 s2 s3}"}, b.checkpoint(first, second))
}

func TestPodResourcesAndPodsAPI(t *testing.T) {
	b := newBench(t)
	pod := b.create("p", []v1.Container{ask("fetch", 1)}, []v1.Container{ask("main", 2)})
	b.awaitRunning(pod)

	list, err := podresourcesapi.NewPodResourcesListerClient(b.dial(b.paths.PodResources)).
		List(t.Context(), &podresourcesapi.ListPodResourcesRequest{})
	must.OK(t, err)
	got := map[string]string{} // ordinary init containers are not listed
	for _, p := range list.PodResources {
		for _, c := range p.Containers {
			var ids []string
			for _, d := range c.Devices {
				ids = append(ids, d.DeviceIds...)
			}
			got[p.Name+"/"+c.Name] = join(ids)
		}
	}
	diff(t, "pod-resources", map[string]string{pod.Name + "/main": "{s0 s1}"}, got)

	pods := podsapi.NewPodsClient(b.dial(b.paths.PodsAPI))
	answer, err := pods.GetPod(t.Context(), &podsapi.GetPodRequest{PodUID: string(pod.UID)})
	must.OK(t, err)
	var served v1.Pod
	if err := served.Unmarshal(answer.Pod); err != nil || served.Name != pod.Name || served.Spec.NodeName != b.node {
		t.Errorf("pod %q on %q, %v; want %q on %q", served.Name, served.Spec.NodeName, err, pod.Name, b.node)
	}
	all, err := pods.ListPods(t.Context(), &podsapi.ListPodsRequest{})
	if err != nil || len(all.Pods) != 1 {
		t.Errorf("pods: %d, %v; want 1", len(all.GetPods()), err)
	}
}
