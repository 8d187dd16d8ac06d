package gpupreempt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/victims"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// evicts carries a plan out for a preemptor "high" that needs nothing, and returns what came of it.
func (c *cluster) evicts(units ...preemption.Unit) error {
	c.T.Helper()
	var pods []*v1.Pod
	for _, p := range c.Pods() {
		pods = append(pods, &p)
	}
	high := pod("high", 1, 100)
	e := &eviction{
		preemptor: preemptor{id: reservation.PodPreemptor(kube.UIDOf(high)), pod: refOf(high), name: "pod default/high", priority: 100, object: high},
		plan:      &preemption.Plan{Evict: units}, from: &preemption.Candidates{Pods: make([]preemption.Pod, len(pods))}, pods: pods,
	}
	room := reservation.PodRoom{Place: vgpu.Assignment{UID: kube.UIDOf(high), Node: "n1"}}
	c.plugin.machine.Lock(func(l machine.Locked) {
		e.begin(c.T.Context(), l, l.Step(reservation.PodRoomMade{PodRef: e.pod, Room: room, Evict: c.plugin.chosen(e)}).Begin)
	})
	c.plugin.blockPlacement(e)
	return c.plugin.evictVictims(e)
}

// many creates pods p-00, p-01, … that are bound.
func (c *cluster) many(count int) {
	for i := range count {
		p := pod(fmt.Sprintf("p-%02d", i), 0, 0)
		c.Place(p, "n1", nil)
		c.Create(p)
	}
}

func singles(count int) (units []preemption.Unit) {
	for i := range count {
		units = append(units, preemption.Unit{Kind: preemption.Single, Name: fmt.Sprintf("default/p-%02d", i), Pods: []int{i}})
	}
	return units
}

// refuse answers the deletion of some pods.
func refuse(names ...string) func(string) error {
	return func(name string) error {
		if !slices.Contains(names, name) {
			return nil
		}
		return apierrors.NewForbidden(v1.Resource("pods"), name, errors.New("not you"))
	}
}

func TestEvictsAllOfALargePlan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.many(40)
		must.OK(t, c.evicts(singles(40)...))
		if n := len(c.victims()); n != 40 {
			t.Errorf("%d of 40 pods are evicted", n)
		}
		if c.plugin.isEvicting(pod("high", 1, 100)) {
			t.Error("the eviction is under way for ever")
		}
	})
}

// One failure ends a plan: those that were not evicted stay, also where many are evicted at once. Those that were evicted go on
// leaving.
func TestFailureEndsAPlan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.many(40)
		c.refuseDeletes(refuse("p-02"))
		if err := c.evicts(singles(40)...); err == nil || !strings.Contains(err.Error(), "evict pod default/p-02: ") {
			t.Errorf("the error is %v", err)
		}
		expect(t, "victims", []string{"p-00", "p-01"}, c.victims())
		for _, p := range c.Pods() {
			told := p.Name == "p-00" || p.Name == "p-01"
			if leaves := c.plugin.isChosen(kube.UIDOf(&p)); leaves != told {
				t.Errorf("%s counts as leaving: %v", p.Name, leaves)
			}
		}
	})
}

func TestFailureEndsALargePlan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.many(300)
		c.refuseDeletes(refuse("p-10"))
		if err := c.evicts(singles(300)...); err == nil {
			t.Error("no error")
		}
		if n := len(c.victims()); n < 8 || n > 290 {
			t.Errorf("%d of 300 pods are evicted", n)
		}
	})
}

// A pod that waits for a spared pod is tried again, whether a pod or a gang had that evicted; one that waits for an evicted pod
// waits on.
func TestSparedPodIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.many(3)
		c.refuseDeletes(refuse("p-01"))
		for waiter, awaited := range map[string]string{"waits-went": "p-00", "waits-refused": "p-01", "waits-spared": "p-02"} {
			p := pod(waiter, 10, 0)
			p.Spec.SchedulerName = "another" // no other scheduler touches it
			c.Create(p)
			room := reservation.PodRoom{
				Place:   vgpu.Assignment{UID: kube.UIDOf(p), Node: "n1"},
				Victims: []reservation.PodRef{{UID: vgpu.UID("uid-" + awaited), Pod: "default/" + awaited}},
			}
			c.take(reservation.PodRoomMade{PodRef: refOf(p), Room: room, Until: c.Clock.Now().Add(time.Hour)})
		}
		c.Await("the pods are read", func() bool {
			return !slices.ContainsFunc([]string{"waits-went", "waits-refused", "waits-spared", "p-00", "p-01", "p-02"}, func(name string) bool {
				return c.plugin.seen(pod(name, 0, 0)) == nil
			})
		})
		if c.evicts(singles(3)...) == nil {
			t.Error("no error")
		}
		c.Await("one waits on", func() bool {
			all := c.rooms()
			return len(all) == 1 && all[0].Pod == "default/waits-went"
		})
	})
}

// A gang of which the first pod went goes as a whole; one of which the first pod stays is left alone, as is what comes after.
func TestGangsAreNotTorn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		whole := preemption.Unit{Kind: preemption.Whole, Name: "default/gang", Pods: []int{1, 2, 3, 4}}
		for name, x := range map[string]struct {
			stays string
			want  []string
		}{
			"the first stays":   {"p-01", []string{"p-00"}},
			"another one stays": {"p-02", []string{"p-00", "p-01", "p-03", "p-04"}},
		} {
			c := newCluster(t, 1)
			c.many(6)
			c.refuseDeletes(refuse(x.stays))
			if err := c.evicts(singles(1)[0], whole, preemption.Unit{Name: "default/p-05", Pods: []int{5}}); err == nil {
				t.Errorf("%s: no error", name)
			}
			expect(t, name+": victims", x.want, c.victims())
		}
	})
}

// A gang whose preemptor goes in the middle is not torn either; the units after it stay.
func TestGangsAreNotTornByTheirPreemptor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.many(5)
		c.refuseDeletes(func(string) error {
			c.plugin.ended(pod("high", 1, 100), true)
			return nil
		})
		whole := preemption.Unit{Kind: preemption.Whole, Name: "default/gang", Pods: []int{0, 1, 2, 3}}
		if err := c.evicts(whole, preemption.Unit{Name: "default/p-04", Pods: []int{4}}); err == nil {
			t.Error("no error")
		}
		expect(t, "victims", []string{"p-00", "p-01", "p-02", "p-03"}, c.victims())
	})
}

// The plugin tries an eviction again after an error that may be over in a moment.
func TestEvictionIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.many(1)
		var asked atomic.Int32
		c.refuseDeletes(func(string) error {
			if asked.Add(1) < 3 {
				return apierrors.NewServiceUnavailable("busy")
			}
			return nil
		})
		if err := c.evicts(singles(1)...); err != nil || asked.Load() != 3 {
			t.Errorf("asked %d times: %v", asked.Load(), err)
		}
	})
}

// So is what the API server does not answer, which may be restarting: a gang is not torn by it.
func TestEvictionOutlivesConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.many(4)
		var asked atomic.Int32
		c.refuseDeletes(func(name string) error {
			if name != "p-00" && asked.Add(1) <= 4 {
				return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
			}
			return nil
		})
		if err := c.evicts(preemption.Unit{Kind: preemption.Whole, Name: "default/gang", Pods: []int{0, 1, 2, 3}}); err != nil {
			t.Error(err)
		}
		expect(t, "victims", []string{"p-00", "p-01", "p-02", "p-03"}, c.victims())
	})
}

func TestTransient(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		err  error
		want bool
	}{
		{apierrors.NewServiceUnavailable("busy"), true},
		{apierrors.NewTooManyRequests("busy", 1), true},
		{fmt.Errorf("patch: %w", apierrors.NewInternalError(errors.New("etcd"))), true},
		{io.ErrUnexpectedEOF, true},
		{&url.Error{Op: "Delete", Err: syscall.ECONNRESET}, true},
		{&url.Error{Op: "Delete", Err: context.Canceled}, false},
		{&url.Error{Op: "Delete", Err: context.DeadlineExceeded}, false},
		{apierrors.NewForbidden(v1.Resource("pods"), "p", errors.New("not you")), false},
		{apierrors.NewNotFound(v1.Resource("pods"), "p"), false},
	} {
		if got := transient(x.err); got != x.want {
			t.Errorf("%v: %v", x.err, got)
		}
	}
}

// Another pod of the victim's name, and one that is gone, are left alone, and are no failure.
func TestOnlyTheVictimIsEvicted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.many(2)
		old := pod("p-00", 0, 0)
		old.UID = types.UID("uid-of-the-one-before")
		marked := old.DeepCopy()
		marked.Status.Conditions = []v1.PodCondition{{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler, Message: "Preempted",
		}}
		leaving := pod("p-01", 0, 0)
		c.refuseDeletes(func(name string) error {
			if name == leaving.Name {
				return apierrors.NewNotFound(v1.Resource("pods"), name)
			}
			return nil
		})
		why := cause{preemptor: &preemptor{name: "pod default/high", object: old}, text: "Preempted"}
		for _, victim := range []*v1.Pod{old, marked, leaving, pod("gone", 0, 0)} {
			if inMemory, err := c.plugin.evictPod(t.Context(), victim, why); err != nil || inMemory {
				t.Errorf("%s: in memory %v, %v", victim.Name, inMemory, err)
			}
		}
		expect(t, "victims", nil, c.victims())
		for _, x := range c.Pod("p-00").Status.Conditions {
			if x.Type == v1.DisruptionTarget {
				t.Error("another pod is marked")
			}
		}
	})
}

// The plugin does not count on pods that kubelets do not end in time.
func TestGrace(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	guards, err := victims.NewGuards(&config.GPUPreemptArgs{})
	must.OK(t, err)
	plugin := &Plugin{guards: guards, now: func() time.Time { return now }}
	p := pod("p", 0, 0)
	expect(t, "default", now.Add(30*time.Second+slack), plugin.awaitedUntil(p, now))
	seconds := int64(300)
	p.Spec.TerminationGracePeriodSeconds = &seconds
	expect(t, "five minutes", now.Add(300*time.Second+slack), plugin.awaitedUntil(p, now))
	for _, seconds = range []int64{601, 315_360_000, 9_223_372_036, 9_223_372_037, math.MaxInt64} {
		expect(t, fmt.Sprint(seconds), now.Add(kube.LeavingWithin+slack), plugin.awaitedUntil(p, now))
		expect(t, "slow", true, plugin.isSlow(p))
	}
	deadline := int64(3600)
	seconds, p.Spec.ActiveDeadlineSeconds, p.Status.StartTime = 300, &deadline, &metav1.Time{Time: now.Add(-3590 * time.Second)}
	expect(t, "it ends by itself in 10s, and has its grace then", now.Add(310*time.Second+slack), plugin.awaitedUntil(p, now))
	p.DeletionTimestamp = &metav1.Time{Time: now.Add(7 * time.Second)}
	expect(t, "leaves already", now.Add(7*time.Second+slack), plugin.awaitedUntil(p, now))
}

func TestShort(t *testing.T) {
	t.Parallel()
	if got := shorten(strings.Repeat("é", 1000)); len(got) > maxText || !strings.HasSuffix(got, "é…") {
		t.Errorf("%d bytes: …%s", len(got), got[len(got)-10:])
	}
}

// A preemptor whose room ended while the evictions for it went on is tried again when these have failed.
func TestTriedAfterStoppedEvictions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.createBound(pod("low-0", 10, 0), pod("low-1", 10, 0))
		var busy atomic.Bool
		busy.Store(true)
		c.refuseDeletes(func(string) error {
			if busy.Load() {
				return apierrors.NewServerTimeout(schema.GroupResource{Resource: "pods"}, "delete", 1)
			}
			return nil
		})
		high := pod("high", 10, 100)
		c.Create(high)
		c.Await("room is kept", func() bool { return len(c.rooms()) == 1 })
		h, _ := c.shares.Held("uid-high")
		c.RemoveNode(h.Node)
		c.Await("the evictions failed", func() bool { return len(c.rooms()) == 0 && !c.plugin.isEvicting(high) })
		busy.Store(false)
		c.awaitVictims(1)
	})
}
