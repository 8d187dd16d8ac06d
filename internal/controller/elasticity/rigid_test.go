package elasticity

import (
	"slices"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Pods that are in no elastic gang may state a rate or name servers. Their owner gets one event that says that this has no effect, however
// many pods and passes there are. Elastic gangs, gangs with a problem and pods of another scheduler cause no event.
func TestRateWithoutElasticWorkers(t *testing.T) {
	pods := append(rigid(t), member("single", 0), member("foreign", 0))
	pods = append(pods, members(t, "train", 8, 8, 0)...)
	for _, p := range pods {
		p.Annotations[v1alpha1.AnnotationElasticRate] = "500"
	}
	single := pods[4]
	single.Labels, single.OwnerReferences = nil, nil
	delete(single.Annotations, v1alpha1.AnnotationElasticRate)
	single.Annotations[v1alpha1.AnnotationElasticServers] = "statefulset/ps 1-4"
	pods[5].Spec.SchedulerName = "another"
	w := newWorld(t, 16, pods...)
	for _, at := range []int{0, 10} {
		w.pass(at)
	}
	const why = " has no effect: it is for the members of an elastic gang, and the annotation tandem-gpu.io/elastic-workers is missing; set that one too, or remove this one"
	var got []string
	for _, event := range w.events() {
		if event[:len("Warning")] == "Warning" {
			got = append(got, event)
		}
	}
	slices.Sort(got)
	w.same("events", []string{
		"Warning ElasticRateIgnored the annotation tandem-gpu.io/elastic-rate" + why,
		"Warning ElasticRateIgnored the annotation tandem-gpu.io/elastic-servers" + why,
	}, got)
	w.drop(pods[:4]...)
	w.pass(20)
	w.put(pods[:4]...)
	w.pass(30)
	if got := len(w.events()); got != 1 {
		t.Errorf("%d events of the gang that came back, want 1", got)
	}
}
