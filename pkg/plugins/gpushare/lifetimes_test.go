package gpushare

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/lifetime"
	"github.com/tandem-gpu/tandem/test/fakeapi"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// ran makes a pod one that started at noon and ended by itself.
func ran(p *v1.Pod, length time.Duration) *v1.Pod {
	return with(p, func(p *v1.Pod) {
		p.Status.Phase, p.Status.StartTime = v1.PodSucceeded, &metav1.Time{Time: noon}
		p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			FinishedAt: metav1.NewTime(noon.Add(length)),
		}}}}
	})
}

func deleted(after time.Duration, grace int64) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: noon.Add(after)}, &grace
	}
}

func TestHowPodsEnd(t *testing.T) {
	const ended, stopped, uncounted = "ended after 1h0m0s", "stopped after 1h0m0s", ""
	tests := []struct {
		name   string
		change func(*v1.Pod)
		want   string
	}{
		{"by itself", func(*v1.Pod) {}, ended},
		{"by an error", func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, ended},
		{"the last container counts", func(p *v1.Pod) {
			p.Status.InitContainerStatuses = ran(pod("b", 1), time.Minute).Status.ContainerStatuses
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, ran(pod("c", 1), 2*time.Minute).Status.ContainerStatuses...)
		}, ended},
		{"deleted meanwhile", deleted(time.Hour+20*time.Second, 30), stopped},
		{"deleted as it ended", deleted(time.Hour+30*time.Second, 30), stopped},
		{"deleted after its end", deleted(time.Hour+31*time.Second, 30), ended},
		{"evicted", func(p *v1.Pod) {
			p.Status.Phase = v1.PodFailed
			p.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}
		}, stopped},
		{"not evicted after all", func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionFalse}, {Type: v1.PodReady, Status: v1.ConditionTrue}}
		}, ended},
		{"runs", func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }, uncounted},
		{"never started", func(p *v1.Pod) { p.Status.StartTime = nil }, uncounted},
		{"ran no container", func(p *v1.Pod) { p.Status.ContainerStatuses = nil }, uncounted},
		{"without vGPUs", func(p *v1.Pod) { p.Spec.Containers[0].Resources = v1.ResourceRequirements{} }, uncounted},
		{"would be restarted", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyAlways }, uncounted},
		{"would be restarted up to a time", func(p *v1.Pod) {
			p.Spec.RestartPolicy, p.Spec.ActiveDeadlineSeconds = v1.RestartPolicyAlways, new(int64(90))
		}, ended},
		{"of a DaemonSet", func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "x", Controller: new(true)}}
		}, uncounted},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o, end, counts := observationOf(with(ran(pod("a", 3), time.Hour), test.change), "A100")
			got := ""
			if counts {
				got = fmt.Sprintf("%s after %v", map[bool]string{true: "stopped", false: "ended"}[o.Stopped], end.Sub(noon))
			}
			expect(t, "the end", got, test.want)
			if counts && (o.Projected != 0 || o.Length != 3600 || o.User != "default" || o.Model != "A100") {
				t.Errorf("observed %+v", o)
			}
		})
	}
}

// The plugin learns the words of a pod from the middle of its life when it has ended, also where the scheduler's informer has dropped it by
// then. The last word counts for nothing, and the only known word of a pod that ended before this scheduler began is the last one.
func TestProgressOfEndedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 2))
		judged := func(name string) float64 {
			c.t.Helper()
			kept, err := c.plugin.condenseEnded(with(ran(c.await(name, "it is bound", isBound), time.Hour), func(p *v1.Pod) {
				p.Status.StartTime = &metav1.Time{Time: time.Now().Add(-time.Hour)}
				p.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.Now()
			}))
			e, ok := kept.(*endedPod)
			if err != nil || !ok || !e.counts || e.seen.Length != 3600 {
				c.t.Fatalf("pod %s: %+v, %v", name, kept, err)
			}
			return e.seen.Projected
		}
		says := map[string][]string{
			"right": {"0", "0.25", "0.5", "0.75", "1"}, "constant": {"0.95", "0.95", "0.95", "0.95", "1"}, "silent": {"0", "0", "0", "0", "1"},
			"broken": {"half", "half", "half", "half", "half"},
		}
		for name := range says {
			c.createPod(pod(name, 5))
			c.awaitBound(name)
			c.begin(name)
		}
		start := time.Now()
		for i, at := range []time.Duration{0, 15 * time.Minute, 30 * time.Minute, 45 * time.Minute, time.Hour} {
			time.Sleep(at - time.Since(start)) // on the clock of the bubble
			for name := range says {
				c.tell(name, says[name][i])
			}
		}
		// The words that count stood at 512 s, 1024 s and 2048 s.
		want := map[string]float64{"right": 3600, "constant": 512, "silent": 0, "broken": 0}
		got := map[string]float64{}
		for name := range says {
			got[name] = judged(name)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateApprox(.01, 0)); diff != "" {
			t.Errorf("words are judged by (-want +got):\n%s", diff)
		}
		c.plugin.gone(c.await("right", "it is bound", isBound))
		if got := judged("right"); got < 3590 {
			t.Errorf("the informer has dropped the pod: its words are judged by %v s", got)
		}
		c.plugin.seen(c.await("right", "it is bound", isBound)) // it comes back
		c.plugin.gone(c.await("silent", "it is bound", isBound))
		time.Sleep(keepsWords + time.Second) // on the clock of the bubble
		c.plugin.gone(c.await("constant", "it is bound", isBound))
		if l := c.plugin.lifetimes; len(l.told) != 2 || len(l.left) != 1 || l.told[c.await("right", "it is bound", isBound).UID] == nil {
			t.Errorf("%d pods are remembered that said something, and %d that left", len(l.told), len(l.left))
		}
		c.stop()
		c.start()
		synctest.Wait()
		if got := judged("constant"); got != 0 {
			t.Errorf("after a restart the words are judged by %v s", got)
		}
	})
}

// Pods are told apart by namespace, size, model and workload, also where two namespaces have workloads of one name.
func TestLifetimeOf(t *testing.T) {
	declaring := with(pod("a", 3), func(p *v1.Pod) {
		p.Labels = map[string]string{v1alpha1.LabelProfile: "bert"}
		p.Spec.ActiveDeadlineSeconds = new(int64(90))
	})
	want := lifetime.Pod{User: "default", Workload: "default/bert", Model: "A100", Size: 3, Declared: 90}
	if diff := cmp.Diff(want, lifetimeOf(declaring, "A100")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The result of an end is where it lies beside the interval that was predicted at the start.
func TestEndsBesidePredictions(t *testing.T) {
	l, err := newLifetimes()
	must.OK(t, err)
	p := lifetimeOf(pod("a", 3), "A100")
	for range 200 {
		if _, err := l.observe(lifetime.Observation{Pod: p, Length: 3600}); err != nil {
			t.Fatal(err)
		}
	}
	for length, want := range map[float64]string{60: endEarly, 3600: endExpected, 1e6: endLate} {
		got, err := l.observe(lifetime.Observation{Pod: p, Length: length})
		must.OK(t, err)
		expect(t, fmt.Sprintf("a pod of %v s", length), got, want)
	}
	told := p
	told.Projected = 1e6
	got, err := l.observe(lifetime.Observation{Pod: told, Length: 8e5})
	must.OK(t, err)
	expect(t, "a pod that told its progress, of which nothing was known at its start", got, endLate)
	got, err = l.observe(lifetime.Observation{Pod: p, Length: 60, Stopped: true})
	must.OK(t, err)
	expect(t, "a pod that is stopped", got, endStopped)
	if _, err := l.observe(lifetime.Observation{Pod: p, Length: -1}); err == nil {
		t.Error("a negative length is learned")
	}
}

// known returns how many ended pods the plugin remembers of the namespace "default".
func (c *cluster) known() int {
	c.plugin.lifetimes.mu.Lock()
	defer c.plugin.lifetimes.mu.Unlock()
	return c.plugin.lifetimes.learner.Known(lifetimeOf(pod("x", 1), ""))
}

func (c *cluster) end(name string) {
	c.t.Helper()
	p, err := c.client.CoreV1().Pods("default").Get(c.t.Context(), name, metav1.GetOptions{})
	if err == nil {
		_, err = c.client.CoreV1().Pods("default").UpdateStatus(c.t.Context(), ran(p, time.Hour), metav1.UpdateOptions{})
	}
	must.OK(c.t, err)
}

// The plugin learns from each pod that ends, once, and after a restart from those that the API server still has.
func TestLearnsFromPodsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 2))
		for _, name := range []string{"a", "b", "c"} {
			c.createPod(pod(name, 5))
			c.awaitBound(name)
		}
		synctest.Wait()
		if got := c.known(); got != 0 {
			t.Errorf("%d pods are known before any ended", got)
		}
		c.end("a")
		c.end("b")
		synctest.Wait()
		c.end("b") // an update of a pod that has ended
		synctest.Wait()
		if got := c.known(); got != 2 {
			t.Errorf("%d pods are known after two ended", got)
		}
		model := gpuNode("n1", 1).Status.Devices[0].Model
		expect(t, "the model of a pod", c.plugin.modelOf(c.await("c", "it is bound", isBound)), model)
		c.plugin.lifetimes.mu.Lock()
		curve, err := c.plugin.lifetimes.learner.Predict(lifetimeOf(pod("a", 5), model), 0)
		c.plugin.lifetimes.mu.Unlock()
		if err != nil || curve.Quantile(.5) < 1800 || curve.Quantile(.5) > 7200 {
			t.Errorf("the median of pods like those that ran for an hour is %v s: %v", curve.Quantile(.5), err)
		}
		c.deletePod("a")
		c.stop()
		c.start()
		synctest.Wait()
		if got := c.known(); got != 1 {
			t.Errorf("%d pods are known after a restart, want the one that is not deleted", got)
		}
	})
}

// Pods of the first list are learned in the order of their ends, so that the last runs of a workload count as the last.
func TestFirstListByEnds(t *testing.T) {
	var order []string
	b := &byEnd{learn: func(e *endedPod) { order = append(order, e.Name) }}
	of := func(name string, end time.Duration) *endedPod {
		return &endedPod{ObjectMeta: metav1.ObjectMeta{Name: name}, counts: true, end: noon.Add(end)}
	}
	h := b.events()
	for _, e := range []*endedPod{of("third", 3), of("first", 1), of("second", 2), {}} {
		h.OnAdd(e, true)
	}
	if len(order) > 0 {
		t.Errorf("learned %v before the list ended", order)
	}
	b.open()
	h.OnAdd(of("fourth", 0), false)
	h.OnUpdate(of("fourth", 0), of("fourth", 0)) // it counts already
	if diff := cmp.Diff([]string{"first", "second", "third", "fourth"}, order); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLifetimesDisabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, client: fakeapi.NewClientset(), dynamic: fakecluster.NewDynamic()}
		c.configure = func(a *config.GPUShareArgs) { a.Lifetimes = config.LifetimesDisabled }
		c.start()
		if c.plugin.lifetimes != nil {
			t.Error("the plugin learns how long pods run")
		}
	})
}
