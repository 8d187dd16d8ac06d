package deploy

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// Refusals by the policies on the status of fleets, and on the annotations of notebooks' pods.
const (
	byFleets    = "ValidatingAdmissionPolicy 'tandem-inferencefleets'"
	byNotebooks = "ValidatingAdmissionPolicy 'tandem-notebooks'"
)

func inferenceFleets(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	must.OK(t, err)
	return c.Resource(v1alpha1.InferenceFleets).Namespace(team)
}

// needsMany is a status that takes the GPUs of elastic jobs: soon the fleet needs many replicas.
const needsMany = `{"status":{"variants":[{"name":"a100","replicas":1,"ready":1,"weight":1000,"later":[{"from":"2026-01-31T12:00:00Z","replicas":8}]}]}}`

// storeFleet stores the example as its user does, and removes it when the test ends.
func storeFleet(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	o := exampleFleet(t)
	o.SetNamespace(team)
	all := inferenceFleets(t, cluster.Admin())
	stored, err := all.Create(t.Context(), o, metav1.CreateOptions{})
	must.OK(t, err)
	t.Cleanup(func() {
		if err := all.Delete(context.WithoutCancel(t.Context()), o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Errorf("remove InferenceFleet: %v", err)
		}
	})
	await(t, byFleets+" is enforced", func(ctx context.Context) (bool, error) {
		return patchTarget(needsMany, "status")(ctx, all, stored) != nil, nil
	})
	return stored
}

// The controller alone writes what a fleet needs; users write the spec, and a status that they send with it is dropped.
func TestWhoWritesTheStatusOfFleets(t *testing.T) {
	makePowerful(t)
	stored := storeFleet(t)
	refused := []string{byFleets, "status: it is written by the service account of Tandem's controller only: change the spec"}
	apply := func(ctx context.Context, all dynamic.ResourceInterface, stored *unstructured.Unstructured) error {
		o := exampleFleet(t)
		o.Object["status"] = map[string]any{"reason": "Steady"}
		_, err := all.Apply(ctx, stored.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true, DryRun: []string{metav1.DryRunAll}}, "status")
		return err
	}
	for _, test := range []struct {
		name string
		who  []account
		send targetWrite
		want []string // nothing where it is accepted
	}{
		{"patch the status", []account{controller, powerful}, patchTarget(needsMany, "status"), nil},
		{"patch the status", []account{admin}, patchTarget(needsMany, "status"), refused},
		{"patch the status", []account{jane, scheduler, agent, activator}, patchTarget(needsMany, "status"), []string{byRBAC + "patch"}},
		{"update the status", []account{controller}, setTarget(t, "Steady", "status", "reason"), nil},
		{"update the status", []account{admin}, setTarget(t, "Steady", "status", "reason"), refused},
		{"apply a status", []account{admin}, apply, refused},
		{"update the spec", []account{admin}, setTarget(t, "mean-optimal", "spec", "objective"), nil},
		{"update the spec", []account{controller, scheduler}, setTarget(t, "mean-optimal", "spec", "objective"), []string{byRBAC + "update"}},
	} {
		for _, who := range test.who {
			t.Run(test.name+"/"+string(who), func(t *testing.T) {
				err := test.send(t.Context(), inferenceFleets(t, as(t.Context(), t, who)), stored.DeepCopy())
				if len(test.want) > 0 {
					wantRefusal(t, err, test.want...)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
	}
	all := inferenceFleets(t, cluster.Admin())
	beside, err := all.Patch(t.Context(), stored.GetName(), types.MergePatchType, []byte(needsMany), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || beside.Object["status"] != nil {
		t.Errorf("beside the spec: %v, %v", err, beside.Object["status"])
	}
	fresh := exampleFleet(t)
	fresh.SetName("fresh")
	fresh.Object["status"] = map[string]any{"reason": "Steady"}
	made, err := all.Create(t.Context(), fresh, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || made.Object["status"] != nil {
		t.Errorf("with a new fleet: %v, %v", err, made.Object["status"])
	}
}

// shows returns a change that says on a pod when a notebook is idle or parked.
func shows(key, raw string, subresources ...string) request {
	return patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, raw), subresources...)
}

// The controller alone says on pods since when a notebook is idle and when it is parked. A user who may change the pod may remove
// that.
func TestOnlyTheControllerSaysWhenNotebooksAreParked(t *testing.T) {
	const soon, later = "2026-01-31T12:00:00Z", "2026-01-31T12:05:00Z"
	refused := []string{byNotebooks, "leave them as they are or remove them", "tandem-gpu.io/notebook-idle of its StatefulSet or Deployment"}
	for _, key := range []string{v1alpha1.AnnotationNotebookIdleSince, v1alpha1.AnnotationNotebookParksAt} {
		remove := patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, key))
		p := createBound(t.Context(), t, genuine)
		for _, step := range []struct {
			name string
			who  []account
			send request
			want []string // nothing where it is accepted
			then string   // the annotation after the step
		}{
			{"set it", []account{jane, admin}, shows(key, soon), refused, ""},
			{"set it empty", []account{jane}, shows(key, ""), refused, ""},
			{"set it in the status", []account{jane, kubelet}, shows(key, soon, "status"), refused, ""},
			{"set it in the status", []account{scheduler}, shows(key, soon, "status"), []string{byOneOfTwo}, ""},
			{"set it", []account{controller}, shows(key, soon), nil, soon},
			{"change it", []account{jane}, shows(key, later), refused, soon},
			{"say the same", []account{jane}, shows(key, soon), nil, soon},
			{"write the status", []account{kubelet}, patch(types.StrategicMergePatchType, `{"status":{"message":"x"}}`, "status"), nil, soon},
			{"change others", []account{jane}, patch(types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`), nil, soon},
			{"change it", []account{controller}, shows(key, later), nil, later},
			{"remove it", []account{jane}, remove, nil, ""},
		} {
			for _, who := range step.who {
				err := step.send(t.Context(), client(t.Context(), t, who), p)
				if len(step.want) > 0 {
					wantRefusal(t, err, step.want...)
				} else if err != nil {
					t.Errorf("%s, %s: %s: %v", key, step.name, who, err)
				}
				if got := get(t.Context(), t, p).Annotations[key]; got != step.then {
					t.Errorf("%s, %s: after the request of %s it is %q, want %q", key, step.name, who, got, step.then)
				}
			}
		}
		for _, fresh := range []*corev1.Pod{pod("forged"), plainPod()} {
			metav1.SetMetaDataAnnotation(&fresh.ObjectMeta, key, soon)
			_, err := client(t.Context(), t, jane).CoreV1().Pods(team).Create(t.Context(), fresh, dryRun)
			wantRefusal(t, err, byNotebooks, "remove them and create the pod again")
		}
	}
}

// A pod that had the annotations before the policy was there stays usable.
func TestOldTimesOfNotebooksStay(t *testing.T) {
	old := pod("old-notebook")
	metav1.SetMetaDataAnnotation(&old.ObjectMeta, v1alpha1.AnnotationNotebookParksAt, "soon")
	p := createOld(t, old, "tandem-notebooks")
	c := client(t.Context(), t, jane)
	if err := patch(types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`)(t.Context(), c, p); err != nil {
		t.Error(err)
	}
	wantRefusal(t, shows(v1alpha1.AnnotationNotebookParksAt, "later")(t.Context(), c, p), byNotebooks)
}

// Each feature that writes what the policies guard works without the roles of the others.
func TestFeaturesMayWriteWhatThePoliciesGuard(t *testing.T) {
	has := map[string]bool{}
	for _, object := range manifests(t) {
		role, ok := object.(*rbacv1.ClusterRole)
		if !ok {
			continue
		}
		for _, rule := range role.Rules {
			if slices.Equal(rule.APIGroups, []string{v1alpha1.Domain}) && slices.Contains(rule.Resources, "vgpus") && slices.Contains(rule.Verbs, "resize") {
				has[role.Name] = true
			}
		}
	}
	want := map[string]bool{"tandem-controller-elastic": true, "tandem-controller-inference": true, "tandem-controller-notebooks": true}
	if diff := cmp.Diff(want, has); diff != "" {
		t.Errorf("roles that may resize vGPUs (-want +got):\n%s", diff)
	}
}
