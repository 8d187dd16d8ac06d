package gpugang

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// A member with a pinned place goes to its node alone. Another one goes where it likes, but not to the node of an earlier
// nomination, whose CPU its siblings have now.
func TestFilterOfNominatedNodes(t *testing.T) {
	for _, test := range []struct {
		name      string
		pinned    bool
		nominated string
		legal     []string
	}{
		{"pinned", true, "", []string{"n2"}},
		{"pinned, nominated for another node", true, "n1", []string{"n2"}},
		{"free", false, "", []string{"n1", "n2", "n3"}},
		{"free, nominated for another node", false, "n1", []string{"n2", "n3"}},
		{"free, nominated for the planned node", false, "n2", []string{"n1", "n2", "n3"}},
	} {
		cs := framework.NewCycleState()
		cs.Write(placeKey, &given{reservation.Place{Assignment: vgpu.Assignment{Node: "n2"}, Pinned: test.pinned}})
		pod := &v1.Pod{Status: v1.PodStatus{NominatedNodeName: test.nominated}}
		var legal []string
		for _, name := range []string{"n1", "n2", "n3"} {
			info := framework.NewNodeInfo()
			info.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
			if (&Plugin{}).Filter(t.Context(), cs, pod, info).IsSuccess() {
				legal = append(legal, name)
			}
		}
		if len(legal) != len(test.legal) || legal[0] != test.legal[0] {
			t.Errorf("%s: %v, want %v", test.name, legal, test.legal)
		}
	}
}
