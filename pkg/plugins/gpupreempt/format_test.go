package gpupreempt

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakeapi"
)

// The framework takes the answers of plugins for formats. The events of GPUShare, of GPUGang and of GPUPreempt have the text of
// a user or of the API server as it was.
func TestEventsHaveWhatUsersWrote(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		single := pod("single", 5, 0)
		single.Annotations = map[string]string{v1alpha1.AnnotationComputeLimit: "200%"}
		gang := members("gang", 1, 1, 5)[0]
		gang.Annotations[v1alpha1.AnnotationMinMembers] = "50%s"
		c.createBound(pod("low", 10, 0))
		c.refuseDeletes(func(string) error {
			return apierrors.NewForbidden(v1.Resource("pods"), "low", errors.New("100% of %d are used"))
		})
		c.Create(single, gang, pod("high", 10, 100))
		for name, want := range map[string]string{
			"single": `"200%" is not legal`, "gang-0": `"50%s" is not legal`, "high": "100% of %d are used",
		} {
			c.Await("an event of pod "+name+" has "+want, func() bool {
				for _, note := range fakeapi.Notes(t, c.Client, name) {
					if strings.Contains(note, "%!") {
						t.Fatalf("an event of pod %s: %q", name, note)
					}
					if strings.Contains(note, want) {
						return true
					}
				}
				return false
			})
		}
	})
}
