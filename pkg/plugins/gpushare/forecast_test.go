package gpushare

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/lifetime"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/test/must"
)

// begin gives a pod the status of one that began to run now.
func (c *cluster) begin(name string) {
	c.t.Helper()
	p, err := c.client.CoreV1().Pods("default").Get(c.t.Context(), name, metav1.GetOptions{})
	if err == nil {
		p.Status.Phase, p.Status.StartTime = v1.PodRunning, &metav1.Time{Time: time.Now()}
		_, err = c.client.CoreV1().Pods("default").UpdateStatus(c.t.Context(), p, metav1.UpdateOptions{})
	}
	must.OK(c.t, err)
	synctest.Wait()
}

// tell has a pod say its progress.
func (c *cluster) tell(name, progress string) {
	c.t.Helper()
	p, err := c.client.CoreV1().Pods("default").Get(c.t.Context(), name, metav1.GetOptions{})
	if err == nil {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationProgress, progress)
		_, err = c.client.CoreV1().Pods("default").Update(c.t.Context(), p, metav1.UpdateOptions{})
	}
	must.OK(c.t, err)
	synctest.Wait()
}

// foretold returns the only node of the snapshot, and what it says of the ends of its pods, by name.
func (c *cluster) foretold() (snapshot.Node, map[string]*snapshot.Ends) {
	c.t.Helper()
	nodes := c.plugin.SnapshotNodes(noGang)
	c.checkVersions(nodes)
	must.OK(c.t, (&snapshot.Snapshot{Source: snapshot.FromScheduler, Nodes: nodes}).Check())
	ends := map[string]*snapshot.Ends{}
	for i := range nodes[0].Pods {
		ends[nodes[0].Pods[i].Name.Name] = nodes[0].Pods[i].Ends
	}
	return nodes[0], ends
}

// The snapshot says when running pods probably end that end by themselves. A prediction stands for an eighth of the pod's age, and the node is
// the same as long.
func TestSnapshotForetells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 2))
		service := with(pod("service", 5), func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyAlways })
		bounded := with(pod("bounded", 5), func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(3600)) })
		for _, p := range []*v1.Pod{pod("a", 5), service, bounded, pod("waits", 5)} {
			c.createPod(p)
			c.awaitBound(p.Name)
		}
		for _, name := range []string{"a", "service", "bounded"} {
			c.begin(name)
		}
		c.createPod(pod("large", 10)) // the node is looked at once more
		c.awaitPending("large", "nearest")
		synctest.Wait()
		start := time.Now()
		first, ends := c.foretold()
		if ends["service"] != nil || ends["waits"] != nil || ends["a"] == nil || ends["bounded"] == nil {
			t.Errorf("foretold are %v", ends)
		}
		if last := slices.Max(ends["bounded"].AfterSeconds); last > 3600 {
			t.Errorf("a pod that ends within an hour ends within %d s", last)
		}
		time.Sleep(59 * time.Second) // this sleep and those below are on the clock of the bubble, and take no time
		if same, _ := c.foretold(); same.Version != first.Version {
			t.Error("the node is another one before a minute has passed")
		}
		time.Sleep(time.Second)
		second, ends := c.foretold()
		if got := ends["a"].At.Sub(start.Truncate(time.Second)); second.Version == first.Version || got != time.Minute {
			t.Errorf("after a minute the prediction is of %v", got)
		}
		time.Sleep(79 * time.Minute)
		_, ends = c.foretold()
		if last := slices.Max(ends["bounded"].AfterSeconds); last != 0 {
			t.Errorf("a pod that should have ended by now ends within %d s", last)
		}
		time.Sleep(9 * time.Minute)
		kept, again := c.foretold()
		if again["a"] != ends["a"] {
			t.Error("a prediction for a pod of 80 minutes does not stand for ten")
		}
		time.Sleep(2 * time.Minute)
		if renewed, _ := c.foretold(); renewed.Version == kept.Version {
			t.Error("a prediction for a pod of 80 minutes stands for eleven")
		}
		c.tell("a", "0.1")
		time.Sleep(15 * time.Minute)
		if _, ends = c.foretold(); ends["a"].AfterSeconds[3] < 8*3600 {
			t.Errorf("a pod that has done a tenth in an hour and three quarters ends within %v s", ends["a"].AfterSeconds)
		}
	})
}

// A pod that resumes after nine tenths of its job is not taken to end at once: it goes on as it does since its first word.
func TestSnapshotForetellsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 2))
		c.createPod(pod("a", 5))
		c.awaitBound("a")
		c.begin("a")
		time.Sleep(time.Minute) // on the clock of the bubble, as below
		c.tell("a", "0.9")
		_, ends := c.foretold()
		if median := ends["a"].AfterSeconds[3]; median < 45 {
			t.Errorf("a pod that says .9 after a minute ends within %d s", median)
		}
		time.Sleep(5 * time.Minute) // on the clock of the bubble
		c.tell("a", "0.91")
		_, ends = c.foretold()
		if median := ends["a"].AfterSeconds[3]; median < 2000 || median > 3200 {
			t.Errorf("a pod that does a hundredth in five minutes, and nine are left, ends within %d s", median)
		}
	})
}

// Predictions rest on what was learned, and on nothing where the learner is off.
func TestForecast(t *testing.T) {
	l, err := newLifetimes()
	must.OK(t, err)
	p := lifetimeOf(pod("a", 3), "A100")
	for range 200 {
		if _, err := l.observe(lifetime.Observation{Pod: p, Length: 3600}); err != nil {
			t.Fatal(err)
		}
	}
	f := l.forecast(p, noon, noon.Add(30*time.Minute))
	if f.ends.Known < 150 || f.ends.AfterSeconds[3] < 600 || f.ends.AfterSeconds[3] > 3600 {
		t.Errorf("after half an hour of one, and %d pods of an hour, half end within %d s", f.ends.Known, f.ends.AfterSeconds[3])
	}
	if want := noon.Add(30*time.Minute + 225*time.Second); !f.due.Equal(want) {
		t.Errorf("it stands until %v, want %v", f.due, want)
	}
	d := newDesk(t, gpuNode("n1", 1))
	n := shownNode{node: snapshot.Node{Pods: []snapshot.Pod{{}}}}
	d.plugin.foresee(&n, nil, nil, noon)
	if diff := cmp.Diff(snapshot.Pod{}, n.node.Pods[0]); diff != "" || !n.due.IsZero() {
		t.Errorf("without a learner: %s", diff)
	}
}
