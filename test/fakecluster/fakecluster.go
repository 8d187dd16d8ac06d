// Package fakecluster is a cluster in memory, in which tests of scheduler plugins run a scheduler.
//
// Its API binds pods as an API server does, and its nodes have GPUs. The cluster has no kubelet, so a bound pod stays
// until the test deletes it, and no admission. Its waits use the clock of a bubble of testing/synctest.
package fakecluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/bubble"
	"github.com/tandem-gpu/tandem/test/fakeapi"
	"github.com/tandem-gpu/tandem/test/must"
)

// Rack is the label of nodes that names their rack.
const Rack = "topology.kubernetes.io/rack"

// PodResource is the resource of pods.
var PodResource = v1.SchemeGroupVersion.WithResource("pods")

// Cluster is an API in memory, and the clock of those that use it.
type Cluster struct {
	T       testing.TB
	Client  *fakeapi.Clientset
	Dynamic dynamic.Interface
	Clock   Clock
	// More is the text of a wait in vain beside the pods.
	More func() string

	mu     sync.Mutex
	refuse func(pod string) error
}

// Clock is ahead of the real one by what the test lets pass.
type Clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

// Pass puts the clock forward.
func (c *Clock) Pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// New returns a cluster with nodes n1, n2, … of as many devices as given, of 10 slots and 40 GiB each. Nodes 1 and 2 are in rack
// r1, 3 and 4 in r2, and so on.
func New(t testing.TB, devices ...int) *Cluster {
	client := fakeapi.NewClientset()
	c := &Cluster{T: t, Client: client, Dynamic: NewDynamic(), More: func() string { return "" }}
	client.PrependReactor("create", "pods", c.bind)
	for i, count := range devices {
		c.CreateNode(fmt.Sprintf("n%d", i+1), fmt.Sprintf("r%d", i/2+1), count)
	}
	return c
}

// NewDynamic returns a client in memory for the objects of the project.
func NewDynamic() *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.GPUNodes: "GPUNodeList", v1alpha1.WorkloadProfiles: "WorkloadProfileList", v1alpha1.ElasticTargets: "ElasticTargetList",
	})
}

// bind does what the API server does with a Binding, or refuses it where the test wants that.
func (c *Cluster) bind(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	b := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
	c.mu.Lock()
	refuse := c.refuse
	c.mu.Unlock()
	if refuse != nil {
		if err := refuse(b.Name); err != nil {
			return true, nil, err
		}
	}
	return true, b, Bind(c.Client.Tracker(), action.GetNamespace(), b, func(pod *v1.Pod) { c.Place(pod, b.Target.Name, b.Annotations) })
}

// RefuseBinds has Bindings answered by fn from now on: with an error, where it returns one.
func (c *Cluster) RefuseBinds(fn func(pod string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = fn
}

// Bind places a pod as a Binding says; another UID or a pod with a node is an error.
func Bind(objects clienttesting.ObjectTracker, namespace string, b *v1.Binding, place func(*v1.Pod)) error {
	object, err := objects.Get(PodResource, namespace, b.Name)
	if err != nil {
		return err
	}
	pod := object.(*v1.Pod).DeepCopy()
	if pod.UID != b.UID && b.UID != "" || pod.Spec.NodeName != "" {
		err := fmt.Errorf("pod has UID %s and is on node %q", pod.UID, pod.Spec.NodeName)
		return apierrors.NewConflict(v1.Resource("pods/binding"), b.Name, err)
	}
	place(pod)
	return objects.Update(PodResource, pod, namespace)
}

// Place notes in a pod that it got its node and runs.
func (c *Cluster) Place(pod *v1.Pod, node string, annotations map[string]string) {
	pod.Spec.NodeName = node
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, annotations)
	now := metav1.NewTime(c.Clock.Now())
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: now}}
	pod.Status.StartTime = &now
}

// Create creates pods, by the cluster's clock.
func (c *Cluster) Create(pods ...*v1.Pod) {
	c.T.Helper()
	for _, p := range pods {
		p.CreationTimestamp = metav1.NewTime(c.Clock.Now().Truncate(time.Second))
		if _, err := c.Client.CoreV1().Pods(p.Namespace).Create(c.T.Context(), p, metav1.CreateOptions{}); err != nil {
			c.T.Fatal(err)
		}
	}
}

// Remove has pods of namespace default gone, at the end of their grace period or before.
func (c *Cluster) Remove(names ...string) {
	c.T.Helper()
	none := int64(0)
	for _, name := range names {
		must.OK(c.T, c.Client.CoreV1().Pods("default").Delete(c.T.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &none}))
	}
}

// Pods returns all pods by name.
func (c *Cluster) Pods() []v1.Pod {
	c.T.Helper()
	list, err := c.Client.CoreV1().Pods(metav1.NamespaceAll).List(c.T.Context(), metav1.ListOptions{})
	must.OK(c.T, err)
	slices.SortFunc(list.Items, func(a, b v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

// Pod returns a pod of namespace default.
func (c *Cluster) Pod(name string) *v1.Pod {
	c.T.Helper()
	p, err := c.Client.CoreV1().Pods("default").Get(c.T.Context(), name, metav1.GetOptions{})
	must.OK(c.T, err)
	return p
}

// Bound returns the nodes of the bound pods whose names begin with a prefix, by pod.
func (c *Cluster) Bound(prefix string) map[string]string {
	c.T.Helper()
	nodes := map[string]string{}
	for _, p := range c.Pods() {
		if strings.HasPrefix(p.Name, prefix) && p.Spec.NodeName != "" {
			nodes[p.Name] = p.Spec.NodeName
		}
	}
	return nodes
}

// Await waits until what is wanted is true and all that runs has come to rest; in benchmarks it waits by the real clock.
func (c *Cluster) Await(what string, wanted func() bool) {
	c.T.Helper()
	if _, measured := c.T.(*testing.B); measured {
		for !wanted() {
			time.Sleep(20 * time.Millisecond) // benchmarks poll; no verdict depends on it
		}
		return
	}
	if bubble.Await(wanted) {
		return
	}
	var all strings.Builder
	for _, p := range c.Pods() {
		fmt.Fprintf(&all, "%s on %q: %s\n", p.Name, p.Spec.NodeName, Message(&p))
	}
	c.T.Fatalf("waiting until %s for %v:\n%s%s", what, bubble.Patience, all.String(), c.More())
}

// AwaitBound waits until so many pods whose names begin with a prefix have nodes, and returns these.
func (c *Cluster) AwaitBound(prefix string, count int) map[string]string {
	c.T.Helper()
	c.Await(fmt.Sprintf("%d pods %s are bound", count, prefix), func() bool { return len(c.Bound(prefix)) == count })
	return c.Bound(prefix)
}

// AwaitMessage returns the message of a pod whose name begins with a prefix and whose message has a text, once there is one.
func (c *Cluster) AwaitMessage(prefix, text string) string {
	c.T.Helper()
	found := ""
	c.Await("a pod "+prefix+" is refused because of "+text, func() bool {
		for _, p := range c.Pods() {
			if strings.HasPrefix(p.Name, prefix) && strings.Contains(Message(&p), text) {
				found = Message(&p)
			}
		}
		return found != ""
	})
	return found
}
