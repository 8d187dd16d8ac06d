package gpupreempt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// team returns pods NAME-0, NAME-1, … of a gang, each with so many slots.
func team(name string, count, least, slots int, priority int32) []*v1.Pod {
	pods := make([]*v1.Pod, 0, count)
	for i := range count {
		p := pod(fmt.Sprintf("%s-%d", name, i), slots, priority)
		p.Labels = map[string]string{v1alpha1.LabelGang: name}
		p.Annotations = map[string]string{v1alpha1.AnnotationMinMembers: fmt.Sprint(least)}
		pods = append(pods, p)
	}
	return pods
}

// A gang takes surplus members before a pod that has run for longer, all members or none, and keeps the room until it is whole.
func TestGangPreempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		c.createBound(pod("single", 10, 0))
		c.Clock.Pass(time.Minute)
		c.Create(team("surplus", 3, 1, 10, 0)...)
		c.AwaitBound("surplus", 3)
		c.Create(team("high", 2, 2, 10, 100)...)
		victims := c.awaitVictims(2)
		if slices.Contains(victims, "single") || len(victims) != 2 {
			t.Fatalf("victims are %v", victims)
		}
		c.Await("the gang is told who goes, or that they leave already", func() bool {
			text := fakecluster.Message(c.Pod("high-0"))
			return strings.Contains(text, "surplus of default/surplus") || strings.Contains(text, "room is made for it: ")
		})
		c.Remove(victims[0])
		c.Create(pod("rush", 10, 50))
		c.AwaitMessage("rush", "preemption: ")
		c.Remove(victims[1])
		c.AwaitBound("high", 2)
		if len(c.Bound("surplus")) != 1 {
			t.Errorf("of the surplus gang %v run", c.Bound("surplus"))
		}
	})
}

// A gang of which one member was replaced makes room for that one.
func TestGangPreemptsForOneMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		high := team("high", 2, 2, 10, 100)
		c.Create(high...)
		c.AwaitBound("high", 2)
		c.Remove("high-1")
		c.createBound(pod("low", 10, 0))
		replaced := high[1].DeepCopy()
		replaced.UID, replaced.Spec.NodeName = "uid-again", ""
		c.Create(replaced)
		expect(t, "victims", []string{"low"}, c.awaitVictims(1))
		c.Remove("low")
		c.AwaitBound("high", 2)
	})
}

// A gang leaves a pod of its priority, which waits for its victims, the CPU of the host too. So it evicts all that both need.
func TestGangPreemptsBesideAPod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4) // of 64 CPUs
		low := team("low", 3, 1, 10, 0)
		c.Create(cpu(low[0], "8"), cpu(low[1], "8"), cpu(low[2], "8"))
		c.AwaitBound("low", 3)
		c.createBound(pod("filler", 10, 100))
		c.Create(cpu(pod("pod", 10, 100), "16"))
		first := c.awaitVictims(1)
		members := team("gang", 2, 2, 3, 100)
		members[1].Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: v1.ResourceList{}} // a launcher without GPU
		c.Create(cpu(members[0], "24"), cpu(members[1], "24"))
		victims := c.awaitVictims(3)
		c.Remove(victims...)
		c.AwaitBound("pod", 1)
		c.AwaitBound("gang", 2)
		expect(t, "first victims", victims[:1], first)
	})
}

// blockedGang fills three nodes, of which another plugin refuses the first to a gang of two that comes then.
func (c *cluster) blockedGang() (high []*v1.Pod) {
	c.T.Helper()
	for i := range 3 {
		p := pod(fmt.Sprintf("low-%d", i), 10, int32(i))
		p.Spec.NodeSelector = map[string]string{v1.LabelHostname: fmt.Sprintf("n%d", i+1)}
		c.createBound(p)
	}
	blocker := onPort(pod("port", 0, 200), 80)
	blocker.Spec.NodeSelector = map[string]string{v1.LabelHostname: "n1"}
	c.createBound(blocker)
	high = team("high", 2, 2, 10, 100)
	for _, p := range high {
		onPort(p, 80)
	}
	c.Create(high...)
	return high
}

// A gang that would not fit without its victims, since another plugin refuses a member, evicts no pod there: it goes elsewhere, or
// says why not.
func TestGangCallsOtherPlugins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1, 1)
		c.blockedGang()
		expect(t, "victims", []string{"low-1", "low-2"}, c.awaitVictims(2))
		c.Remove("low-1", "low-2")
		c.AwaitBound("high", 2)
		other := onPort(team("other", 1, 1, 10, 150)[0], 80)
		other.Spec.NodeSelector = map[string]string{v1.LabelHostname: "n1"}
		c.CreateNode("n4", "r2", 1)
		c.Create(other)
		c.AwaitMessage("other", "preemption: ")
		expect(t, "victims", []string{"low-1", "low-2"}, c.victims())
	})
}

// The message says what keeps a gang from evicting, and no pod is evicted.
func TestGangIsGuarded(t *testing.T) {
	tests := []struct {
		name, want string
		prepare    func(c *cluster, high []*v1.Pod)
	}{
		{"dry run", "(dry run)", func(c *cluster, _ []*v1.Pod) { c.args.Mode = config.PreemptionDryRun }},
		{"policy", "Never", func(_ *cluster, high []*v1.Pod) {
			never := v1.PreemptNever
			for _, p := range high {
				p.Spec.PreemptionPolicy = &never
			}
		}},
		{"minimum runtime", "default/low", func(c *cluster, _ []*v1.Pod) { c.args.MinimumRuntime = metav1.Duration{Duration: time.Hour} }},
		{"equal priority", "preemption: ", func(_ *cluster, high []*v1.Pod) {
			for _, p := range high {
				*p.Spec.Priority = 0
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := prepareCluster(t, 2)
				high := team("high", 2, 2, 10, 100)
				test.prepare(c, high)
				c.start()
				c.createBound(pod("low", 10, 0))
				c.Create(high...)
				c.AwaitMessage("high", test.want)
				expect(t, "victims", nil, c.victims())
				for _, p := range high {
					if _, held := c.shares.Held(kube.UIDOf(p)); held {
						t.Errorf("room is kept for %s", p.Name)
					}
				}
			})
		})
	}
}

// Once its victims are old enough the gang evicts them, without anything else having happened.
func TestGangWaitsForMinimumRuntime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1)
		c.args.MinimumRuntime = metav1.Duration{Duration: time.Hour}
		c.start()
		c.createBound(pod("low", 10, 0))
		c.Create(team("high", 1, 1, 10, 100)...)
		c.AwaitMessage("high", "minimum")
		c.Clock.Pass(61 * time.Minute)
		expect(t, "victims", []string{"low"}, c.awaitVictims(1))
		c.Remove("low")
		c.AwaitBound("high", 1)
	})
}

// A gang waits for its turn where the scheduler evicts few pods in a minute.
func TestGangWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 2)
		c.args.EvictionsPerMinute = 2
		c.start()
		c.createBound(pod("low-1", 10, 0), pod("low-2", 10, 0), pod("low-3", 10, 0))
		c.Create(pod("first", 10, 200))
		c.awaitVictims(1)
		c.Create(team("high", 2, 2, 10, 100)...)
		c.AwaitMessage("high", "evicts 2 pods in a minute at most")
		if got := len(c.victims()); got != 1 {
			t.Errorf("%d pods were evicted", got)
		}
		c.Clock.Pass(40 * time.Second) // its turn comes in 30 at most; after 60 the first victim would be overdue
		c.awaitVictims(3)
	})
}

// If an eviction fails, the plugin gives up the room and seeks it again.
func TestGangTriesAgainAfterFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.createBound(pod("low", 10, 0))
		c.refuseDeletes(func(string) error { return apierrors.NewForbidden(v1.Resource("pods"), "low", nil) })
		high := team("high", 1, 1, 10, 100)
		c.Create(high...)
		c.AwaitMessage("high", "preemption: ")
		c.Await("the room is given up", func() bool {
			_, held := c.shares.Held(kube.UIDOf(high[0]))
			return !held
		})
		expect(t, "victims", nil, c.victims())
		c.refuseDeletes(nil)
		c.Clock.Pass(time.Minute)
		expect(t, "victims", []string{"low"}, c.awaitVictims(1))
	})
}

// A node that refused a member gets as many like it as it took in the next plan, and others as before.
func TestGangAvoidsWhatRefusedIt(t *testing.T) {
	t.Parallel()
	cluster := &gang.Cluster{}
	for _, name := range []string{"n1", "n2"} {
		n, err := vgpu.NewNode(name, nil)
		must.OK(t, err)
		cluster.Nodes = append(cluster.Nodes, n)
	}
	group := &gang.Group{Members: []gang.Member{{Kind: 0}, {Kind: 0}, {Kind: 1}, {Kind: 0}, {Kind: 0}}}
	places := make([]vgpu.Assignment, len(group.Members))
	for i, node := range []string{"n1", "n2", "n1", "n1", "n1"} {
		places[i].Node = node
	}
	a := &gangAttempt{RoomRequest: &podgroup.RoomRequest{Cluster: cluster, Group: group}, plan: preemption.Plan{Places: places}}
	before := a.RoomRequest
	a.avoid(4)
	admits := func() []int {
		return []int{a.Cluster.Admits(0, 0), a.Cluster.Admits(1, 0), a.Cluster.Admits(0, 1), a.Cluster.Admits(1, 1)}
	}
	expect(t, "kinds on nodes", []int{2, 5, 5, 5}, admits()) // members 0 and 3 are on n1, all others anywhere
	a.avoid(1)
	expect(t, "kinds on nodes after another refusal", []int{2, 5, 0, 5}, admits())
	if before.Cluster.Admits != nil {
		t.Error("the question of the cycle has changed")
	}
}

// The other members of a gang are kept from places while all that have one are evicted; those of a gang that loses surplus are not.
func TestGangsThatGoWholeAreBlocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		pods := []*v1.Pod{pod("p-00", 0, 0), pod("p-01", 0, 0), pod("p-02", 0, 0), pod("p-03", 0, 0)}
		fakecluster.Join("whole", 1, pods[1], pods[2])
		fakecluster.Join("other", 1, pods[3])
		for _, p := range pods {
			c.Place(p, "n1", nil)
			c.Create(p)
		}
		c.Await("the gangs are known", func() bool {
			_, isMember := c.plugin.machine.GangOf(pods[1])
			return isMember && c.plugin.seen(pods[3]) != nil
		})
		blocked := map[string]bool{}
		c.refuseDeletes(func(string) error {
			c.plugin.machine.Lock(func(l machine.Locked) {
				for _, name := range []string{"whole", "other"} {
					blocked[name] = blocked[name] || l.State.Watchful(podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: name})
				}
			})
			return nil
		})
		whole := preemption.Unit{Kind: preemption.Whole, Name: "default/whole", Pods: []int{1, 2}}
		must.OK(t, c.evicts(singles(1)[0], whole, preemption.Unit{Kind: preemption.Surplus, Name: "default/p-03", Pods: []int{3}}))
		expect(t, "blocked", map[string]bool{"whole": true, "other": false}, blocked)
	})
}

// An eviction that was stopped, since its room ended, does not end the room that the gang has got since.
func TestStoppedEvictionLeavesLaterRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		low := pod("low", 10, 0)
		c.createBound(low)
		begun, goOn := make(chan struct{}), make(chan struct{})
		c.refuseDeletes(func(string) error {
			close(begun)
			<-goOn
			return apierrors.NewForbidden(v1.Resource("pods"), "low", nil)
		})
		c.Create(team("high", 1, 1, 10, 100)...)
		<-begun
		ref := podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: "high"}
		shares := c.shares
		pg, err := c.plugin.machine.Gangs().Gang(ref)
		must.OK(t, err)
		request, err := shares.Request(pg.Members[0])
		must.OK(t, err)
		first, _ := shares.Held(request.UID)
		c.plugin.giveUp(ref, "for a test", 0)
		group := &gang.Group{Name: ref.String(), MinCount: 1, Members: []gang.Member{{Request: request}}}
		again := &gangAttempt{RoomRequest: &podgroup.RoomRequest{Gang: pg, Group: group, Pods: pg.Members, Unbound: 1}, pods: []*v1.Pod{low}}
		again.plan = preemption.Plan{Places: []vgpu.Assignment{first.Assignment}, Waits: []int{0}}
		must.OK(t, c.plugin.keepGangRoom(again))
		close(goOn)
		c.Await("the eviction is over", func() (isOver bool) {
			c.plugin.machine.Lock(func(l machine.Locked) { isOver = !l.State.Evicts(reservation.GangPreemptor(ref)) })
			return isOver
		})
		if _, held := shares.Held(request.UID); !held {
			t.Error("nothing is held for the member")
		}
	})
}

// A member that was chosen as surplus and is none any more stays, as does all that comes after it. If its gang goes anyway, so
// does the member.
func TestSurplusIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 5)
		c.Create(team("gang", 4, 2, 10, 0)...)
		c.createBound(pod("other", 10, 0))
		c.AwaitBound("gang", 4)
		surplus := func(at int) preemption.Unit {
			return preemption.Unit{Kind: preemption.Surplus, Name: fmt.Sprintf("default/gang-%d", at), Pods: []int{at}}
		}
		must.OK(t, c.evicts(surplus(3)))
		c.Remove("gang-2")
		c.Await("it is known that another member has ended", func() bool {
			pg, _ := c.plugin.machine.Gangs().Gang(podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: "gang"})
			return pg != nil && len(pg.Members) == 3
		})
		err := c.evicts(surplus(0), preemption.Unit{Name: "default/other", Pods: []int{3}})
		if err == nil || !strings.Contains(err.Error(), "default/gang-0: its gang does not run on without it") {
			t.Errorf("the error is %v", err)
		}
		expect(t, "victims", []string{"gang-3"}, c.victims())
		if err := c.evicts(surplus(0), surplus(1)); err != nil {
			t.Error(err)
		}
		expect(t, "victims", []string{"gang-0", "gang-1", "gang-3"}, c.victims())
	})
}
