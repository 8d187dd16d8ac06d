package deploy

import (
	"context"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

func TestSchedulerWritesWhatItLearned(t *testing.T) {
	all := profiles(t, as(t.Context(), t, scheduler))
	made := workload("learned-1", true)
	stored := store(t, scheduler, made)
	made.Status = learnedStatus()
	stored.Object["status"] = asObject(t, made).Object["status"]
	if _, err := all.UpdateStatus(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Errorf("update status: %v", err)
	}
	declared := store(t, admin, workload("bert", false))
	patch := []byte(`{"status":{"coRuns":3}}`)
	if _, err := all.Patch(t.Context(), declared.GetName(), "application/merge-patch+json", patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Errorf("patch the status of a declared profile: %v", err)
	}
	remove := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	if err := all.Delete(t.Context(), "learned-1", remove); err != nil {
		t.Errorf("remove its own profile: %v", err)
	}
}

func TestOnlyTheSchedulerWritesLearnedValues(t *testing.T) {
	ctx := t.Context()
	learned, declared := store(t, scheduler, workload("learned-1", true)), store(t, admin, workload("bert", false))
	relabelled := func(object *unstructured.Unstructured, labels map[string]string) *unstructured.Unstructured {
		changed := object.DeepCopy()
		changed.SetLabels(labels)
		return changed
	}
	const policy = "ValidatingAdmissionPolicy 'tandem-workloadprofiles'"
	mark := map[string]string{v1alpha1.LabelLearned: "true"}
	tests := []struct {
		name string
		who  account
		send func(dynamic.ResourceInterface) error
		want []string
	}{
		{"status by an administrator", admin, func(all dynamic.ResourceInterface) error {
			_, err := all.UpdateStatus(ctx, declared, metav1.UpdateOptions{})
			return err
		}, []string{policy, "declare what you know in the spec"}},
		{"status patch by an administrator", admin, func(all dynamic.ResourceInterface) error {
			_, err := all.Patch(ctx, "learned-1", "application/merge-patch+json", []byte(`{"status":{"coRuns":9}}`), metav1.PatchOptions{}, "status")
			return err
		}, []string{policy}},
		{"a profile that claims to be learned", admin, func(all dynamic.ResourceInterface) error {
			_, err := all.Create(ctx, asObject(t, workload("forged", true)), dryRun)
			return err
		}, []string{policy, "tandem-gpu.io/learned", "create yours without it"}},
		{"any value of the label", admin, func(all dynamic.ResourceInterface) error {
			_, err := all.Update(ctx, relabelled(declared, map[string]string{v1alpha1.LabelLearned: ""}), metav1.UpdateOptions{})
			return err
		}, []string{policy, "leave it as it is"}},
		{"the label taken away", admin, func(all dynamic.ResourceInterface) error {
			_, err := all.Update(ctx, relabelled(learned, nil), metav1.UpdateOptions{})
			return err
		}, []string{policy, "leave it as it is"}},
		{"the scheduler removes a user's", scheduler, func(all dynamic.ResourceInterface) error {
			return all.Delete(ctx, "bert", metav1.DeleteOptions{})
		}, []string{policy, "only WorkloadProfiles with the label"}},
		{"the scheduler makes one without the label", scheduler, func(all dynamic.ResourceInterface) error {
			_, err := all.Create(ctx, asObject(t, workload("unmarked", false)), dryRun)
			return err
		}, []string{policy}},
		{"the scheduler makes a user's its own", scheduler, func(all dynamic.ResourceInterface) error {
			_, err := all.Update(ctx, relabelled(declared, mark), metav1.UpdateOptions{})
			return err
		}, []string{byRBAC + "update"}},
		{"the agent", agent, func(all dynamic.ResourceInterface) error {
			_, err := all.UpdateStatus(ctx, learned, metav1.UpdateOptions{})
			return err
		}, []string{byRBAC + "update"}},
		{"a user without rights", jane, func(all dynamic.ResourceInterface) error {
			_, err := all.Create(ctx, asObject(t, workload("mine", false)), dryRun)
			return err
		}, []string{byRBAC + "create"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wantRefusal(t, test.send(profiles(t, as(ctx, t, test.who))), test.want...)
		})
	}
	// A status in an object that is created or updated is dropped by the API server.
	forged := workload("quiet", false)
	forged.Status = learnedStatus()
	got := store(t, admin, forged)
	if _, found := got.Object["status"]; found {
		t.Errorf("a new profile has the status %v", got.Object["status"])
	}
}

// A program with all rights of the cluster, such as one that restores backups, counts as the scheduler by them. It is an
// administrator nevertheless, and is not bound to the profiles that the scheduler made.
func TestAccountsWithAllRightsWriteAllProfiles(t *testing.T) {
	ctx := t.Context()
	makePowerful(t)
	all := profiles(t, as(ctx, t, powerful))
	dry := []string{metav1.DryRunAll}
	for _, made := range []struct {
		who account
		p   *v1alpha1.WorkloadProfile
	}{{admin, workload("bert", false)}, {scheduler, workload("learned-1", true)}} {
		name := made.p.Name
		fresh := made.p.DeepCopy()
		fresh.Name += "-2"
		stored := store(t, made.who, made.p)
		stored.Object["spec"] = declared(map[string]any{"model": "*", "memory": "8Gi"}, nil)
		if _, err := all.Create(ctx, asObject(t, fresh), dryRun); err != nil {
			t.Errorf("create a profile such as %s: %v", name, err)
		}
		if _, err := all.Update(ctx, stored, metav1.UpdateOptions{DryRun: dry}); err != nil {
			t.Errorf("change %s: %v", name, err)
		}
		if _, err := all.Patch(ctx, name, "application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: dry}); err != nil {
			t.Errorf("label %s: %v", name, err)
		}
		if err := all.Delete(ctx, name, metav1.DeleteOptions{DryRun: dry}); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}
	}
}

// A user who edits a namespace declares profiles in it, and removes learned ones. The controller that takes the role
// into the cluster's role edit is no part of this control plane: its label is compared, and the role is bound as it is.
func TestEditorsDeclareProfiles(t *testing.T) {
	ctx := t.Context()
	role, err := client(ctx, t, admin).RbacV1().ClusterRoles().Get(ctx, "tandem-workloadprofiles-edit", metav1.GetOptions{})
	must.OK(t, err)
	if role.Labels["rbac.authorization.k8s.io/aggregate-to-edit"] != "true" {
		t.Errorf("the role is not taken into edit: labels %v", role.Labels)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "editor"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "joe"}},
	}
	if _, err := client(ctx, t, admin).RbacV1().RoleBindings(team).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := cluster.Config("joe", nil)
	must.OK(t, err)
	all := profiles(t, config)
	// The authorizer learns of the binding a moment later.
	err = wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		_, err := all.Create(ctx, asObject(t, workload("mine", false)), dryRun)
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("an editor cannot declare a profile: %v", err)
	}
	learned := store(t, scheduler, workload("learned-2", true))
	change := learned.DeepCopy()
	change.Object["spec"] = declared(map[string]any{"model": "*", "memory": "8Gi"}, nil)
	if _, err := all.Update(ctx, change, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("declare something in a learned profile: %v", err)
	}
	if err := all.Delete(ctx, "learned-2", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("remove a learned profile: %v", err)
	}
	_, err = all.UpdateStatus(ctx, learned, metav1.UpdateOptions{})
	wantRefusal(t, err, "forbidden")
}
