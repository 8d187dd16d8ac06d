package gpupreempt

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// in puts a pod into another namespace.
func in(namespace string, p *v1.Pod) *v1.Pod {
	p.Namespace = namespace
	return p
}

func labelled(p *v1.Pod, key, value string) *v1.Pod {
	p.Labels[key] = value
	return p
}

// budget creates a PodDisruptionBudget for the pods of an app.
func (c *cluster) budget(app string, allowed int32) *policyv1.PodDisruptionBudget {
	c.T.Helper()
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pdb-" + app, UID: types.UID("uid-pdb-" + app)},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}
	b, err := c.Client.PolicyV1().PodDisruptionBudgets("default").Create(c.T.Context(), b, metav1.CreateOptions{})
	must.OK(c.T, err)
	return b
}

// awaitRetry waits until it is noted when a pod is tried again without an event, and returns that.
func (c *cluster) awaitRetry(name string) reservation.PodPauses {
	c.T.Helper()
	c.Await("pod "+name+" is to be tried again", func() bool { return c.pauses(name).isRetried() })
	return c.pauses(name).PodPauses
}

// A budget is kept where another pod can go that is worth more, and that evicts nobody when it comes back.
func TestBudgetIsPreferred(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1)
		c.budget("low", 0)
		c.start()
		more, never := pod("more", 10, 50), v1.PreemptNever
		more.Spec.PreemptionPolicy = &never
		c.createBound(pod("low", 10, 0), more)
		c.Create(pod("high", 10, 100))
		expect(t, "victims", []string{"more"}, c.awaitVictims(1))
	})
}

// If a budget forbids all, the plugin violates it as the last resort, or not at all: then the pod waits until the budget allows more.
func TestBudgetForbidsAll(t *testing.T) {
	t.Parallel()
	t.Run("Preferred", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := prepareCluster(t, 1)
			c.budget("low", 0)
			c.start()
			c.createBound(pod("low", 10, 0))
			c.Create(pod("high", 10, 100))
			expect(t, "victims", []string{"low"}, c.awaitVictims(1))
		})
	})
	t.Run("Required", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := prepareCluster(t, 1)
			c.args.PodDisruptionBudgets = config.BudgetsRequired
			b := c.budget("low", 0)
			c.start()
			c.createBound(pod("low", 10, 0))
			c.Create(pod("high", 10, 100))
			c.AwaitMessage("high", "would fit by evicting default/low; not done because budget default/pdb-low allows 0 of the 1 evictions")
			expect(t, "victims", nil, c.victims())
			if r := c.awaitRetry("high"); !r.OnBudgets || !r.Retry.IsZero() {
				t.Errorf("tried again at %v, or when a budget changes: %v", r.Retry, r.OnBudgets)
			}
			b.Status.DisruptionsAllowed = 1
			if _, err := c.Client.PolicyV1().PodDisruptionBudgets("default").UpdateStatus(t.Context(), b, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			expect(t, "victims", []string{"low"}, c.awaitVictims(1))
		})
	})
}

// A pod that waits for a budget is tried again once it allows more, and not when it allows less.
func TestBudgetChangeIsNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1)
		b := c.budget("low", 2)
		c.start()
		stuck := pod("stuck", 10, 100)
		c.plugin.tryAgain(stuck, time.Time{}, true)
		for _, x := range []struct {
			allowed int32
			waits   bool
		}{{1, true}, {2, false}} {
			b.Status.DisruptionsAllowed = x.allowed
			if _, err := c.Client.PolicyV1().PodDisruptionBudgets("default").UpdateStatus(t.Context(), b, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			c.Await("the budget is known", func() bool {
				now, err := c.plugin.budgets.PodDisruptionBudgets("default").Get(b.Name)
				return err == nil && now.Status.DisruptionsAllowed == x.allowed
			})
			if !x.waits {
				c.Await("it is tried", func() bool { return !c.pauses("stuck").isRetried() })
			} else if c.awaitRetry("stuck"); !c.pauses("stuck").OnBudgets {
				t.Error("it is tried although the budget allows less")
			}
		}
	})
}

// Protected pods stay, and the message of the pod that needs their room says so.
func TestProtectedPodsStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 2)
		c.args.Protected.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"keep": "yes"}}
		c.start()
		c.Create(in(metav1.NamespaceSystem, pod("system", 10, 0)))
		c.AwaitBound("system", 1)
		c.createBound(labelled(pod("kept", 10, 0), "keep", "yes"))
		c.Create(pod("high", 20, 100))
		got := c.AwaitMessage("high", "would fit by evicting")
		if want := "not done because default/kept, kube-system/system are protected"; !strings.Contains(got, want) {
			t.Errorf("the message is %q, want %q in it", got, want)
		}
		expect(t, "victims", nil, c.victims())
	})
}

// Pods run for the minimum of their priority class, and then go, without anything else having happened. A class that does not
// exist any more is a name like any other.
func TestMinimumRuntime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1)
		c.args.MinimumRuntime = metav1.Duration{Duration: time.Hour}
		c.args.MinimumRuntimes = []config.ClassRuntime{{PriorityClassName: "gone", Runtime: &metav1.Duration{Duration: 10 * time.Minute}}}
		c.start()
		low := pod("low", 10, 0)
		low.Spec.PriorityClassName = "gone"
		c.createBound(low)
		c.Create(pod("high", 10, 100))
		c.AwaitMessage("high", "not done because default/low has run for less than its minimum")
		expect(t, "tried again", c.Pod("low").Status.StartTime.Add(10*time.Minute).Unix(), c.awaitRetry("high").Retry.Unix())
		c.Clock.Pass(9 * time.Minute)
		c.plugin.Tick(t.Context())
		expect(t, "victims", nil, c.victims())
		c.Clock.Pass(time.Minute)
		expect(t, "victims", []string{"low"}, c.awaitVictims(1))
	})
}

// A pod that needs several gone is tried again when the first of them has run for long enough.
func TestTriedWhenTheFirstIsOldEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 2)
		c.args.MinimumRuntime = metav1.Duration{Duration: time.Hour}
		c.start()
		c.createBound(pod("low-0", 10, 0))
		c.Clock.Pass(10 * time.Minute)
		c.createBound(pod("low-1", 10, 0))
		c.Create(pod("high", 20, 100))
		c.AwaitMessage("high", "default/low-0, default/low-1 have run for less than their minimum")
		expect(t, "tried again", c.Pod("low-0").Status.StartTime.Add(time.Hour).Unix(), c.awaitRetry("high").Retry.Unix())
	})
}

// A pod without a priority has priority 0: it is evicted for others, and evicts those below.
func TestPriorityAbsent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		none := pod("none", 10, 0)
		none.Spec.Priority, none.Spec.PriorityClassName = nil, "gone"
		c.createBound(pod("below", 10, -1))
		c.Create(none)
		expect(t, "victims", []string{"below"}, c.awaitVictims(1))
		c.Remove("below")
		c.AwaitBound("none", 1)
		c.Create(pod("equal", 10, 0))
		c.AwaitMessage("equal", "preemption: ")
		expect(t, "victims", []string{"below"}, c.victims())
		c.Create(pod("above", 10, 1))
		expect(t, "victims", []string{"below", "none"}, c.awaitVictims(2))
	})
}

func TestPreemptionPolicyNever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.createBound(pod("low", 10, 0))
		high := pod("high", 10, 100)
		never := v1.PreemptNever
		high.Spec.PreemptionPolicy = &never
		c.Create(high)
		c.AwaitMessage("high", "preemptionPolicy is Never")
		expect(t, "victims", nil, c.victims())
	})
}

// One eviction in a minute: the second preemptor waits for its turn, its message says when that is, and then has it.
func TestEvictionsPerMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1)
		c.args.EvictionsPerMinute = 1
		c.start()
		c.createBound(pod("low-0", 10, 0), pod("low-1", 10, 0))
		c.Create(pod("high-0", 10, 100))
		c.awaitVictims(1)
		c.Create(pod("high-1", 10, 100))
		got := c.AwaitMessage("high-1", "evicts 1 pods in a minute at most, its turn comes in ")
		if !strings.Contains(got, "would fit on node n") {
			t.Errorf("the message is %q", got)
		}
		if left := c.awaitRetry("high-1").Retry.Sub(c.Clock.Now()); left <= 50*time.Second || left > time.Minute {
			t.Errorf("tried again in %v", left)
		}
		c.Clock.Pass(50 * time.Second)
		c.plugin.Tick(t.Context())
		if n := len(c.victims()); n != 1 {
			t.Fatalf("%d pods are evicted within a minute", n)
		}
		c.Clock.Pass(10 * time.Second)
		expect(t, "victims", []string{"low-0", "low-1"}, c.awaitVictims(2))
		expect(t, "plans that had to wait", 1.0, c.count("evictions_deferred_total", ""))
	})
}

// In a dry run no pod is evicted, and no room is kept.
func TestDryRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1)
		c.args.Mode = config.PreemptionDryRun
		c.start()
		c.createBound(pod("low", 10, 0))
		c.Create(pod("high", 10, 100))
		c.AwaitMessage("high", "(dry run) on node n1 it would evict 1 pod: default/low")
		expect(t, "victims", nil, c.victims())
		c.Remove("high")
		c.Remove("low")
		c.Create(pod("next", 10, 0))
		c.AwaitBound("next", 1)
	})
}

func TestDisabled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1)
		c.args.Mode = config.PreemptionDisabled
		c.start()
		c.createBound(pod("low", 10, 0))
		c.Create(pod("high", 10, 100))
		if got := c.AwaitMessage("high", "nearest GPU"); strings.Contains(got, "preemption") {
			t.Errorf("the message is %q", got)
		}
		expect(t, "victims", nil, c.victims())
	})
}

// In a mode without evictions, a nomination that another mode left ends: it would keep CPU and memory of the node from others.
func TestOldNominationsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, mode := range []string{config.PreemptionDisabled, config.PreemptionDryRun} {
			for name, slots := range map[string]int{"a pod with vGPUs": 10, "a pod without": 0} {
				c := prepareCluster(t, 1)
				c.args.Mode = mode
				c.start()
				low := pod("low", 10, 0)
				needsHost(low, "60")
				c.createBound(low)
				high := pod("high", slots, 100)
				needsHost(high, "60")
				high.Status.NominatedNodeName = "n1"
				c.Create(high)
				c.Await(fmt.Sprintf("%s: the nomination of %s ends", mode, name), func() bool { return c.Pod("high").Status.NominatedNodeName == "" })
			}
		}
	})
}

// A preemptor may be tried again before the informer knows of its nomination. The queue keeps the nomination then: no other pod takes
// the CPU that the preemptor needs beside its devices.
func TestNominationOutlivesAnEarlyTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		low := pod("low", 10, 0)
		c.createBound(low)
		var lost atomic.Bool // the news of the first nomination
		c.Client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			a := action.(clienttesting.PatchAction)
			if a.GetName() != "high" || !strings.Contains(string(a.GetPatch()), "nominatedNodeName") || !lost.CompareAndSwap(false, true) {
				return false, nil, nil
			}
			return true, &v1.Pod{}, nil
		})
		high := pod("high", 10, 100)
		needsHost(high, "60")
		c.Create(high)
		expect(t, "victims", []string{"low"}, c.awaitVictims(1))
		c.Await("the news is lost", lost.Load)
		c.plugin.handle.Activate(klog.Background(), map[string]*v1.Pod{"default/high": c.Pod("high")})
		c.AwaitMessage("high", "1 of 1 pod (default/low) yet to leave node n1")
		other := pod("other", 0, 0)
		needsHost(other, "60")
		c.Create(other)
		c.AwaitMessage("other", "Insufficient cpu")
		c.Remove("low")
		c.AwaitBound("high", 1)
		expect(t, "victims", []string{"low"}, c.victims())
	})
}

// needsHost has a pod ask for CPU.
func needsHost(p *v1.Pod, cpu string) {
	r := p.Spec.Containers[0].Resources
	r.Requests[v1.ResourceCPU], r.Limits[v1.ResourceCPU] = resource.MustParse(cpu), resource.MustParse(cpu)
}

// The message says that a search was cut, with a plan and without one.
func TestCutSearchIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1)
		c.args.Mode, c.args.MaxSteps = config.PreemptionDryRun, 1
		c.start()
		for i := range 5 {
			c.createBound(pod(fmt.Sprint("low-", i), 2, 0))
		}
		c.Create(pod("high", 4, 100))
		c.AwaitMessage("high", "(the search was cut: others might cost less)")
		for text, r := range map[string]preemption.Refusal{
			"no": {Text: "no"}, "no (the search was cut: there might be room that was not found)": {Text: "no", Cut: true},
		} {
			expect(t, "refusal", text, textOf(&r))
		}
		plan := preemption.Plan{Stats: preemption.Stats{Cut: true}}
		expect(t, "no pod is evicted", "evicts no pod: there is room", wordsOf(&plan, nil))
	})
}

// The plugin evicts the pod that costs the least of a thousand.
func TestThousandCandidates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		devices := make([]int, 125)
		for i := range devices {
			devices[i] = 8
		}
		c := prepareCluster(t, devices...)
		for i := range 1000 {
			p := pod(fmt.Sprintf("low-%04d", i), 10, 10)
			if i == 617 {
				*p.Spec.Priority = 9
			}
			node, device := i/8+1, i%8
			c.Place(p, fmt.Sprintf("n%d", node), map[string]string{v1alpha1.AnnotationAssignment: assignmentOf(t, p, node, device)})
			c.Create(p)
		}
		c.start()
		c.Create(pod("high", 10, 100))
		expect(t, "victims", []string{"low-0617"}, c.awaitVictims(1))
		c.Remove("low-0617")
		expect(t, "place", map[string]string{"high": "n78"}, c.AwaitBound("high", 1))
	})
}

// assignmentOf returns the annotation of a pod that has one whole device.
func assignmentOf(t testing.TB, p *v1.Pod, node, device int) string {
	t.Helper()
	text, err := kube.EncodeAssignment(vgpu.Assignment{
		UID: kube.UIDOf(p), Pod: kube.PathOf(p), Node: fmt.Sprintf("n%d", node), Containers: []vgpu.ContainerAssignment{{
			Name: "main", Devices: []vgpu.DeviceID{vgpu.DeviceID(fmt.Sprintf("GPU-n%d-%d", node, device))},
			Share: vgpu.Share{Devices: 1, Slots: 10, Memory: 40 << 30, ComputeLimit: vgpu.WholeGPU, MemoryLimit: 40 << 30},
		}},
	})
	must.OK(t, err)
	return text
}
