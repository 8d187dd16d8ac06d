package elasticity

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// Two gangs of one name and different sources, elastic or waiting, stop nobody: one of them gets the target.
func TestGangsOfOneName(t *testing.T) {
	pods, more := members(t, "train", 4, 2, 0), members(t, "xx", 4, 2, 4)
	for _, p := range more {
		p.Labels, p.OwnerReferences = map[string]string{groupLabel: "train"}, pods[0].OwnerReferences
	}
	w := newWorld(t, 8, append(pods, more...)...)
	w.gangs.sizes[podgroup.Ref{Source: podgroup.XK8s, Namespace: "ns", Name: "train"}] = []int{2, 4}
	w.pass(0)
	if w.target("train") == nil {
		t.Error("no target is made")
	}

	pods, more = rigid(t), members(t, "xx", 4, 0, 0)
	for _, p := range more {
		p.Labels = map[string]string{groupLabel: "rigid"}
		p.Spec.Priority = new(int32(5))
	}
	between := member("single", 0)
	between.Labels, between.Spec.Priority = nil, new(int32(3))
	newWorld(t, 8, append(append(pods, more...), between)...).pass(0)
}

// A gang whose members' devices are unknown keeps its target, and nobody is told to leave.
func TestUnreadableAssignments(t *testing.T) {
	for _, gpus := range []int{2, 8} {
		pods := members(t, "train", 8, 8, 0)
		for _, p := range pods {
			p.Annotations[v1alpha1.AnnotationAssignment] = "{"
		}
		w := newWorld(t, gpus, append(pods, members(t, "rigid", 4, 4, 0)...)...)
		must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
		w.pass(0)
		w.check("train", 8, "Invalid")
		w.same("notices", map[string]string{}, w.notices())
	}
}

// A change counts as a move although its status could not be written at once.
func TestMoveOfFailedStatus(t *testing.T) {
	w := shrinking(t)
	w.refuse = func(verb, _ string) error {
		if verb == "status" {
			return errors.New("no answer")
		}
		return nil
	}
	if w.try(0) == nil {
		t.Fatal("a status that cannot be written is no error")
	}
	w.refuse = func(string, string) error { return nil }
	w.pass(1)
	s := w.target("train").Status
	if len(s.Moves) != 1 || s.Since == nil || !s.Since.Time.Equal(noon) {
		t.Errorf("moves %v, since %v", s.Moves, s.Since)
	}
	w.pass(2)
	if got := w.target("train").Status.Moves; len(got) != 1 {
		t.Errorf("the move counts again: %v", got)
	}
}

// A target that could not be removed is removed in the next pass.
func TestRemovalIsTriedAgain(t *testing.T) {
	w := newWorld(t, 8)
	must.OK(t, w.objects.Create(t.Context(), targetOf("unknown", 2, 8, 2)))
	w.pass(0)
	w.refuse = func(verb, _ string) error {
		if verb == "delete" {
			return errors.New("no answer")
		}
		return nil
	}
	if w.try(600) == nil {
		t.Fatal("a target that cannot be removed is no error")
	}
	w.refuse = func(string, string) error { return nil }
	w.pass(610)
	if w.target("unknown") != nil {
		t.Error("the target is still there")
	}
}

// A gang that cannot be resized keeps its target while a member is missing.
func TestNotResizableKeepsItsTarget(t *testing.T) {
	pods := members(t, "train", 8, 8, 0)
	for _, p := range pods {
		p.OwnerReferences = owned("kubeflow.org/v1", "PyTorchJob", "train")
	}
	w := newWorld(t, 8, pods...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
	w.drop(pods[7])
	w.pass(0)
	w.check("train", 8, "NotResizable")
	w.same("notices", map[string]string{}, w.notices())
}

// While the members of a gang are evicted they are too few, and nothing is invalid: they come back, and no other gang grows into their GPUs, to give
// them back at once. A gang whose members have not been made yet keeps no GPUs from others, and its target says what is missing.
func TestTooFewMembers(t *testing.T) {
	for _, tc := range []struct {
		name    string
		evicted bool
		grows   int32
		reasons [2]string
	}{
		{"evicted", true, 2, [2]string{"NoRoom", "Starts"}},
		{"not made yet", false, 4, [2]string{"Idle", "MembersMissing"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pods, lost := members(t, "train", 4, 2, 0), members(t, "lost", 1, 0, 0)
			if tc.evicted {
				lost = members(t, "lost", 2, 2, 2)
				for _, p := range lost {
					p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: noon}, []string{"batch.kubernetes.io/job-tracking"}
				}
			}
			w := newWorld(t, 4, append(pods, lost...)...)
			must.OK(t, w.kube.Tracker().Add(jobOf("lost", 2)))
			w.gangs.sizes[ref("train")], w.gangs.sizes[ref("lost")] = []int{2, 4}, []int{2}
			w.gangs.problems = map[podgroup.Ref]*podgroup.Problem{ref("lost"): {Message: "0 of 2 members exist", Waits: true}}
			must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 4, 2)))
			must.OK(t, w.objects.Create(t.Context(), targetOf("lost", 2, 2, 2)))
			w.pass(0)
			w.check("train", tc.grows, tc.reasons[0])
			w.check("lost", 2, tc.reasons[1])
		})
	}
}

// A member whose notice could not be written has the whole notice once it is told.
func TestWholeNoticeAfterAFault(t *testing.T) {
	w := shrinking(t)
	w.kube.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		return w.at.Before(seconds(10)), nil, apierrors.NewTooManyRequests("later", 1)
	})
	if w.try(0) == nil {
		t.Error("no error")
	}
	w.pass(20)
	w.same("notices", leavers(at25), w.notices())
	w.same("evicted", []string(nil), w.evicted)
	w.pass(25)
	w.same("evicted", 4, len(w.evicted))
}
