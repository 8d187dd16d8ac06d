package absence

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// world is a controller with one node, and the number of its writes.
type world struct {
	*Controller
	t      *testing.T
	node   *v1.Node
	api    client.Client
	clock  time.Time
	writes int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, clock: time.Unix(1e9, 0), node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}
	g := fakecluster.GPUNode("n1", 2)
	g.Status.SlotCount = 20
	scheme := runtime.NewScheme()
	must.OK(t, v1alpha1.AddToScheme(scheme))
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(g).WithStatusSubresource(g).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}).Build()
	factory := informers.NewSharedInformerFactory(kubefake.NewClientset(), 0)
	w.Controller = New(Options{Informers: factory, Client: w.api, Now: func() time.Time { return w.clock }})
	must.OK(t, factory.Core().V1().Nodes().Informer().GetStore().Add(w.node))
	w.is("20", v1.ConditionTrue)
	return w
}

// is sets what the Node says: its slots and its condition Ready.
func (w *world) is(slots string, ready v1.ConditionStatus) {
	w.node.Status.Allocatable = v1.ResourceList{v1alpha1.ResourceVGPU: resource.MustParse(slots)}
	w.node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}
}

// after makes a pass after a time, and compares the status and the reason of Ready and the number of all writes.
func (w *world) after(d time.Duration, status metav1.ConditionStatus, reason string, writes int) {
	w.t.Helper()
	w.clock = w.clock.Add(d)
	must.OK(w.t, w.Pass(w.t.Context()))
	g := &v1alpha1.GPUNode{}
	must.OK(w.t, w.api.Get(w.t.Context(), client.ObjectKey{Name: "n1"}, g))
	c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady)
	if c.Status != status || c.Reason != reason || w.writes != writes {
		w.t.Errorf("Ready is %s (%s) after %d writes, want %s (%s) after %d", c.Status, c.Reason, w.writes, status, reason, writes)
	}
	if len(g.Status.Devices) != 2 || g.Status.SlotCount != 20 {
		w.t.Errorf("the rest of the status has changed: %+v", g.Status)
	}
}

// An agent that was killed: its node offers no slots. The GPUNode is marked within a minute by one write, and again True when the slots are back.
func TestAgentThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.after(0, "True", "Serving", 0)
	w.is("0", v1.ConditionTrue)
	w.after(every, "True", "Serving", 0)
	w.after(patience-time.Second, "True", "Serving", 0)
	w.after(every, "Unknown", v1alpha1.ReadyAgentLost, 1)
	w.after(time.Hour, "Unknown", v1alpha1.ReadyAgentLost, 1)
	w.is("20", v1.ConditionTrue)
	w.after(every, "True", "Serving", 2)
}

// An agent that is replaced is back before the patience ends, as often as that happens.
func TestAgentThatIsReplaced(t *testing.T) {
	w := newWorld(t)
	for range 5 {
		w.is("0", v1.ConditionTrue)
		w.after(every, "True", "Serving", 0)
		w.after(every, "True", "Serving", 0)
		w.is("20", v1.ConditionTrue)
		w.after(every, "True", "Serving", 0)
	}
}

// An agent that takes longer to be replaced says itself that it is not ready. The time before it is ready again does not count, while the
// kubelet has not written its slots yet.
func TestAgentThatIsReplacedSlowly(t *testing.T) {
	w := newWorld(t)
	w.is("0", v1.ConditionTrue)
	w.says("False", v1alpha1.ReadyStopping)
	w.after(every, "False", v1alpha1.ReadyStopping, 0)
	w.after(time.Minute, "False", v1alpha1.ReadyStopping, 0)
	w.says("True", "Serving")
	w.after(every, "True", "Serving", 0)
	w.after(every, "True", "Serving", 0)
	w.is("20", v1.ConditionTrue)
	w.after(time.Hour, "True", "Serving", 0)
}

// says has the agent write the condition Ready.
func (w *world) says(status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	g := &v1alpha1.GPUNode{}
	must.OK(w.t, w.api.Get(w.t.Context(), client.ObjectKey{Name: "n1"}, g))
	meta.SetStatusCondition(&g.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, Reason: reason})
	must.OK(w.t, w.api.Status().Update(w.t.Context(), g))
}

// A node that is lost: Kubernetes has waited for its kubelet already.
func TestNodeThatIsLost(t *testing.T) {
	w := newWorld(t)
	w.is("20", v1.ConditionUnknown)
	w.after(every, "Unknown", v1alpha1.ReadyAgentLost, 1)
	w.is("0", v1.ConditionTrue)
	w.after(every, "Unknown", v1alpha1.ReadyAgentLost, 1)
	w.is("20", v1.ConditionTrue)
	w.after(every, "True", "Serving", 2)
}

// The words of an agent about itself stay: that it stops, that it has no driver, that it is not registered.
func TestWordsOfTheAgentStay(t *testing.T) {
	n := &v1.Node{}
	for _, reason := range []string{v1alpha1.ReadyNotRegistered, v1alpha1.ReadyStopping, v1alpha1.ReadyNoDriver, v1alpha1.ReadyPodsUnknown} {
		g := fakecluster.GPUNode("n1", 2)
		g.Status.SlotCount = 20
		meta.SetStatusCondition(&g.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason})
		if c := readyOf(g, n, time.Hour); c != nil {
			t.Errorf("%s: want no change, have %+v", reason, c)
		}
	}
}
