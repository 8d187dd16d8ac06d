package gpupreempt

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakecluster"
)

// No room is made for a gang that the scheduler tries in one cycle while too few of its members can be tried, and made for one
// whose members are tried one by one: they wait for each other.
func TestRequestOfPausedMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		c.Create(fakecluster.Join("ran", 2, pod("ran-0", 10, 0), pod("ran-1", 10, 0), pod("ran-2", 10, 0))...)
		c.AwaitBound("ran", 3)
		ref := podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: "waits"}
		pods := fakecluster.Join("waits", 2, pod("waits-0", 10, 0), pod("waits-1", 10, 0), pod("waits-2", 10, 0))
		bound := c.Pods()
		for _, tc := range []struct {
			grouped              bool
			min, running, paused int
			want                 string
		}{
			{true, 2, 0, 0, ""}, {true, 2, 0, 1, ""},
			{true, 2, 0, 2, "none before member waits-0 is tried again in 1s, since its last bind failed"},
			{true, 2, 1, 2, ""}, {true, 4, 2, 1, ""},
			{true, 4, 2, 2, "none before member waits-0 is tried again in 1s, since its last bind failed"},
			{true, 9, 0, 0, ""}, // whatever it waits for, it is no pause
			{false, 2, 0, 2, ""},
		} {
			cs := framework.NewCycleState()
			gang := &podgroup.Gang{Ref: ref, MinCount: tc.min}
			for i := range tc.running {
				gang.Members = append(gang.Members, &bound[i])
			}
			(&podgroup.RoomRequest{Gang: gang, Pods: pods, Grouped: tc.grouped}).Leave(cs)
			c.failed(ref, pods, tc.paused)
			if w, why := c.plugin.requested(cs, ref); why != tc.want || (w != nil) != (tc.want == "") {
				t.Errorf("%+v: wants %v, %q", tc, w != nil, why)
			}
		}
	})
}

// failed has the binds of the first members of a gang fail a moment ago, and the gang lose its plan.
func (c *cluster) failed(ref podgroup.Ref, pods []*v1.Pod, count int) {
	c.T.Helper()
	f := reservation.Facts{Ref: ref}
	take := func(e reservation.Event) machine.Answer {
		return c.plugin.machine.Step(func(machine.Locked) reservation.Event { return e })
	}
	take(reservation.Changed{Gang: f}) // it is forgotten
	f.MinCount = len(pods)
	for _, p := range pods {
		f.Members = append(f.Members, machine.MemberOf(p))
	}
	asked := take(reservation.Tried{Gang: f, UID: kube.UIDOf(pods[0]), Grouped: true})
	found := reservation.PlanFound{Gang: f, UID: kube.UIDOf(pods[0]), Version: asked.Plan.Version}
	for _, p := range pods {
		found.Places = append(found.Places, reservation.Place{Assignment: vgpu.Assignment{UID: kube.UIDOf(p), Pod: kube.PathOf(p), Node: "n1"}})
	}
	take(found)
	for _, p := range pods {
		take(reservation.Reserved{Ref: ref, UID: kube.UIDOf(p)})
	}
	take(reservation.Permitted{Gang: f, UID: kube.UIDOf(pods[0])})
	for _, p := range pods[:count] {
		take(reservation.Unreserved{Gang: f, UID: kube.UIDOf(p), Pod: kube.PathOf(p)})
	}
	f.Problem = &reservation.Problem{Message: "a test says so"}
	take(reservation.Changed{Gang: f})
}
