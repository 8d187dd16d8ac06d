package podsource

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	fakepods "github.com/tandem-gpu/tandem/test/fakekubelet/podsapi"
	"github.com/tandem-gpu/tandem/test/must"
)

// podsKubelet is the part of a kubelet that serves the Pods API.
type podsKubelet struct {
	t      *testing.T
	socket string
	api    *fakepods.Server
	server *grpc.Server

	mu   sync.Mutex
	pods map[string]*v1.Pod
}

// newPodsKubelet returns a kubelet that serves until the test ends.
func newPodsKubelet(t *testing.T) *podsKubelet {
	t.Helper()
	dir, err := os.MkdirTemp("", "tdm") // short: the path of a socket has at most 107 bytes
	must.OK(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	k := &podsKubelet{t: t, socket: filepath.Join(dir, "pods.sock"), pods: map[string]*v1.Pod{}}
	k.api = fakepods.New(k)
	k.start()
	t.Cleanup(k.stop)
	return k
}

func (k *podsKubelet) start() {
	k.t.Helper()
	_ = os.Remove(k.socket)
	l, err := net.Listen("unix", k.socket)
	must.OK(k.t, err)
	server := grpc.NewServer()
	podsapi.RegisterPodsServer(server, k.api)
	k.server = server
	go func() { _ = server.Serve(l) }()
}

func (k *podsKubelet) stop() { k.server.Stop() }

// All returns the pods for the Pods API.
func (k *podsKubelet) All() []*v1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]*v1.Pod, 0, len(k.pods))
	for _, pod := range k.pods {
		out = append(out, pod.DeepCopy())
	}
	return out
}

// Synced is true: this kubelet knows its pods when it serves.
func (k *podsKubelet) Synced() bool { return true }

// add adds a pod and sends the event.
func (k *podsKubelet) add(pods ...*v1.Pod) {
	for _, pod := range pods {
		pod = pod.DeepCopy()
		k.mu.Lock()
		k.pods[string(pod.UID)] = pod
		k.mu.Unlock()
		k.api.Updated(pod, true)
	}
}

// change changes a pod and sends the event.
func (k *podsKubelet) change(uid string, change func(*v1.Pod)) {
	k.mu.Lock()
	change(k.pods[uid])
	pod := k.pods[uid].DeepCopy()
	k.mu.Unlock()
	k.api.Updated(pod, false)
}

// remove removes a pod and sends the event.
func (k *podsKubelet) remove(uid string) {
	k.mu.Lock()
	pod := k.pods[uid]
	delete(k.pods, uid)
	k.mu.Unlock()
	k.api.Removed(pod)
}
