package integration

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakecluster"
)

// fleetOfProfile: the fast variant leaves out its replica, and goes by the profile that the label of its pods names. The fleet waits until that
// says enough, and then grows as if it declared the same itself. A profile that the variant names counts before the label.
func fleetOfProfile(t *testing.T, s *fleetScene) {
	s.arrives(60)
	s.create(t, "bert", twoVariants())
	s.patchFleet(t, `[{"op": "remove", "path": "/spec/variants/0/replica"}, {"op": "add", "path": "/spec/variants/0/gpuModel", "value": "A100"}, {"op": "add", "path": "/spec/variants/0/slots", "value": 5}]`)
	s.awaitReady(t, "ProfileUnnamed", "the pod template of Deployment bert-a100 has no label tandem-gpu.io/profile")
	_, err := s.admin.AppsV1().Deployments(s.namespace).Patch(t.Context(), "bert-a100", types.MergePatchType,
		fmt.Appendf(nil, `{"spec": {"template": {"metadata": {"labels": {%q: "bert-large"}}}}}`, v1alpha1.LabelProfile), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.awaitReady(t, "ProfileMissing", "WorkloadProfile bert-large does not exist")
	replica := map[string]any{"rate": "50", "time": "20ms"}
	s.createProfile(t, "bert-large", 20, replica)
	s.awaitReady(t, "ModelUnknown", "no GPUNode has a device of the model A100")

	createNode(t, s.api, fakecluster.GPUNode("profiled", 1)) // an A100 of ten slots
	s.awaitReady(t, "ProfileIncomplete", "does not say how a replica serves on A100 at 50 percent, which 5 slots of 10 are. It has A100 at 20 percent")
	s.createProfile(t, "bert-half", 50, replica)
	s.patchFleet(t, `[{"op": "add", "path": "/spec/variants/0/profile", "value": "bert-half"}]`)
	s.awaitReady(t, "Controlled", "")
	s.awaitSizes(t, "bert", "more replicas share the requests", func(replicas, weights [2]int64) bool {
		return float64(replicas[0])*45+float64(replicas[1])*5 > 60 && weights[0]+weights[1] == 1000
	})
}

// patchFleet changes the fleet bert as a user would.
func (s *fleetScene) patchFleet(t *testing.T, patch string) {
	t.Helper()
	if _, err := s.objects.Resource(fleets).Namespace(s.namespace).Patch(t.Context(), "bert", types.JSONPatchType, []byte(patch), metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		t.Fatal(err)
	}
}

// awaitReady waits until the condition Ready of the fleet bert has a reason, with a message that says what is wrong.
func (s *fleetScene) awaitReady(t *testing.T, reason, says string) {
	t.Helper()
	s.awaitReason(t, "bert", v1alpha1.ConditionFleetReady, reason)
	if c := meta.FindStatusCondition(s.fleet(t, "bert").Status.Conditions, v1alpha1.ConditionFleetReady); !strings.Contains(c.Message, says) {
		t.Errorf("the message is %q, and should say %q", c.Message, says)
	}
}

// createProfile makes a profile that says how a replica serves on a share of an A100.
func (s *fleetScene) createProfile(t *testing.T, name string, share int64, replica map[string]any) {
	t.Helper()
	s.createObject(t, v1alpha1.WorkloadProfiles, "WorkloadProfile", name, map[string]any{
		"serving": []any{map[string]any{"model": "A100", "sharePercent": share, "replica": replica}},
	})
}
