package gpugang

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Members wait in Permit longer than the placement deadline, so that the plan is cancelled first, which says why.
func TestPermitOutlastsTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		pods := c.gated("train", 3, 3)
		c.planned(pods, 1, vgpu.Room{})
		status, wait := c.plugin.Permit(t.Context(), framework.NewCycleState(), pods[0], "n1")
		if least := c.args.PlacementDeadline.Duration + 2*step; !status.IsWait() || wait < least {
			t.Errorf("Permit = %v for %v, want Wait for %v at least: deadlines are looked at every %v", status, wait, least, step)
		}
	})
}

// awaited is a context that reports when a goroutine is about to wait for its end.
type awaited struct {
	context.Context
	once sync.Once
	by   chan struct{}
}

// Done is the context's.
func (a *awaited) Done() <-chan struct{} {
	a.once.Do(func() { close(a.by) })
	return a.Context.Done()
}

// Members of a native gang wait in Bind: those whose plan ends there are not bound, the others are.
func TestBindWaitsForTheGate(t *testing.T) {
	for _, end := range []string{"cancelled", "may be bound"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2)
				pods := c.gated("train", 3, 3)
				ref := c.planned(pods, 2, vgpu.Room{})
				result := make(chan *fwk.Status, 1)
				ctx := &awaited{Context: t.Context(), by: make(chan struct{})}
				go func() { result <- c.plugin.Bind(ctx, framework.NewCycleState(), pods[0], "n1") }()
				select {
				case <-ctx.by: // it knows the gate
				case status := <-result:
					t.Fatalf("Bind = %v, and did not wait", status)
				}
				if end == "cancelled" {
					c.withdraw(pods[0])
				} else {
					c.step(ref, func(reservation.Facts) reservation.Event {
						return reservation.Reserved{Ref: ref, UID: kube.UIDOf(pods[2])}
					})
					c.plugin.Permit(t.Context(), framework.NewCycleState(), pods[2], "n1")
				}
				if status := <-result; status.IsSkip() != (end == "may be bound") {
					t.Errorf("Bind = %v of a gang that was %s", status, end)
				}
			})
		})
	}
}

// A Binding that succeeded counts before the informer shows it.
func TestReserveWithoutAPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		p := c.incomplete("train", 3)[0]
		if status := c.plugin.Reserve(t.Context(), framework.NewCycleState(), p, "n1"); status.Code() != fwk.Unschedulable {
			t.Errorf("Reserve = %v of a member without a place, want Unschedulable", status)
		}
	})
}

func TestFilter(t *testing.T) {
	node := framework.NewNodeInfo()
	node.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{rack: "r1"}}})
	tests := []struct {
		name string
		at   *reservation.Place
		want fwk.Code
	}{
		{"a pod of no gang", nil, fwk.Success},
		{"the planned node", &reservation.Place{Assignment: vgpu.Assignment{Node: "n1"}, Pinned: true}, fwk.Success},
		{"another node", &reservation.Place{Assignment: vgpu.Assignment{Node: "n2"}, Pinned: true}, fwk.UnschedulableAndUnresolvable},
		{"another node, not pinned", &reservation.Place{Assignment: vgpu.Assignment{Node: "n2"}}, fwk.Success},
		{"in the required domain", &reservation.Place{Within: map[string]string{rack: "r1"}}, fwk.Success},
		{"outside of it", &reservation.Place{Within: map[string]string{rack: "r2"}}, fwk.UnschedulableAndUnresolvable},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			cs := framework.NewCycleState()
			if tc.at != nil {
				cs.Write(placeKey, &given{*tc.at})
			}
			if status := (&Plugin{}).Filter(t.Context(), cs, pod("a", 1), node); status.Code() != tc.want {
				t.Errorf("Filter = %v, want code %v", status, tc.want)
			}
		})
	}
}

// A plan leaves to the members of other plans the CPU that they will use and do not use yet.
func TestPlansLeaveHostsToEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		others := c.gated("others", 2, 2)
		c.planned(others, 1, vgpu.Room{MilliCPU: 31000}) // the first is in the snapshot, the second is not
		asking := func(name, cpu string) *v1.Pod {
			p := members(name, 1, 1, 10)[0]
			p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(cpu)
			return p
		}
		c.Create(asking("large", "34"))
		c.AwaitMessage("large", "Insufficient cpu")
		c.Create(asking("small", "32"))
		c.AwaitBound("small", 1)
	})
}
