package gpugang

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"

	"github.com/tandem-gpu/tandem/test/fakecluster"
)

// A pod in a group that the scheduler does not understand, or whose PodGroup it cannot read, is not scheduled alone, whether the
// scheduler's queue knows groups or not. The pod's event says why.
func TestGroupsThatAreNotUnderstood(t *testing.T) {
	for _, queued := range []bool{false, true} {
		t.Run(fmt.Sprintf("GenericWorkload=%v", queued), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GenericWorkload, queued)
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 4)
				odd, named := pod("odd", 10), pod("named", 10)
				odd.Spec.SchedulingGroup = &v1.PodSchedulingGroup{}
				named.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("g")}
				label := pod("label", 10)
				label.Labels = map[string]string{"scheduling.x-k8s.io/pod-group": "g"}
				c.Create(odd, named, label, pod("other", 10))
				c.AwaitBound("other", 1)
				c.Clock.Pass(10*time.Second + time.Second)
				c.awaitTold("odd", "spec.schedulingGroup: it names no PodGroup, and this scheduler understands no other group: the pod is in a group, so it is not scheduled alone")
				c.awaitTold("named", "spec.schedulingGroup.podGroupName names PodGroup g, and the API server serves no PodGroups of scheduling.k8s.io that this scheduler reads")
				c.awaitTold("label", "the label scheduling.x-k8s.io/pod-group names PodGroup g, and the API server serves no PodGroups of scheduling.x-k8s.io that this scheduler reads")
				c.Create(pod("last", 10)) // goes through the queue after them
				c.AwaitBound("last", 1)
				if bound := c.Bound(""); len(bound) != 2 {
					t.Errorf("bound: %v", bound)
				}
			})
		})
	}
}

// awaitTold waits until a pod has a text in its condition or in an event.
func (c *cluster) awaitTold(name, text string) {
	c.T.Helper()
	c.Await("pod "+name+" is told: "+text, func() bool {
		events, err := c.Client.EventsV1().Events(metav1.NamespaceAll).List(c.T.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		for i := range events.Items {
			if e := &events.Items[i]; e.Regarding.Name == name && strings.Contains(e.Note, text) {
				return true
			}
		}
		for _, p := range c.Pods() {
			if p.Name == name && strings.Contains(fakecluster.Message(&p), text) {
				return true
			}
		}
		return false
	})
}
