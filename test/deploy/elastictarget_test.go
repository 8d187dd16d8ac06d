package deploy

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// Refusals by the policies on targets, and on the time at which a pod leaves.
const (
	byTargets = "ValidatingAdmissionPolicy 'tandem-elastictargets'"
	byLeaving = "ValidatingAdmissionPolicy 'tandem-leaving'"
)

func elasticTargets(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	must.OK(t, err)
	return c.Resource(v1alpha1.ElasticTargets).Namespace(team)
}

// elasticTarget returns a legal target.
func elasticTarget(name string) *v1alpha1.ElasticTarget {
	return &v1alpha1.ElasticTarget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: team},
		Spec:       v1alpha1.ElasticTargetSpec{Source: "label", Min: 2, Max: 8, Workers: 4},
	}
}

// targetObject returns a target as clients without its type send it.
func targetObject(t *testing.T, target *v1alpha1.ElasticTarget) *unstructured.Unstructured {
	t.Helper()
	target.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ElasticTarget"))
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(target)
	must.OK(t, err)
	return &unstructured.Unstructured{Object: object}
}

// awaitTargets waits until the API server enforces the policy on ElasticTargets.
func awaitTargets(t *testing.T) {
	t.Helper()
	await(t, byTargets+" is enforced", func(ctx context.Context) (bool, error) {
		_, err := elasticTargets(t, cluster.Admin()).Create(ctx, targetObject(t, elasticTarget("canary")), dryRun)
		return err != nil, nil
	})
}

// targetStatus is a status as the controller writes it, with the part of the scheduler.
func targetStatus(scheduler *v1alpha1.ElasticTargetAdmission) v1alpha1.ElasticTargetStatus {
	at := metav1.Time{Time: time.Unix(1_800_000_000, 0)}
	return v1alpha1.ElasticTargetStatus{
		Workers: 3, Reason: "Faster", Message: "4 workers are 1.9 times as fast as 2", Since: &at, Moves: []metav1.Time{at}, Scheduler: scheduler,
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionResizable, Status: metav1.ConditionTrue, Reason: "Elastic", LastTransitionTime: at,
		}},
	}
}

// storeTarget stores a target as the controller does, with a status of which the scheduler has written its part, and removes it when
// the test ends.
func storeTarget(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	awaitTargets(t)
	target := elasticTarget(name)
	all := elasticTargets(t, as(t.Context(), t, controller))
	stored, err := all.Create(t.Context(), targetObject(t, target), metav1.CreateOptions{})
	must.OK(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := elasticTargets(t, cluster.Admin()).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("remove ElasticTarget: %v", err)
		}
	})
	target.Status = targetStatus(nil)
	stored.Object["status"] = targetObject(t, target).Object["status"]
	if _, err := all.UpdateStatus(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	stored, err = elasticTargets(t, as(t.Context(), t, scheduler)).Patch(t.Context(), name, types.MergePatchType,
		[]byte(`{"status":{"scheduler":{"workers":4,"message":"no room for the fourth"}}}`), metav1.PatchOptions{}, "status")
	must.OK(t, err)
	return stored
}

func TestElasticTargetSchema(t *testing.T) {
	spec := func(pairs ...any) map[string]any {
		s := map[string]any{"source": "label", "min": int64(2), "max": int64(8), "workers": int64(4)}
		for i := 0; i < len(pairs); i += 2 {
			if s[pairs[i].(string)] = pairs[i+1]; pairs[i+1] == nil {
				delete(s, pairs[i].(string))
			}
		}
		return s
	}
	tests := []struct {
		name string
		spec map[string]any
		want string // "" when legal
	}{
		{name: "between the bounds", spec: spec()},
		{name: "the least number", spec: spec("workers", int64(2))},
		{name: "the largest number", spec: spec("workers", int64(8))},
		{name: "one size", spec: spec("min", int64(1), "max", int64(1), "workers", int64(1))},
		{name: "the largest size of all", spec: spec("max", int64(10_000), "workers", int64(10_000))},
		{name: "a PodGroup of Kubernetes", spec: spec("source", "scheduling.k8s.io")},
		{name: "a PodGroup of the scheduler plugins", spec: spec("source", "scheduling.x-k8s.io")},
		{name: "too few workers", spec: spec("workers", int64(1)), want: "workers must be from min to max"},
		{name: "too many workers", spec: spec("workers", int64(9)), want: "workers must be from min to max"},
		{name: "a least number above the largest", spec: spec("min", int64(9)), want: "workers must be from min to max"},
		{name: "no members at all", spec: spec("min", int64(0), "workers", int64(0)), want: "spec.min: Invalid value: 0"},
		{name: "more members than a gang has", spec: spec("max", int64(10_001)), want: "spec.max: Invalid value: 10001"},
		{name: "part of a worker", spec: spec("workers", 2.5), want: "spec.workers"},
		{name: "workers as text", spec: spec("workers", "4"), want: "spec.workers"},
		{name: "another source", spec: spec("source", "volcano.sh"), want: `spec.source: Unsupported value: "volcano.sh"`},
		{name: "an empty source", spec: spec("source", ""), want: "spec.source: Unsupported value"},
		{name: "no source", spec: spec("source", nil), want: "spec.source: Required value"},
		{name: "no min", spec: spec("min", nil), want: "spec.min: Required value"},
		{name: "no max", spec: spec("max", nil), want: "spec.max: Required value"},
		{name: "no workers", spec: spec("workers", nil), want: "spec.workers: Required value"},
		{name: "no spec", want: "spec: Required value"},
		{name: "an unknown field", spec: spec("replicas", int64(3)), want: `unknown field "spec.replicas"`},
	}
	all := elasticTargets(t, as(t.Context(), t, controller))
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			object := targetObject(t, elasticTarget("schema"))
			if delete(object.Object, "spec"); test.spec != nil {
				object.Object["spec"] = test.spec
			}
			strict := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
			_, err := all.Create(t.Context(), object, strict)
			if test.want != "" {
				wantRefusal(t, err, test.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestElasticTargetStatusSchema(t *testing.T) {
	stored := storeTarget(t, "schema")
	all := elasticTargets(t, as(t.Context(), t, controller))
	for _, test := range []struct {
		name, field string
		value       any
		want        string // "" when legal
	}{
		{"as many changes as are kept", "moves", slices.Repeat([]any{"2026-01-31T12:00:00Z"}, 16), ""},
		{"too many changes", "moves", slices.Repeat([]any{"2026-01-31T12:00:00Z"}, 17), "status.moves: Too many"},
		{"a change at no time", "moves", []any{"noon"}, "status.moves[0]"},
		{"a target since no time", "since", "noon", "status.since"},
		{"a condition twice", "conditions", slices.Repeat(stored.Object["status"].(map[string]any)["conditions"].([]any), 2), "status.conditions[1]: Duplicate value"},
		{"a field that the type does not have", "hosts", int64(3), `unknown field "status.hosts"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := stored.DeepCopy()
			must.OK(t, unstructured.SetNestedField(object.Object, test.value, "status", test.field))
			strict := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
			_, err := all.UpdateStatus(t.Context(), object, strict)
			if test.want != "" {
				wantRefusal(t, err, test.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// targetWrite is one way to write the stored target.
type targetWrite func(ctx context.Context, all dynamic.ResourceInterface, stored *unstructured.Unstructured) error

func createTarget(t *testing.T) targetWrite {
	return func(ctx context.Context, all dynamic.ResourceInterface, _ *unstructured.Unstructured) error {
		_, err := all.Create(ctx, targetObject(t, elasticTarget("new")), dryRun)
		return err
	}
}

// setTarget sends the whole target with one field changed, or removed where the value is nil.
func setTarget(t *testing.T, value any, path ...string) targetWrite {
	return func(ctx context.Context, all dynamic.ResourceInterface, stored *unstructured.Unstructured) error {
		must.OK(t, unstructured.SetNestedField(stored.Object, value, path...))
		if value == nil {
			unstructured.RemoveNestedField(stored.Object, path...)
		}
		options := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
		var err error
		if path[0] == "status" {
			_, err = all.UpdateStatus(ctx, stored, options)
		} else {
			_, err = all.Update(ctx, stored, options)
		}
		return err
	}
}

func patchTarget(body string, subresources ...string) targetWrite {
	return func(ctx context.Context, all dynamic.ResourceInterface, stored *unstructured.Unstructured) error {
		options := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
		_, err := all.Patch(ctx, stored.GetName(), types.MergePatchType, []byte(body), options, subresources...)
		return err
	}
}

// applyTarget applies a target, which creates it where it is absent.
func applyTarget(t *testing.T, name string, workers int32, subresources ...string) targetWrite {
	return func(ctx context.Context, all dynamic.ResourceInterface, _ *unstructured.Unstructured) error {
		target := elasticTarget(name)
		target.Spec.Workers, target.Status.Workers = workers, workers
		options := metav1.ApplyOptions{FieldManager: "test", Force: true, DryRun: []string{metav1.DryRunAll}}
		_, err := all.Apply(ctx, name, targetObject(t, target), options, subresources...)
		return err
	}
}

func deleteTarget(ctx context.Context, all dynamic.ResourceInterface, stored *unstructured.Unstructured) error {
	return all.Delete(ctx, stored.GetName(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
}

// The controller writes the spec and all of the status but the field of the scheduler, which the scheduler alone writes. Other
// accounts write neither, whatever RBAC allows them; they may remove a target, since the controller makes it again.
func TestWhoWritesElasticTargets(t *testing.T) {
	const (
		users       = "set the annotation tandem-gpu.io/elastic-workers on the pods of the gang, or on its PodGroup, and the controller "
		ofScheduler = "status.scheduler: it is written by the service account of Tandem's scheduler only: leave it as it is"
	)
	makePowerful(t)
	stored := storeTarget(t, "gang")
	both := map[string]any{"workers": int64(1), "scheduler": map[string]any{"workers": int64(8)}}
	for _, test := range []struct {
		name string
		who  []account
		send targetWrite
		want []string // nothing where it is accepted
	}{
		{"create", []account{controller, powerful}, createTarget(t), nil},
		{"create", []account{admin}, createTarget(t), []string{byTargets, "an ElasticTarget is made by", users}},
		{"create", []account{jane, scheduler, agent}, createTarget(t), []string{byRBAC + "create"}},
		{"apply a new one", []account{controller}, applyTarget(t, "new", 4), nil},
		{"apply a new one", []account{admin}, applyTarget(t, "new", 4), []string{byTargets, "an ElasticTarget is made by"}},
		{"update the spec", []account{controller, powerful}, setTarget(t, int64(8), "spec", "workers"), nil},
		{"update the spec", []account{admin}, setTarget(t, int64(8), "spec", "workers"), []string{byTargets, "spec: it is written by", users}},
		{"update the spec", []account{jane, scheduler, agent}, setTarget(t, int64(8), "spec", "workers"), []string{byRBAC + "update"}},
		{"patch the spec", []account{controller}, patchTarget(`{"spec":{"workers":8}}`), nil},
		{"patch the spec", []account{admin}, patchTarget(`{"spec":{"workers":8}}`), []string{byTargets, "spec: it is written by"}},
		{"patch the spec", []account{scheduler}, patchTarget(`{"spec":{"workers":8}}`), []string{byRBAC + "patch"}},
		{"patch another field of the spec", []account{admin}, patchTarget(`{"spec":{"source":"scheduling.k8s.io"}}`), []string{byTargets}},
		{"apply a change of the spec", []account{admin}, applyTarget(t, "gang", 8), []string{byTargets, "spec: it is written by"}},
		{"apply the same spec", []account{admin}, applyTarget(t, "gang", 4), nil},

		{"update the status", []account{controller, powerful}, setTarget(t, int64(1), "status", "workers"), nil},
		{"update the status", []account{admin}, setTarget(t, int64(1), "status", "workers"), []string{byTargets, "status: all fields but scheduler", users}},
		{"update the status", []account{jane, agent}, setTarget(t, int64(1), "status", "workers"), []string{byRBAC + "update"}},
		{"update the status", []account{scheduler}, setTarget(t, int64(1), "status", "workers"), []string{byRBAC + "update"}},
		{"patch the status", []account{controller}, patchTarget(`{"status":{"reason":"Idle","message":null}}`, "status"), nil},
		{"patch the status", []account{admin, scheduler}, patchTarget(`{"status":{"workers":1}}`, "status"), []string{byTargets, "status: all fields but scheduler", users}},
		{"remove a field of the status", []account{controller}, setTarget(t, nil, "status", "reason"), nil},
		{"remove a field of the status", []account{admin, scheduler}, patchTarget(`{"status":{"reason":null}}`, "status"), []string{byTargets, "status: all fields but scheduler"}},
		{"remove the conditions", []account{scheduler}, patchTarget(`{"status":{"conditions":null}}`, "status"), []string{byTargets}},
		{"change what is inside a condition", []account{admin, scheduler},
			patchTarget(`{"status":{"conditions":[{"type":"Resizable","status":"False","reason":"No","message":"","lastTransitionTime":"2026-01-31T12:00:00Z"}]}}`, "status"),
			[]string{byTargets, "status: all fields but scheduler"}},
		{"add a field to the status", []account{scheduler}, patchTarget(`{"status":{"moves":[]}}`, "status"), []string{byTargets}},
		{"apply a status", []account{admin}, applyTarget(t, "gang", 1, "status"), []string{byTargets, "status: all fields but scheduler"}},

		{"patch the scheduler's part", []account{scheduler, powerful}, patchTarget(`{"status":{"scheduler":{"workers":8,"message":null}}}`, "status"), nil},
		{"patch the scheduler's part", []account{controller, admin}, patchTarget(`{"status":{"scheduler":{"workers":8}}}`, "status"), []string{byTargets, ofScheduler}},
		{"patch the scheduler's part", []account{jane, agent}, patchTarget(`{"status":{"scheduler":{"workers":8}}}`, "status"), []string{byRBAC + "patch"}},
		{"patch the scheduler's message", []account{controller, admin}, patchTarget(`{"status":{"scheduler":{"message":"all is well"}}}`, "status"), []string{byTargets, ofScheduler}},
		{"remove the scheduler's part", []account{scheduler}, patchTarget(`{"status":{"scheduler":null}}`, "status"), nil},
		{"remove the scheduler's part", []account{controller}, setTarget(t, nil, "status", "scheduler"), []string{byTargets, ofScheduler}},
		{"write both parts", []account{powerful}, setTarget(t, both, "status"), nil},
		{"write both parts", []account{controller}, setTarget(t, both, "status"), []string{byTargets, ofScheduler}},
		{"write both parts", []account{admin, scheduler}, patchTarget(`{"status":{"workers":1,"scheduler":{"workers":8}}}`, "status"), []string{byTargets, "status: all fields but scheduler"}},

		{"a status beside the spec is dropped", []account{admin}, patchTarget(`{"status":{"workers":1,"scheduler":null}}`), nil},
		{"a spec beside the status is dropped", []account{scheduler}, patchTarget(`{"spec":{"workers":8},"status":{"scheduler":{"workers":8}}}`, "status"), nil},
		{"metadata", []account{admin}, patchTarget(`{"metadata":{"labels":{"a":"b"},"finalizers":["example.com/x"]}}`), nil},
		{"delete", []account{controller, admin}, deleteTarget, nil},
		{"delete", []account{jane, scheduler, agent}, deleteTarget, []string{byRBAC + "delete"}},
	} {
		for _, who := range test.who {
			t.Run(test.name+"/"+string(who), func(t *testing.T) {
				err := test.send(t.Context(), elasticTargets(t, as(t.Context(), t, who)), stored.DeepCopy())
				if len(test.want) > 0 {
					wantRefusal(t, err, test.want...)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// makePowerful makes the account of a program with all rights of the cluster, such as one that restores backups. It is there for all tests.
func makePowerful(t *testing.T) {
	t.Helper()
	c := client(t.Context(), t, admin)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: string(powerful)}}
	if _, err := c.CoreV1().ServiceAccounts(systemNamespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: string(powerful)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: string(powerful), Namespace: systemNamespace}},
	}
	if _, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	await(t, "the account may do all", func(context.Context) (bool, error) { return may(t, powerful, "resize vgpus"), nil })
}

// A user who views a namespace sees the targets in it, and writes none. The controller that takes the role into the cluster's
// role view is no part of this control plane: its label is compared, and the role is bound as it is.
func TestViewersSeeElasticTargets(t *testing.T) {
	storeTarget(t, "gang")
	c := client(t.Context(), t, admin)
	role, err := c.RbacV1().ClusterRoles().Get(t.Context(), "tandem-elastictargets-view", metav1.GetOptions{})
	must.OK(t, err)
	if role.Labels["rbac.authorization.k8s.io/aggregate-to-view"] != "true" {
		t.Errorf("the role is not taken into view: labels %v", role.Labels)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "ann"}},
	}
	if _, err := c.RbacV1().RoleBindings(team).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := cluster.Config("ann", nil)
	must.OK(t, err)
	all := elasticTargets(t, config)
	await(t, "the viewer sees the target", func(ctx context.Context) (bool, error) {
		list, err := all.List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 1, nil
	})
	wantRefusal(t, createTarget(t)(t.Context(), all, nil), byRBAC+"create")
}

// An editor of a namespace holds the sizes of its gangs by an annotation, and changes nothing else of a target.
func TestEditorsHoldElasticTargets(t *testing.T) {
	storeTarget(t, "gang")
	c := client(t.Context(), t, admin)
	role, err := c.RbacV1().ClusterRoles().Get(t.Context(), "tandem-elastictargets-hold", metav1.GetOptions{})
	must.OK(t, err)
	if role.Labels["rbac.authorization.k8s.io/aggregate-to-edit"] != "true" {
		t.Errorf("the role is not taken into edit: labels %v", role.Labels)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "holder"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "eve"}},
	}
	if _, err := c.RbacV1().RoleBindings(team).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := cluster.Config("eve", nil)
	must.OK(t, err)
	all := elasticTargets(t, config)
	patch := func(ctx context.Context, body string) error {
		_, err := all.Patch(ctx, "gang", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	await(t, "the editor pauses the gang", func(ctx context.Context) (bool, error) {
		return patch(ctx, `{"metadata":{"annotations":{"tandem-gpu.io/size":"paused"}}}`) == nil, nil
	})
	if err := patch(t.Context(), `{"spec":{"workers":3}}`); err == nil {
		t.Error("the editor changed the number of members")
	}
}

// leaving sets when a pod leaves, and returns the pod.
func leaving(p *corev1.Pod, raw string) *corev1.Pod {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationLeaving, raw)
	return p
}

// leaves returns a change that says when a pod leaves.
func leaves(raw string, subresources ...string) request {
	return patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationLeaving, raw), subresources...)
}

// The controller alone says when a pod leaves, and may change the time. A user who may change the pod may remove it.
func TestOnlyTheControllerSaysWhenPodsLeave(t *testing.T) {
	const soon, later = "2026-01-31T12:00:00Z", "2026-01-31T12:05:00Z"
	others := patch(types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`)
	remove := patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationLeaving))
	refused := []string{byLeaving, "metadata.annotations[tandem-gpu.io/leaving-at]: ", "leave it as it is or remove it", "tandem-gpu.io/elastic-workers"}
	plain := create(t.Context(), t, client(t.Context(), t, jane), plainPod())
	for kind, p := range map[string]*corev1.Pod{"a bound pod with vGPUs": createBound(t.Context(), t, genuine), "a pod without": plain} {
		for _, step := range []struct {
			name string
			who  []account
			send request
			want []string // nothing where it is accepted
			then string   // the annotation after the step
		}{
			{"set it", []account{jane, admin}, leaves(soon), refused, ""},
			{"set it empty", []account{jane}, leaves(""), refused, ""},
			{"set it in the status", []account{jane, admin}, leaves(soon, "status"), refused, ""},
			{"set it in the status", []account{scheduler}, leaves(soon, "status"), []string{byOneOfTwo}, ""},
			{"set it", []account{scheduler, agent}, leaves(soon), []string{byRBAC + "patch"}, ""},
			{"set it", []account{controller}, leaves(soon), nil, soon},
			{"change it", []account{jane, admin}, leaves(later), refused, soon},
			{"change it in the status", []account{scheduler}, leaves(later, "status"), []string{byOneOfTwo}, soon},
			{"say the same", []account{jane}, leaves(soon), nil, soon},
			{"change others", []account{jane}, others, nil, soon},
			{"write the status", []account{jane}, patch(types.StrategicMergePatchType, `{"status":{"message":"x"}}`, "status"), nil, soon},
			{"change it", []account{controller}, leaves(later), nil, later},
			{"remove it", []account{jane}, remove, nil, ""},
			{"set it again", []account{jane}, leaves(later), refused, ""},
			{"set it again", []account{controller}, leaves(later), nil, later},
			{"remove it", []account{controller}, remove, nil, ""},
		} {
			for _, who := range step.who {
				err := step.send(t.Context(), client(t.Context(), t, who), p)
				if len(step.want) > 0 {
					wantRefusal(t, err, step.want...)
				} else if err != nil {
					t.Errorf("%s, %s: %s: %v", kind, step.name, who, err)
				}
				if got := get(t.Context(), t, p).Annotations[v1alpha1.AnnotationLeaving]; got != step.then {
					t.Errorf("%s, %s: after the request of %s the pod leaves at %q, want %q", kind, step.name, who, got, step.then)
				}
			}
		}
	}
}

// The kubelet reports the status of a pod that leaves, and says itself of none that it leaves.
func TestKubeletOfPodsThatLeave(t *testing.T) {
	p := createBound(t.Context(), t, genuine)
	c := client(t.Context(), t, kubelet)
	wantRefusal(t, leaves("2026-01-31T12:00:00Z", "status")(t.Context(), c, p), byLeaving)
	must.OK(t, leaves("2026-01-31T12:00:00Z")(t.Context(), client(t.Context(), t, controller), p))
	if err := patch(types.StrategicMergePatchType, `{"status":{"phase":"Running"}}`, "status")(t.Context(), c, p); err != nil {
		t.Error(err)
	}
}

// No pod is created with the annotation, and no Binding brings it.
func TestNoPodStartsWithATimeToLeave(t *testing.T) {
	for _, who := range []account{jane, admin} {
		for _, p := range []*corev1.Pod{pod("leaves"), plainPod()} {
			_, err := client(t.Context(), t, who).CoreV1().Pods(team).Create(t.Context(), leaving(p, "2026-01-31T12:00:00Z"), dryRun)
			wantRefusal(t, err, byLeaving, "remove it and create the pod again")
		}
	}
	p := create(t.Context(), t, client(t.Context(), t, jane), pod("leaves"))
	b := binding(p, "")
	b.Annotations = map[string]string{v1alpha1.AnnotationLeaving: "2026-01-31T12:00:00Z"}
	for _, who := range []account{jane, scheduler} {
		err := client(t.Context(), t, who).CoreV1().Pods(team).Bind(t.Context(), b, metav1.CreateOptions{})
		wantRefusal(t, err, byBindingPolicy, "metadata.annotations[tandem-gpu.io/leaving-at]")
	}
}

// A pod that had the annotation before the policy was there stays usable.
func TestOldTimesToLeaveStay(t *testing.T) {
	p := createOld(t, leaving(pod("old-leaving"), "soon"), "tandem-leaving")
	c := client(t.Context(), t, jane)
	if err := patch(types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`)(t.Context(), c, p); err != nil {
		t.Error(err)
	}
	wantRefusal(t, leaves("later")(t.Context(), c, p), byLeaving)
}

// The controller may do what it does with pods and its lease: it marks a pod, evicts it, tells why in events, and takes its lease
// and no other. TestAccountsAreLimited asks the authorizer which further requests it may make and which not.
func TestControllerWorksUnderItsAccount(t *testing.T) {
	c := client(t.Context(), t, controller)
	p := createBound(t.Context(), t, genuine)
	if err := leaves(time.Now().UTC().Format(time.RFC3339))(t.Context(), c, p); err != nil {
		t.Errorf("say when the pod leaves: %v", err)
	}
	about := corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: team, Name: p.Name, UID: p.UID}
	legacy := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "leaves-", Namespace: team}, InvolvedObject: about, Type: corev1.EventTypeNormal, Reason: "Leaves",
	}
	if _, err := c.CoreV1().Events(team).Create(t.Context(), legacy, metav1.CreateOptions{}); err != nil {
		t.Errorf("create an event: %v", err)
	}
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "leaves-", Namespace: team}, Regarding: about, Type: corev1.EventTypeNormal, Reason: "Leaves",
		Action: "Evict", EventTime: metav1.NowMicro(), ReportingController: "tandem-gpu.io/controller", ReportingInstance: "test",
	}
	if _, err := c.EventsV1().Events(team).Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Errorf("create an event of events.k8s.io: %v", err)
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: team}}
	if err := c.PolicyV1().Evictions(team).Evict(t.Context(), eviction); err != nil {
		t.Errorf("evict the pod: %v", err)
	}
	if get(t.Context(), t, p).DeletionTimestamp == nil {
		t.Error("the pod that the controller has evicted does not end")
	}
	other := create(t.Context(), t, client(t.Context(), t, jane), pod("stays"))
	wantRefusal(t, c.CoreV1().Pods(team).Delete(t.Context(), other.Name, metav1.DeleteOptions{}), byRBAC+"delete")
	wantRefusal(t, c.CoreV1().Pods(team).Bind(t.Context(), binding(other, genuine), metav1.CreateOptions{}), byRBAC+"create")

	leases := c.CoordinationV1().Leases(systemNamespace)
	lease, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "tandem-controller"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create its lease: %v", err)
	}
	if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Errorf("renew its lease: %v", err)
	}
	if _, err := leases.Get(t.Context(), lease.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("read its lease: %v", err)
	}
	lease.Name = "tandem-scheduler"
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	wantRefusal(t, err, byRBAC+"update")
}

// Without the roles of its features the controller writes events, and conditions of GPUNodes, and evicts pods, only.
func TestControllerWithoutFeaturesOnlyReads(t *testing.T) {
	writes := [][]string{{"events"}, {"gpunodes/status"}, {"pods/eviction"}, {"vgpus"}} // the last marks the account, and no API has it
	var roles []string
	for _, object := range manifests(t) {
		if b, ok := object.(*rbacv1.ClusterRoleBinding); ok && b.Subjects[0].Name == string(controller) {
			roles = append(roles, b.RoleRef.Name)
		}
		role, ok := object.(*rbacv1.ClusterRole)
		if !ok || role.Name != "tandem-controller" {
			continue
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				if !slices.Contains([]string{"get", "list", "watch"}, verb) && !slices.ContainsFunc(writes, func(r []string) bool { return slices.Equal(r, rule.Resources) }) {
					t.Errorf("it may %s %v", verb, rule.Resources)
				}
			}
		}
	}
	slices.Sort(roles)
	if diff := cmp.Diff(slices.Concat([]string{"tandem-controller", "tandem-controller-elastic", "tandem-controller-elastic-servers", "tandem-controller-inference", "tandem-controller-notebooks"}, resizeRoles()), roles); diff != "" {
		t.Errorf("roles of the controller (-want +got):\n%s", diff)
	}
}

// The controller is as important as the scheduler, and as confined.
func TestControllerRunsLikeTheScheduler(t *testing.T) {
	deployments := map[string]*appsv1.Deployment{}
	for _, object := range manifests(t) {
		if d, ok := object.(*appsv1.Deployment); ok {
			deployments[d.Name] = d
		}
	}
	ours, theirs := deployments["tandem-controller"], deployments["tandem-scheduler"]
	if *ours.Spec.Replicas != *theirs.Spec.Replicas {
		t.Errorf("%d replicas, the scheduler has %d", *ours.Spec.Replicas, *theirs.Spec.Replicas)
	}
	a, b := ours.Spec.Template.Spec, theirs.Spec.Template.Spec
	if a.PriorityClassName != b.PriorityClassName || a.ServiceAccountName != string(controller) {
		t.Errorf("priority class %s, account %s", a.PriorityClassName, a.ServiceAccountName)
	}
	if diff := cmp.Diff(b.SecurityContext, a.SecurityContext); diff != "" {
		t.Errorf("the pod, the scheduler's (-), the controller's (+):\n%s", diff)
	}
	if diff := cmp.Diff(b.Containers[0].SecurityContext, a.Containers[0].SecurityContext); diff != "" {
		t.Errorf("the container, the scheduler's (-), the controller's (+):\n%s", diff)
	}
	apart := a.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm
	want := &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "tandem-controller"}}
	if diff := cmp.Diff(want, apart.LabelSelector); diff != "" || apart.TopologyKey != corev1.LabelHostname {
		t.Errorf("its replicas are kept apart by %s:\n%s", apart.TopologyKey, diff)
	}
	if !cmp.Equal(ours.Spec.Selector.MatchLabels, want.MatchLabels) || !cmp.Equal(ours.Spec.Template.Labels["app.kubernetes.io/name"], "tandem-controller") {
		t.Errorf("labels %v, selector %v", ours.Spec.Template.Labels, ours.Spec.Selector)
	}
}
