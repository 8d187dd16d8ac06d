package gpugang

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// The snapshot says what is wrong with a gang whose members differ, as the event does; a gang that only lacks members is not malformed.
func TestSnapshotOfMembersThatDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 2)
		pods := members("differs", 2, 2, 3)
		pods[1].Annotations[v1alpha1.AnnotationMinMembers] = "1"
		c.Create(pods...)
		c.Create(members("lacks", 1, 2, 3)...)
		synctest.Wait()
		s := c.snapshotOf()
		if g := c.gangIn(s, "differs"); g.Need != snapshot.Malformed || !strings.HasPrefix(g.Message, "the members differ in ") {
			t.Errorf("the gang whose members differ is %+v", g)
		}
		if g := c.gangIn(s, "lacks"); g.Need == snapshot.Malformed {
			t.Errorf("the gang that lacks a member is %+v", g)
		}
	})
}
