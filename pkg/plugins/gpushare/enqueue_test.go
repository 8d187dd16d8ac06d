package gpushare

import (
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakeapi"
)

// A pod that asks for an amount of millions of digits is not tried, so that nothing adds it up, and one event says why, whatever
// happens in the cluster. Other pods are bound meanwhile.
func TestAbsurdAmountsAreNotTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 1))
		for name, of := range map[string]v1.ResourceName{"slots": v1alpha1.ResourceVGPU, "cores": v1.ResourceCPU} {
			c.createPod(with(pod(name, 1), func(p *v1.Pod) {
				p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
				for i := range p.Spec.Containers {
					p.Spec.Containers[i].Resources.Limits[of] = resource.MustParse("1e1500000000")
					p.Spec.Containers[i].Resources.Requests = p.Spec.Containers[i].Resources.Limits
				}
			}))
			note := ""
			c.await(name, "told", func(*v1.Pod) bool {
				notes := fakeapi.Notes(t, c.client, name)
				note = strings.Join(notes, "")
				return len(notes) > 0
			})
			if want := "spec.containers[0].resources.limits[" + string(of) + `]: "1e1500000000" is not legal, it must be `; !strings.HasPrefix(note, want) {
				t.Errorf("the event of pod %s is %q, want %q at its begin", name, note, want)
			}
		}
		c.createNode("n2") // has pods of this plugin tried again
		c.createPod(pod("other", 10))
		c.awaitBound("other")
		for _, name := range []string{"slots", "cores"} {
			p, err := c.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Status.Conditions) > 0 || len(fakeapi.Notes(t, c.client, name)) != 1 {
				t.Errorf("pod %s was tried: %v, events %q", name, p.Status.Conditions, fakeapi.Notes(t, c.client, name))
			}
		}
		c.deletePod("slots")
		c.await("other", "there when the one that is gone is forgotten", func(*v1.Pod) bool { return !c.plugin.absurd.has("uid-slots") })
	})
}

// A pod whose annotations leave no room for its assignment is refused with the numbers, and tried again when they are shorter.
func TestFullAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 1))
		c.createPod(with(pod("full", 5), func(p *v1.Pod) {
			p.Annotations = map[string]string{"example.com/notes": strings.Repeat("x", 256<<10-100)}
		}))
		got := c.awaitPending("full", "metadata.annotations: keys and values have 262061 bytes")
		if want := "the API server allows 262144 for all"; !strings.Contains(got, want) {
			t.Errorf("the message is %q, want %q in it", got, want)
		}
		c.annotate("full", "example.com/notes", "short")
		c.awaitBound("full")
	})
}
