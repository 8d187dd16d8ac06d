package podgroup

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fakedynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/test/must"
)

// cluster is a fake API with the informers of a scheduler.
type cluster struct {
	*fake.Clientset
	dynamic *fakedynamic.FakeDynamicClient
	factory informers.SharedInformerFactory

	mu sync.Mutex
	// notified counts the calls of the listener.
	notified map[Ref]int
}

func newCluster(objects ...runtime.Object) *cluster {
	c := &cluster{Clientset: fake.NewClientset(), notified: map[Ref]int{}}
	var groups []runtime.Object
	for _, object := range objects {
		if p, ok := object.(*v1.Pod); ok {
			_ = c.Tracker().Add(p)
		} else {
			groups = append(groups, object)
		}
	}
	kinds := map[schema.GroupVersionResource]string{membership.NativePodGroups: "PodGroupList", membership.XK8sPodGroups: "PodGroupList"}
	c.dynamic = fakedynamic.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, groups...)
	c.factory = informers.NewSharedInformerFactory(c.Clientset, 0)
	return c
}

func (c *cluster) notify(ref Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notified[ref]++
}

// start makes a set and starts the informers.
func (c *cluster) start(t *testing.T, served Served) *Set {
	t.Helper()
	s, err := New(t.Context(), Options{Pods: c.factory.Core().V1().Pods().Informer(), Served: served, Dynamic: c.dynamic})
	must.OK(t, err)
	s.OnChange(c.notify)
	c.factory.Start(t.Context().Done())
	return s
}

// patience is what only a hang reaches, on whatever machine.
const patience = 5 * time.Minute

// eventually waits until a set says of a gang what it should.
func eventually(t *testing.T, s *Set, ref Ref, want string) {
	t.Helper()
	got := ""
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if got = said(&world{Set: s}, ref); strings.HasPrefix(got, want) {
			return
		}
	}
	t.Fatalf("got  %s\nwant %s", got, want)
}

func TestNew(t *testing.T) {
	c := newCluster(inGroup("a", "g"), pod("b", groupLabel, "g"), nativeGang("g", 1), xk8sGang("g", 1))
	s := c.start(t, both)
	n, x, l := Ref{Source: Native, Namespace: "ns", Name: "g"}, Ref{Source: XK8s, Namespace: "ns", Name: "g"}, Ref{Source: Label, Namespace: "ns", Name: "g"}
	eventually(t, s, n, "1 of [a]")
	eventually(t, s, x, "1 of [b]")
	for until := time.Now().Add(patience); !s.Synced(); time.Sleep(5 * time.Millisecond) { // the set has an object before all are read
		if time.Now().After(until) {
			t.Fatal("not all is read")
		}
	}
	if s.Served() != both {
		t.Errorf("served %+v", s.Served())
	}
	ctx := t.Context()
	_, err := c.CoreV1().Pods("ns").Create(ctx, labelled("c", "g", "1"), metav1.CreateOptions{})
	must.OK(t, err)
	eventually(t, s, l, "1 of [c]")
	must.OK(t, c.CoreV1().Pods("ns").Delete(ctx, "c", metav1.DeleteOptions{}))
	eventually(t, s, l, "no gang, waits: no member exists")
	_, err = c.dynamic.Resource(membership.XK8sPodGroups).Namespace("ns").Update(ctx, xk8sGang("g", 2), metav1.UpdateOptions{})
	must.OK(t, err)
	eventually(t, s, x, "2 of [b], waits: 1 of 2 members exist")
	must.OK(t, c.dynamic.Resource(membership.NativePodGroups).Namespace("ns").Delete(ctx, "g", metav1.DeleteOptions{}))
	eventually(t, s, n, "0 of [a], waits: PodGroup ns/g of scheduling.k8s.io does not exist")
	for _, ref := range []Ref{n, x, l} {
		c.awaitHeard(t, ref, 2)
	}
}

// awaitHeard waits until the listener has received so many notices about a gang. The set sends a notice after each change.
func (c *cluster) awaitHeard(t *testing.T, ref Ref, times int) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		notified := c.notified[ref]
		c.mu.Unlock()
		if notified >= times {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s %s was told %d times, want %d at least", ref.Source, ref, notified, times)
		}
	}
}

// Until all is read a gang waits with the reason, and hears when it is.
func TestNotRead(t *testing.T) {
	c := newCluster(pod("a", groupLabel, "g"), labelled("b", "h", "1"), xk8sGang("g", 1))
	var mu sync.Mutex
	refusal := apierrors.NewForbidden(membership.XK8sPodGroups.GroupResource(), "", errors.New("no role"))
	c.dynamic.PrependReactor("list", "podgroups", func(k8stesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if refusal != nil {
			return true, nil, refusal
		}
		return false, nil, nil
	})
	s := c.start(t, Served{XK8s: true})
	x, l := Ref{Source: XK8s, Namespace: "ns", Name: "g"}, Ref{Source: Label, Namespace: "ns", Name: "h"}
	eventually(t, s, x, "0 of [a], waits: the PodGroups of scheduling.x-k8s.io are not read yet: ")
	if got := said(&world{Set: s}, x); !strings.Contains(got, "podgroups.scheduling.x-k8s.io is forbidden: no role") {
		t.Errorf("the reason is missing: %s", got)
	}
	// A gang by label needs no PodGroup, and is not told before all is read: a pod may be in either.
	eventually(t, s, l, "1 of [b], waits: the pods and PodGroups are not read yet")
	if s.Synced() {
		t.Error("all is read")
	}
	c.mu.Lock()
	before := c.notified[l]
	c.mu.Unlock()
	mu.Lock()
	refusal = nil
	mu.Unlock()
	eventually(t, s, x, "1 of [a]")
	eventually(t, s, l, "1 of [b]")
	c.awaitHeard(t, l, before+1)
}

// handle is a scheduler's handle with a connection and pods.
type handle struct {
	fwk.Handle
	config  *rest.Config
	factory informers.SharedInformerFactory
}

func (h *handle) ClientSet() kubernetes.Interface { return nil }

func (h *handle) KubeConfig() *rest.Config                               { return h.config }
func (h *handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

func TestWatch(t *testing.T) {
	c := newCluster(inGroup("a", "g"), pod("b", groupLabel, "g"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis/scheduling.x-k8s.io/v1alpha1":
			fmt.Fprint(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "scheduling.x-k8s.io/v1alpha1", "resources": [{"name": "podgroups"}]}`)
		case "/apis/scheduling.x-k8s.io/v1alpha1/podgroups":
			if r.URL.Query().Get("sendInitialEvents") != "" {
				http.Error(w, "this server sends lists", http.StatusBadRequest)
				return
			}
			if r.URL.Query().Get("watch") != "" {
				<-r.Context().Done()
				return
			}
			fmt.Fprint(w, `{"kind": "PodGroupList", "apiVersion": "scheduling.x-k8s.io/v1alpha1", "metadata": {"resourceVersion": "1"}, "items": [
				{"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"namespace": "ns", "name": "g"}, "spec": {"minMember": 1}}]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := Watch(ctx, &handle{config: &rest.Config{Host: server.URL}, factory: c.factory})
	must.OK(t, err)
	c.factory.Start(ctx.Done())
	eventually(t, s, Ref{Source: XK8s, Namespace: "ns", Name: "g"}, "1 of [b]")
	if s.Served() != (Served{XK8s: true}) {
		t.Errorf("served: %+v", s.Served())
	}
	eventually(t, s, Ref{Source: Native, Namespace: "ns", Name: "g"}, "0 of [a], waits: spec.schedulingGroup.podGroupName names PodGroup g, and the API server serves no PodGroups")
	_, err = Watch(ctx, &handle{factory: c.factory})
	if err == nil || !strings.Contains(err.Error(), "the scheduler has no kubeconfig") {
		t.Errorf("without a connection: %v", err)
	}
	_, err = Watch(ctx, &handle{config: &rest.Config{Host: "http://127.0.0.1:1"}, factory: c.factory})
	if err == nil || !strings.HasPrefix(err.Error(), "watch gangs: discover podgroups of scheduling.k8s.io/v1beta1: ") {
		t.Errorf("without an API server: %v", err)
	}
}
