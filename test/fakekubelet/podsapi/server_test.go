package podsapi_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/tandem-gpu/tandem/test/fakekubelet/podsapi"
	"github.com/tandem-gpu/tandem/test/must"
)

// node holds the pods of a test.
type node struct {
	mu      sync.Mutex
	pods    []*v1.Pod
	unknown bool
}

func (n *node) All() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]*v1.Pod(nil), n.pods...)
}

func (n *node) Synced() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.unknown
}

func pod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{"a": "b"}},
		Spec:       v1.PodSpec{NodeName: "n1"},
	}
}

// serve returns a server and a client of it.
func serve(t *testing.T, n *node) (*podsapi.Server, v1alpha1.PodsClient) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pa")
	must.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	must.OK(t, err)
	server, api := grpc.NewServer(), podsapi.New(n)
	v1alpha1.RegisterPodsServer(server, api)
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "s"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.OK(t, err)
	t.Cleanup(func() { conn.Close() })
	return api, v1alpha1.NewPodsClient(conn)
}

// patience is what only a hang reaches, on whatever machine.
const patience = 5 * time.Minute

func watch(t *testing.T, client v1alpha1.PodsClient) grpc.ServerStreamingClient[v1alpha1.WatchPodsEvent] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := client.WatchPods(ctx, &v1alpha1.WatchPodsRequest{})
	must.OK(t, err)
	return stream
}

// next returns an event as "TYPE name" with "(whole)" where the pod has more than its names.
func next(t *testing.T, stream grpc.ServerStreamingClient[v1alpha1.WatchPodsEvent]) string {
	t.Helper()
	event, err := stream.Recv()
	must.OK(t, err)
	if event.Type == v1alpha1.EventType_INITIAL_SYNC_COMPLETE {
		return event.Type.String()
	}
	p := &v1.Pod{}
	must.OK(t, p.Unmarshal(event.Pod))
	text := event.Type.String() + " " + p.Name
	if p.Spec.NodeName != "" {
		text += " (whole)"
	}
	return text
}

func TestWatchBeginsWithThePodsThatAreThere(t *testing.T) {
	n := &node{pods: []*v1.Pod{pod("b"), pod("a")}}
	api, client := serve(t, n)
	stream := watch(t, client)
	got := []string{next(t, stream), next(t, stream), next(t, stream)}
	api.Updated(pod("c"), true)
	api.Updated(pod("a"), false)
	api.Removed(pod("b"))
	got = append(got, next(t, stream), next(t, stream), next(t, stream))
	want := []string{
		"ADDED a (whole)", "ADDED b (whole)", "INITIAL_SYNC_COMPLETE", "ADDED c (whole)", "MODIFIED a (whole)", "DELETED b",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestNothingIsAnsweredBeforeThePodsAreKnown(t *testing.T) {
	_, client := serve(t, &node{unknown: true})
	_, err := watch(t, client).Recv()
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("watch: %v, want FailedPrecondition", err)
	}
	if _, err = client.ListPods(t.Context(), &v1alpha1.ListPodsRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("list: %v, want FailedPrecondition", err)
	}
	if _, err = client.GetPod(t.Context(), &v1alpha1.GetPodRequest{PodUID: "uid-a"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("get: %v, want FailedPrecondition", err)
	}
}

func TestPodsByUID(t *testing.T) {
	_, client := serve(t, &node{pods: []*v1.Pod{pod("a")}})
	answer, err := client.GetPod(t.Context(), &v1alpha1.GetPodRequest{PodUID: "uid-a"})
	if err != nil || len(answer.Pod) == 0 {
		t.Errorf("get: %v (%v), want the pod", answer, err)
	}
	if _, err = client.GetPod(t.Context(), &v1alpha1.GetPodRequest{PodUID: "uid-z"}); status.Code(err) != codes.NotFound {
		t.Errorf("get: %v, want NotFound", err)
	}
}

// A reader that does not read loses its watch; another one goes on.
func TestSlowReaderLosesItsWatch(t *testing.T) {
	api, client := serve(t, &node{})
	slow, quick := watch(t, client), watch(t, client)
	if next(t, slow) != "INITIAL_SYNC_COMPLETE" || next(t, quick) != "INITIAL_SYNC_COMPLETE" {
		t.Fatal("no end of the initial list")
	}
	big := pod("big")
	big.Annotations["a"] = strings.Repeat("x", 1<<20) // more than a connection holds unread
	sent := 0
	for deadline := time.Now().Add(patience); api.Readers() == 2; sent++ {
		if time.Now().After(deadline) {
			t.Fatal("the slow reader keeps its watch")
		}
		api.Updated(big, false)
		if got := next(t, quick); got != "MODIFIED big (whole)" {
			t.Fatal(got)
		}
	}
	if sent <= 100 {
		t.Errorf("the watch ended after %d events, want more than the reader may leave unread", sent)
	}
	var err error
	for err == nil {
		_, err = slow.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("slow reader: %v, want ResourceExhausted", err)
	}
	api.Updated(pod("small"), false)
	if got := next(t, quick); got != "MODIFIED small (whole)" {
		t.Error(fmt.Sprint("quick reader: ", got))
	}
}
