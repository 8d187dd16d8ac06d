package deploy

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const byElasticRate = "ValidatingAdmissionPolicy 'tandem-elastic-rate'"

// The policy admits what internal/cluster/membership reads.
func TestElasticRates(t *testing.T) {
	c := client(t.Context(), t, jane)
	for _, raw := range []string{"500", "0.5", "0.000001", "1000000000000", "", "0", "0.0", "-1", "+1", "5k", "1e3", "NaN", ".5", "5.", " 5", "0.0000001", "1000000000001"} {
		t.Run(raw, func(t *testing.T) {
			p := pod("rate")
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationElasticRate, raw)
			_, malformed := membership.WishOf(p.Annotations)
			_, err := c.CoreV1().Pods(team).Create(t.Context(), p, dryRun)
			if malformed != nil {
				wantRefusal(t, err, byElasticRate, "metadata.annotations[tandem-gpu.io/elastic-rate]: ", "it must be a decimal above 0")
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// The policy admits the form of the annotation; that numbers ascend and are at most 256 is for the controller to say.
func TestElasticServers(t *testing.T) {
	c := client(t.Context(), t, jane)
	for raw, legal := range map[string]bool{
		"statefulset/ps 1-4": true, "deployment/ps-2.a 1,2,4": true, "statefulset/ps 2-8/2": true, "statefulset/ps 3": true,
		"": false, "ps 1-4": false, "statefulset/ps": false, "StatefulSet/ps 1-4": false, "job/ps 1-4": false, "statefulset/ 1-4": false,
		"statefulset/a/b 1-4": false, "statefulset/ps 1-1000": false, "statefulset/PS 1": false,
	} {
		t.Run(raw, func(t *testing.T) {
			p := pod("servers")
			p.Annotations = map[string]string{v1alpha1.AnnotationElasticRate: "5", v1alpha1.AnnotationElasticServers: raw}
			_, malformed := membership.WishOf(p.Annotations)
			if (malformed == nil) != legal {
				t.Errorf("the controller says %v", malformed)
			}
			_, err := c.CoreV1().Pods(team).Create(t.Context(), p, dryRun)
			if !legal {
				wantRefusal(t, err, byElasticRate, "metadata.annotations[tandem-gpu.io/elastic-servers]: ", "it must be statefulset/NAME or deployment/NAME")
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	p := pod("no-rate")
	p.Annotations = map[string]string{v1alpha1.AnnotationElasticServers: "statefulset/ps 1-4"}
	_, err := c.CoreV1().Pods(team).Create(t.Context(), p, dryRun)
	wantRefusal(t, err, byElasticRate, "it is for a gang that states a rate")
}

// A pod that got malformed values before the policy was there stays usable, and its rate can be corrected.
func TestOldElasticRatesStay(t *testing.T) {
	p := pod("old-rate")
	p.Annotations = map[string]string{v1alpha1.AnnotationElasticRate: "fast"}
	p = createOld(t, p, "tandem-elastic-rate")
	c := client(t.Context(), t, jane)
	for _, value := range []string{"b", "500"} {
		key := map[string]string{"b": "a", "500": v1alpha1.AnnotationElasticRate}[value]
		if err := patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))(t.Context(), c, p); err != nil {
			t.Error(err)
		}
	}
	wantRefusal(t, patch(types.MergePatchType, `{"metadata":{"annotations":{"tandem-gpu.io/elastic-rate":"fast"}}}`)(t.Context(), c, p), byElasticRate, `"fast" is not legal`)
}
