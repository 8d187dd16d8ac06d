package gpugang

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// elasticMembers returns the members of a gang that runs with 2 to 6 of them.
func elasticMembers(name string, count int) []*v1.Pod {
	pods := members(name, count, 2, 10)
	for _, p := range pods {
		p.Annotations[v1alpha1.AnnotationElasticWorkers] = "2-6"
	}
	return pods
}

// setTarget writes the ElasticTarget of a gang by label.
func (c *cluster) setTarget(name string, workers int32) {
	c.T.Helper()
	c.writeTarget(&v1alpha1.ElasticTarget{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ElasticTarget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       v1alpha1.ElasticTargetSpec{Source: "label", Min: 2, Max: 6, Workers: workers},
	})
}

func (c *cluster) writeTarget(target *v1alpha1.ElasticTarget) {
	c.T.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(target)
	must.OK(c.T, err)
	targets := c.Dynamic.Resource(v1alpha1.ElasticTargets).Namespace(target.Namespace)
	if _, err = targets.Update(c.T.Context(), &unstructured.Unstructured{Object: object}, metav1.UpdateOptions{}); err != nil {
		_, err = targets.Create(c.T.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	}
	must.OK(c.T, err)
}

// passMinute lets a minute of the bubble's clock pass, which takes no real time: a scheduler that would place more members has
// done so by then.
func passMinute() { time.Sleep(time.Minute) }

// told returns what the scheduler tells in the target of a gang.
func (c *cluster) told(name string) (a v1alpha1.ElasticTargetAdmission) {
	c.T.Helper()
	object, err := c.Dynamic.Resource(v1alpha1.ElasticTargets).Namespace("default").Get(c.T.Context(), name, metav1.GetOptions{})
	var target v1alpha1.ElasticTarget
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &target)
	}
	must.OK(c.T, err)
	if target.Status.Scheduler != nil {
		a = *target.Status.Scheduler
	}
	return a
}

// An elastic gang gets its least number of members without a target, as many as its target says with one, and not fewer
// than it has when the target shrinks: the controller evicts.
func TestTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4)
		pods := elasticMembers("train", 6)
		c.Create(pods...)
		c.AwaitBound("train", 2)
		synctest.Wait()
		if got := c.Bound("train"); len(got) != 2 || got["train-0"] == "" || got["train-1"] == "" {
			t.Fatalf("without a target %v are bound", got)
		}
		c.setTarget("train", 3)
		c.AwaitBound("train", 3)
		if c.Bound("train")["train-2"] == "" {
			t.Errorf("not the next member by rank: %v", c.Bound("train"))
		}

		// A cluster autoscaler would add nodes for a pod that the scheduler has tried in vain.
		passMinute()
		for _, name := range []string{"train-3", "train-4", "train-5"} {
			if text := fakecluster.Message(c.Pod(name)); text != "" {
				t.Errorf("%s is held back, and the scheduler tried it: %s", name, text)
			}
		}

		// The cluster has four devices for five members.
		c.setTarget("train", 5)
		c.AwaitBound("train", 4)
		c.Await("the scheduler tells what keeps the fifth", func() bool {
			return strings.Contains(c.told("train").Message, "needs 1 × 1 GPU") && c.told("train").Workers == 5
		})

		// The target shrinks, the controller evicts a member, and its Job makes it anew.
		c.setTarget("train", 2)
		c.Await("the scheduler has read it", func() bool { return c.told("train") == v1alpha1.ElasticTargetAdmission{Workers: 2} })
		if got := c.Bound("train"); len(got) != 4 {
			t.Errorf("a smaller target took nodes away: %v", got)
		}
		c.Remove("train-3", "train-2")
		again := elasticMembers("train", 4)[2:]
		again[0].UID, again[1].UID = "again-2", "again-3"
		c.Create(again...)
		c.Create(pod("other", 10))
		c.AwaitBound("other", 1)
		passMinute()
		if got := c.Bound("train"); len(got) != 2 {
			t.Errorf("a member that is held back is bound: %v", got)
		}
	})
}

// A target for another gang of the same name counts for nothing, and a number that is not legal as the next smaller one.
func TestTargetIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 6)
		pods := members("train", 6, 2, 10)
		for _, p := range pods {
			p.Annotations[v1alpha1.AnnotationElasticWorkers] = "2,4,6"
		}
		target := &v1alpha1.ElasticTarget{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ElasticTarget"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train"},
			Spec:       v1alpha1.ElasticTargetSpec{Source: "scheduling.k8s.io", Min: 2, Max: 6, Workers: 6},
		}
		c.writeTarget(target)
		c.Create(pods...)
		c.AwaitBound("train", 2)
		passMinute()
		if got := c.Bound("train"); len(got) != 2 {
			t.Errorf("by the target of another gang %v are bound", got)
		}
		c.setTarget("train", 5)
		c.AwaitBound("train", 4)
		passMinute()
		if got := c.Bound("train"); len(got) != 4 {
			t.Errorf("for 5, where 2, 4 and 6 are legal, %v are bound", got)
		}
	})
}

// A mistake in the annotation is told in the pod's event.
func TestElasticMistakes(t *testing.T) {
	for raw, want := range map[string]string{
		"3-6":   "its least number is 3, and the least number of members of the gang is 2: they must be the same",
		"eight": "it must be a range such as 2-8",
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 4)
			pods := members("train", 3, 2, 10)
			for _, p := range pods {
				p.Annotations[v1alpha1.AnnotationElasticWorkers] = raw
			}
			c.Create(pods...)
			c.AwaitMessage("train", want)
		})
	}
}
