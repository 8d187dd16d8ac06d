package gpushare

import (
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/throttle"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/bubble"
	"github.com/tandem-gpu/tandem/test/must"
)

// leaveUnresolved has the bind of a pod to a node end without an answer.
func (d *desk) leaveUnresolved(p *v1.Pod, node string) vgpu.Assignment {
	d.t.Helper()
	cs := d.preFilter(p)
	d.reserve(cs, p, node)
	a, ok := d.plugin.state.reservation(kube.UIDOf(p), node)
	if !ok {
		d.t.Fatalf("pod %s has no reservation on %s", p.Name, node)
	}
	d.plugin.state.suspend(a, d.plugin.now())
	d.unreserve(cs, p, node)
	return a
}

// The room of a bind of unknown outcome ends when the bind can no longer happen, and not before.
func TestOldUnresolvedBindsEnd(t *testing.T) {
	p := pod("a", 6)
	broken := fake.NewClientset(p)
	broken.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(errors.New("injected"))
	})
	on := func(node string) *v1.Pod { return with(p.DeepCopy(), func(p *v1.Pod) { p.Spec.NodeName = node }) }
	tests := []struct {
		name   string
		client *fake.Clientset
		later  time.Duration
		again  bool // the bind was tried again, and is unresolved again
		kept   bool
	}{
		{name: "not bound", client: fake.NewClientset(p), later: unresolvedFor + time.Second},
		{name: "not bound, too early", client: fake.NewClientset(p), later: unresolvedFor - time.Second, kept: true},
		{name: "not bound, tried again meanwhile", client: fake.NewClientset(p), later: unresolvedFor + time.Second, again: true, kept: true},
		{name: "gone", client: fake.NewClientset(), later: unresolvedFor + time.Second},
		{name: "replaced", client: fake.NewClientset(with(p.DeepCopy(), func(p *v1.Pod) { p.UID = "new" })), later: unresolvedFor + time.Second},
		{name: "bound elsewhere", client: fake.NewClientset(on("n2")), later: unresolvedFor + time.Second},
		{name: "bound there", client: fake.NewClientset(on("n1")), later: unresolvedFor + time.Second, kept: true},
		{name: "no answer", client: broken, later: unresolvedFor + time.Second, kept: true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			d := newDesk(t, gpuNode("n1", 1), gpuNode("n2", 1))
			d.plugin.requests, d.plugin.bindTimeout = throttle.Unlimited(tc.client), bubble.Patience
			a := d.leaveUnresolved(p, "n1")
			if got := d.plugin.UnresolvedBinds(); got != 1 {
				t.Fatalf("%d pods are in doubt, want 1", got)
			}
			d.later = tc.later
			if tc.again {
				d.plugin.state.suspend(a, d.plugin.now())
			}
			d.plugin.settleUnresolved(t.Context())
			want := ""
			if tc.kept {
				want = "largest free share is 4 of 10 slots"
			}
			other := pod("other", 5)
			expect(t, "another pod", d.filter(d.preFilter(other), other, d.nodes[0]), want)
		})
	}
}

// A second unresolved bind, while the API server is asked about the first, is not settled by the answer.
func TestNewerUnresolvedBindStays(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	p := pod("a", 6)
	a := d.leaveUnresolved(p, "n1")
	d.later = unresolvedFor + time.Second
	old := d.plugin.state.unresolvedBefore(d.plugin.now().Add(-unresolvedFor))
	d.plugin.state.suspend(a, d.plugin.now())
	for _, u := range old {
		d.plugin.state.endUnresolved(u)
	}
	if len(old) != 1 || d.plugin.UnresolvedBinds() != 1 {
		t.Errorf("%d old doubts, %d are left, want 1 and 1", len(old), d.plugin.UnresolvedBinds())
	}
}

// To a plan for several pods the room of an unresolved bind belongs to no pod, the pod itself included.
func TestLedgersWithUnresolvedBinds(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1), gpuNode("n2", 2))
	p := pod("a", 6)
	first, second := d.leaveUnresolved(p, "n1"), d.leaveUnresolved(p, "n2")
	ledgers, err := d.plugin.Ledgers(t.Context(), p, d.nodes, func(string) bool { return false })
	must.OK(t, err)
	r, err := d.plugin.Request(p)
	must.OK(t, err)
	var free []vgpu.Slots
	for _, n := range ledgers {
		for i := range n.Devices() {
			free = append(free, n.FreeFor(i, &r).Slots)
		}
	}
	if slices.Sort(free); !slices.Equal(free, []vgpu.Slots{4, 4, 10}) {
		t.Errorf("free for the pod are %v slots, want 4, 4 and 10", free)
	}
	same := func(a, b vgpu.Assignment) bool { return a.Node == b.Node && a.UID == b.UID }
	if got := d.plugin.Unresolved(kube.UIDOf(p)); !slices.EqualFunc(got, []vgpu.Assignment{first, second}, same) {
		t.Errorf("unresolved are %v", got)
	}
	if got := d.plugin.Unresolved("other"); got != nil {
		t.Errorf("unresolved of another pod are %v", got)
	}
}
