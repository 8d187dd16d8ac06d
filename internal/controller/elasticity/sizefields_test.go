package elasticity

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

var jobs = batchv1.SchemeGroupVersion.WithResource("jobs")

// newFieldsWorld returns a world of the Job train, whose gang is resized by its fields. They say size.
func newFieldsWorld(t *testing.T, gpus, size int, pods ...*v1.Pod) *world {
	t.Helper()
	w := newWorld(t, gpus, pods...)
	w.gangs.fields = true
	job := jobOf("train", int32(size))
	job.TypeMeta = metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}
	job.Generation = 1
	job.Spec.PodFailurePolicy = nil
	job.Spec.Completions, job.Spec.CompletionMode = job.Spec.Parallelism, new(batchv1.IndexedCompletion)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
	must.OK(t, err)
	must.OK(t, w.dynamic.Tracker().Create(jobs, &unstructured.Unstructured{Object: object}, "ns"))
	w.dynamic.PrependReactor("patch", "jobs", w.patch)
	return w
}

// patch does what the API server does with a patch: a dry run changes nothing, a change makes a new generation, and a test that
// fails is code 422.
func (w *world) patch(action k8stesting.Action) (bool, runtime.Object, error) {
	patch := action.(k8stesting.PatchActionImpl)
	tried := len(patch.PatchOptions.DryRun) > 0
	if err := w.refuse(map[bool]string{true: "try", false: "patch"}[tried], patch.Name); err != nil {
		return true, nil, err
	}
	before, err := w.dynamic.Tracker().Get(jobs, "ns", patch.Name)
	must.OK(w, err)
	_, object, err := k8stesting.ObjectReaction(w.dynamic.Tracker())(action)
	if err != nil {
		return true, nil, apierrors.NewInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), patch.Name, nil)
	}
	if tried {
		return true, object, w.dynamic.Tracker().Update(jobs, before, "ns")
	}
	now := object.(*unstructured.Unstructured)
	now.SetGeneration(now.GetGeneration() + 1)
	return true, now, w.dynamic.Tracker().Update(jobs, now, "ns")
}

// edit changes the Job train as a user does.
func (w *world) edit(change func(*unstructured.Unstructured)) {
	w.Helper()
	object, err := w.dynamic.Tracker().Get(jobs, "ns", "train")
	must.OK(w, err)
	now := object.(*unstructured.Unstructured).DeepCopy()
	change(now)
	now.SetGeneration(now.GetGeneration() + 1)
	must.OK(w, w.dynamic.Tracker().Update(jobs, now, "ns"))
}

// fields compares both fields of the Job train.
func (w *world) fields(want int64) {
	w.Helper()
	object, err := w.dynamic.Tracker().Get(jobs, "ns", "train")
	must.OK(w, err)
	spec := object.(*unstructured.Unstructured).Object["spec"].(map[string]any)
	if spec["parallelism"] != want || spec["completions"] != want {
		w.Errorf("the Job has %v of %v, want %d", spec["parallelism"], spec["completions"], want)
	}
}

// resizable compares the condition Resizable.
func (w *world) resizable(reason, says string) {
	w.Helper()
	c := meta.FindStatusCondition(w.target("train").Status.Conditions, v1alpha1.ConditionResizable)
	if c == nil || c.Reason != reason || !strings.Contains(c.Message, says) || (c.Status == metav1.ConditionTrue) != (reason == reasonSizeFields) {
		w.Errorf("Resizable should be %s, %q: %+v", reason, says, c)
	}
}

// A gang grows beyond the members that exist: its owner makes them.
func TestFieldsGrow(t *testing.T) {
	w := newFieldsWorld(t, 16, 2, members(t, "train", 2, 2, 0)...)
	w.pass(0)
	w.check("train", 8, "Idle")
	w.fields(8)
	w.resizable(reasonSizeFields, "spec.parallelism of Job.batch train")
	if c := meta.FindStatusCondition(w.target("train").Status.Conditions, v1alpha1.ConditionAdmitted); c.Message != "2 members have a node: Job.batch train has made 2" {
		t.Errorf("Admitted: %s", c.Message)
	}
	w.put(members(t, "train", 8, 8, 0)...)
	w.pass(10)
	w.check("train", 8, "AtMost")
	w.fields(8)
}

// A gang that shrinks gets its target first, then its members the notice, and then its owner the field. Nobody is evicted.
func TestFieldsShrink(t *testing.T) {
	pods := members(t, "train", 8, 8, 0)
	w := newFieldsWorld(t, 8, 8, append(pods, rigid(t)...)...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
	w.pass(0)
	w.check("train", 4, "ForWaiting")
	w.same("notices", leavers(at5), w.notices())
	w.fields(8)
	w.pass(4)
	w.fields(8)
	w.pass(5)
	w.fields(4)
	w.same("evicted", []string(nil), w.evicted)
	w.drop(pods[4:]...)
	w.pass(6)
	w.same("notices", map[string]string{}, w.notices())
	w.fields(4)
}

// The owner deletes the members with the highest numbers, also where one of the first ones does not run.
func TestFieldsLeaversByNumber(t *testing.T) {
	pods := members(t, "train", 8, 8, 0)
	waits := member("train", 1)
	pods[1] = waits
	w := newFieldsWorld(t, 8, 8, append(pods, members(t, "rigid", 5, 0, 0)...)...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
	w.pass(0)
	w.same("notices", leavers(at5), w.notices())
	w.check("train", 4, "ForWaiting")
}

// Members that the field no longer allows, and that have not ended, would count as failed if the field allowed them again.
func TestFieldsGrowAfterTheEnd(t *testing.T) {
	pods := members(t, "train", 8, 8, 0)
	leaving(pods[7])
	failed := pods[6]
	failed.Status.Phase, failed.Finalizers = v1.PodFailed, []string{"batch.kubernetes.io/job-tracking"}
	w := newFieldsWorld(t, 16, 4, append(pods[:4:4], failed, pods[7])...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 4)))
	w.pass(0)
	w.check("train", 8, "Idle")
	w.fields(4)
	w.drop(pods[7])
	w.pass(10)
	w.fields(4)
	failed.Finalizers = nil
	w.put(failed)
	w.pass(20)
	w.fields(8)
}

// The controller knows that the API server refuses a size before it tells anybody. The target stays, and the controller asks
// again when the object changes, or when a user deletes the target; a new process knows it too.
func TestFieldsRefused(t *testing.T) {
	w := newFieldsWorld(t, 8, 8, append(members(t, "train", 8, 8, 0), rigid(t)...)...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
	tries := 0
	w.refuse = func(verb, _ string) error {
		if verb == "try" {
			tries++
			return apierrors.NewForbidden(jobs.GroupResource(), "train", errors.New("field is immutable"))
		}
		return nil
	}
	for at := range 3 {
		w.pass(10 * at)
		w.check("train", 8, reasonFixed)
		w.resizable("ChangeRefused", "the API server does not let spec.parallelism of Job.batch train change from 8 to 4: ")
		w.resizable("ChangeRefused", "field is immutable")
	}
	w.start()
	w.pass(30)
	w.check("train", 8, reasonFixed)
	w.same("tries", 1, tries)
	w.same("notices", map[string]string{}, w.notices())
	w.fields(8)

	w.refuse = func(string, string) error { return nil }
	w.edit(func(*unstructured.Unstructured) {})
	w.pass(40)
	w.check("train", 4, "ForWaiting")
}

// For want of a right the condition says which one it is and who has it. The controller asks again within a minute, although the object
// stays as it is.
func TestFieldsNotAllowed(t *testing.T) {
	w := newFieldsWorld(t, 8, 8, append(members(t, "train", 8, 8, 0), rigid(t)...)...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
	tries := 0
	w.refuse = func(verb, _ string) error {
		if verb == "try" {
			tries++
			return apierrors.NewForbidden(jobs.GroupResource(), "train", errors.New(`User "tandem" cannot patch resource "jobs" in API group "batch" in the namespace "ns"`))
		}
		return nil
	}
	for _, at := range []int{0, 10, 59} {
		w.pass(at)
		w.check("train", 8, reasonFixed)
		w.resizable("NotAllowed", "no right to patch jobs.batch in the namespace ns, and so cannot change spec.parallelism of Job.batch train (")
		w.resizable("NotAllowed", ": bind the ClusterRole tandem-controller-resize-jobs to its account")
	}
	w.same("tries", 1, tries)
	w.same("notices", map[string]string{}, w.notices())
	w.refuse = func(string, string) error { return nil }
	w.pass(60)
	w.check("train", 4, "ForWaiting")
}

// A refusal that comes only with the write takes the target back.
func TestFieldsRefusedLate(t *testing.T) {
	w := newFieldsWorld(t, 16, 2, members(t, "train", 2, 2, 0)...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 2)))
	w.refuse = func(verb, _ string) error {
		if verb == "patch" {
			return apierrors.NewInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), "train", nil)
		}
		return nil
	}
	w.pass(0)
	w.check("train", 8, "Idle")
	w.pass(10)
	w.check("train", 2, reasonFixed)
	w.resizable("ChangeRefused", "from 2 to 8")
	w.fields(2)
}

// Somebody else who changes the number at the same time is no refusal: the next pass goes by the new number.
func TestFieldsChangedMeanwhile(t *testing.T) {
	w := newFieldsWorld(t, 16, 2, members(t, "train", 2, 2, 0)...)
	once := true
	w.refuse = func(verb, _ string) error {
		if verb == "patch" && once {
			once = false
			w.edit(func(job *unstructured.Unstructured) {
				spec := job.Object["spec"].(map[string]any)
				spec["parallelism"], spec["completions"] = int64(4), int64(4)
			})
		}
		return nil
	}
	w.pass(0)
	w.fields(4)
	w.resizable(reasonSizeFields, "")
	if r := w.memory[ref("train")].size.Refusal(); r != nil {
		t.Errorf("it counts as refused: %+v", r)
	}
	w.pass(10)
	w.fields(8)
}

// An owner whose controller does nothing gets its number back, and is left alone.
func TestFieldsNotFollowed(t *testing.T) {
	w := newFieldsWorld(t, 16, 2, members(t, "train", 2, 2, 0)...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 2)))
	w.fraction = 700 * time.Millisecond
	w.pass(0)
	w.fields(8)
	w.fraction = 600 * time.Millisecond // of the change 119.9 s ago the status says, in whole seconds, that it was more than 120 s ago
	w.pass(120)
	w.fields(8)
	w.resizable(reasonSizeFields, "")
	w.check("train", 8, "Idle")
	for at := range 3 {
		w.pass(121 + 10*at)
		w.fields(2)
		w.resizable(reasonNotFollowed, "from 2 to 8 members, and its controller did not follow within 2m1s: the number ")
	}
	w.check("train", 2, reasonFixed)
	w.start()
	w.pass(1000)
	w.fields(2)
	must.OK(t, w.objects.Delete(t.Context(), w.target("train")))
	w.pass(1010)
	w.check("train", 8, "Idle")
	w.pass(1020)
	w.check("train", 8, "Idle")
	w.fields(8)
}

// The field grows some time after the target where a member is still ending. The owner has its two minutes from then on.
func TestFieldsNotFollowedAfterALateWrite(t *testing.T) {
	pods := members(t, "train", 3, 2, 0)
	pods[2].DeletionTimestamp, pods[2].Finalizers = &metav1.Time{Time: noon}, []string{"x"}
	w := newFieldsWorld(t, 16, 2, pods...)
	w.pass(0)
	w.fields(2)
	w.drop(pods[2])
	w.pass(30)
	w.fields(8)
	w.pass(140)
	w.fields(8)
	w.resizable(reasonSizeFields, "")
	w.pass(150)
	w.fields(2)
	w.resizable(reasonNotFollowed, "from 2 to 8 members, and its controller did not follow within 2m0s: the number goes back")
}

// The API server refuses to put the number back, or somebody changes the object at that moment: the controller tries again, and the condition says so.
func TestFieldsNotPutBackAtOnce(t *testing.T) {
	webhook := apierrors.NewForbidden(jobs.GroupResource(), "train", errors.New("admission webhook says no"))
	for name, test := range map[string]struct {
		fails error
		says  string
		again int
	}{
		"refused":       {webhook, "the number is to go back, which the controller tries each minute, and the API server does not let spec.parallelism of Job.batch train change from 8 to 2", 180},
		"changed first": {apierrors.NewConflict(jobs.GroupResource(), "train", errors.New("the object has been modified")), "the number goes back", 130},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFieldsWorld(t, 16, 2, members(t, "train", 2, 2, 0)...)
			w.pass(0)
			w.fields(8)
			w.refuse = func(verb, _ string) error {
				if verb == "patch" {
					return test.fails
				}
				return nil
			}
			w.pass(120)
			w.refuse = func(string, string) error { return nil }
			w.fields(8)
			for at := 130; at < test.again; at += 10 {
				w.pass(at)
				w.resizable(reasonNotFollowed, test.says)
				w.fields(8)
			}
			w.pass(test.again)
			w.fields(2)
			w.pass(test.again + 10)
			w.resizable(reasonNotFollowed, "the number went back")
		})
	}
}

// The controller tries again after a while: the obstacle that kept the owner from following may have ended.
func TestFieldsNotFollowedAreTriedAgain(t *testing.T) {
	w := newFieldsWorld(t, 16, 2, members(t, "train", 2, 2, 0)...)
	for _, step := range []struct {
		at   int
		want int64
	}{{0, 8}, {120, 2}, {130, 2}, {1919, 2}, {1920, 8}, {2040, 2}, {2050, 2}, {3839, 2}, {3840, 8}} {
		if step.at == 1919 {
			w.start()
		}
		w.pass(step.at)
		w.fields(step.want)
	}
}

// failed returns pods that members left when they failed.
func failed(pods ...*v1.Pod) (ended []*v1.Pod) {
	for _, pod := range pods {
		p := pod.DeepCopy()
		p.Name, p.UID, p.Status.Phase = p.Name+"-old", p.UID+"-old", v1.PodFailed
		ended = append(ended, p)
	}
	return ended
}

// Pods that failed before a change say nothing of it.
func TestFieldsFollowedBesideFailedPods(t *testing.T) {
	t.Run("an owner that follows", func(t *testing.T) {
		pods := members(t, "train", 8, 8, 0)
		w := newFieldsWorld(t, 8, 8, slices.Concat(pods, failed(pods...), rigid(t))...)
		must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
		w.pass(0)
		w.pass(5)
		w.fields(4)
		w.drop(pods[4:]...)
		w.put(members(t, "rigid", 4, 4, 4)...)
		for _, at := range []int{6, 60, 125, 135, 600} {
			w.pass(at)
			w.fields(4)
			w.resizable(reasonSizeFields, "")
		}
	})
	t.Run("one that does not", func(t *testing.T) {
		pods := members(t, "train", 2, 2, 0)
		w := newFieldsWorld(t, 16, 2, append(pods, failed(pods[0])...)...)
		w.pass(0)
		w.fields(8)
		for at := 120; at < 1900; at += 10 {
			w.pass(at)
			w.fields(2)
			w.resizable(reasonNotFollowed, "")
		}
	})
	t.Run("one that does not, and members of a larger size had failed", func(t *testing.T) {
		pods := members(t, "train", 4, 2, 0)
		w := newFieldsWorld(t, 16, 2, append(pods[:2], failed(pods[2:]...)...)...)
		w.pass(0)
		w.fields(8)
		w.pass(120)
		w.fields(2)
		w.resizable(reasonNotFollowed, "")
	})
	t.Run("one whose new members fail at once", func(t *testing.T) {
		pods := members(t, "train", 3, 2, 0)
		w := newFieldsWorld(t, 16, 2, pods[:2]...)
		w.pass(0)
		w.fields(8)
		w.put(failed(pods[2])...)
		w.pass(120)
		w.resizable(reasonSizeFields, "")
	})
}

// A change to fewer members that the owner does not follow goes back too, also where a member is missing meanwhile, and where the controller restarts.
func TestFieldsShrinkNotFollowed(t *testing.T) {
	for name, test := range map[string]struct{ missing, restarts bool }{"alone": {}, "a member ends": {missing: true}, "a restart": {restarts: true}} {
		t.Run(name, func(t *testing.T) {
			pods := members(t, "train", 8, 8, 0)
			if test.missing {
				pods[3].DeletionTimestamp, pods[3].Finalizers = &metav1.Time{Time: noon}, []string{"x"}
			}
			w := newFieldsWorld(t, 8, 8, append(pods, rigid(t)...)...)
			must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
			w.pass(0)
			w.pass(5)
			w.fields(4)
			if test.restarts {
				w.start()
				w.pass(30)
			}
			w.pass(100)
			w.fields(4)
			w.pass(200)
			w.fields(8)
			w.resizable(reasonNotFollowed, "changed from 8 to 4 members")
			w.pass(210)
			w.same("notices", map[string]string{}, w.notices())
		})
	}
}

// A refusal is of one object. Another one of its name is tried.
func TestFieldsRefusalOfAnotherObject(t *testing.T) {
	for name, restarts := range map[string]bool{"at once": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			pods := members(t, "train", 8, 8, 0)
			w := newFieldsWorld(t, 8, 8, append(pods, rigid(t)...)...)
			must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
			w.refuse = func(verb, _ string) error {
				if verb == "try" {
					return apierrors.NewForbidden(jobs.GroupResource(), "train", errors.New("field is immutable"))
				}
				return nil
			}
			w.pass(0)
			w.resizable("ChangeRefused", "")
			w.refuse = func(string, string) error { return nil }
			w.drop(pods...)
			w.pass(10)
			w.edit(func(job *unstructured.Unstructured) {
				job.SetUID("uid-anew")
				job.SetGeneration(job.GetGeneration() - 1) // which edit counts up: the generation is that of the other object
				job.SetCreationTimestamp(metav1.NewTime(seconds(20)))
			})
			for i, p := range members(t, "train", 8, 0, 0) {
				p.UID += "-anew"
				p.OwnerReferences[0].UID = "uid-anew"
				place(t, p, "n1", i)
				w.put(p)
			}
			if restarts {
				w.start()
			}
			w.pass(30)
			w.check("train", 4, "ForWaiting")
		})
	}
}

// An owner that has made some of the members is slow, and a quota may keep it from the others: the target goes back to what runs.
func TestFieldsFollowedInPart(t *testing.T) {
	w := newFieldsWorld(t, 16, 2, members(t, "train", 2, 2, 0)...)
	w.pass(0)
	w.fields(8)
	w.put(members(t, "train", 5, 5, 0)...)
	w.pass(100)
	w.check("train", 8, "AtMost")
	w.pass(200)
	w.check("train", 4, reasonNotAdmitted)
	w.resizable(reasonSizeFields, "")
}

// Owners that the controller must not change are left alone.
func TestFieldsRefusals(t *testing.T) {
	set := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(job *unstructured.Unstructured) { _ = unstructured.SetNestedField(job.Object, value, path...) }
	}
	for name, test := range map[string]struct {
		edit         func(*unstructured.Unstructured)
		reason, says string
	}{
		"Kueue":      {set("q", "metadata", "labels", "kueue.x-k8s.io/queue-name"), reasonOwnSize, "kueue.x-k8s.io/queue-name: Kueue"},
		"MultiKueue": {set("kueue.x-k8s.io/multikueue", "spec", "managedBy"), reasonOwnSize, "kueue.x-k8s.io/multikueue manages it"},
		"suspended":  {set(true, "spec", "suspend"), "OwnerIsSuspended", "spec.suspend is set"},
		"stopped": {func(job *unstructured.Unstructured) {
			set(int64(0), "spec", "parallelism")(job)
			set(int64(0), "spec", "completions")(job)
		}, "OwnerIsSuspended", "spec.parallelism is 0"},
		"no index": {set("NonIndexed", "spec", "completionMode"), "OwnerIsNotElastic", "is not Indexed"},
		"unlike":   {set(int64(9), "spec", "completions"), "OwnerIsNotElastic", "spec.parallelism is 8, and spec.completions is 9: set spec.completions equal to spec.parallelism"},
		"no completions": {func(job *unstructured.Unstructured) {
			unstructured.RemoveNestedField(job.Object, "spec", "completions")
		}, "OwnerIsNotElastic",
			"spec.completions is missing: set spec.completions equal to spec.parallelism"},
		"an owner of somebody else": {func(job *unstructured.Unstructured) {
			unstructured.RemoveNestedField(job.Object, "spec", "template", "metadata")
		}, "OwnerNotGiven", "Job.batch train has no template of pods with the label tandem-gpu.io/gang: train and the annotation"},
		"an owner above": {func(job *unstructured.Unstructured) { job.SetOwnerReferences(owned("example.com/v1", "Sweep", "all")) },
			reasonOwnSize, "Sweep.example.com all owns Job.batch train"},
		"another Job": {func(job *unstructured.Unstructured) { job.SetUID("other") }, reasonOwnerMissing, "another one"},
	} {
		w := newFieldsWorld(t, 8, 8, append(members(t, "train", 8, 8, 0), rigid(t)...)...)
		must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
		w.edit(test.edit)
		w.pass(0)
		t.Log(name)
		w.check("train", 8, reasonFixed)
		w.resizable(test.reason, test.says)
		w.same("notices", map[string]string{}, w.notices())
	}
}

// An autoscaler owns the number, and the condition names it.
func TestFieldsAutoscaler(t *testing.T) {
	w := newFieldsWorld(t, 8, 8, append(members(t, "train", 8, 8, 0), rigid(t)...)...)
	h := autoscaler("ns", "Job", "train")
	h.OwnerReferences = owned("keda.sh/v1alpha1", "ScaledObject", "scaler")
	must.OK(t, w.options.Informers.Autoscaling().V2().HorizontalPodAutoscalers().Informer().GetStore().Add(h))
	w.pass(0)
	w.resizable(reasonOwnSize, "HorizontalPodAutoscaler hpa of ScaledObject scaler")
}

// A request about one owner that fails is an error of the pass, and the gang keeps its size. The others are served.
func TestFieldsUnreadable(t *testing.T) {
	w := newFieldsWorld(t, 8, 8, append(members(t, "train", 8, 8, 0), rigid(t)...)...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
	w.dynamic.PrependReactor("get", "jobs", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(errors.New("no answer"))
	})
	if err := w.try(0); err == nil || !strings.HasPrefix(err.Error(), "gang ns/train: read Job.batch train: ") {
		t.Errorf("%v", err)
	}
	w.check("train", 8, "Invalid")
	w.same("notices", map[string]string{}, w.notices())
}

// Members that were told to leave stay told while the owner cannot be read.
func TestNoticesStayWhileTheOwnerIsUnread(t *testing.T) {
	w := newFieldsWorld(t, 8, 8, append(members(t, "train", 8, 8, 0), rigid(t)...)...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
	w.pass(0)
	told := w.notices()
	if len(told) == 0 {
		t.Fatal("nobody is told to leave")
	}
	w.dynamic.PrependReactor("get", "jobs", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewTooManyRequests("later", 1)
	})
	if err := w.try(2); err == nil {
		t.Error("no error")
	}
	w.same("notices", told, w.notices())
	w.resizable(reasonOwnerUnread, "read Job.batch train: ")
}

// The pods of a Deployment leave in the order of an annotation, which they get and lose with the notice.
func TestFieldsDeletionCost(t *testing.T) {
	pods := members(t, "train", 4, 4, 0)
	w := newFieldsWorld(t, 6, 8, append(pods, rigid(t)...)...)
	w.gangs.sizes[ref("train")] = []int{2, 4}
	for _, p := range pods {
		p.OwnerReferences = owned("apps/v1", "ReplicaSet", "set")
		p.Labels = maps.Clone(p.Labels)
		delete(p.Labels, batchv1.JobCompletionIndexAnnotation)
	}
	w.put(pods...)
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": map[string]any{
			"namespace": "ns", "name": "set", "uid": "uid-set", "labels": map[string]any{v1alpha1.LabelGang: "train"},
		},
		"spec": map[string]any{"replicas": int64(4)},
	}}
	must.OK(t, w.dynamic.Tracker().Add(set))
	w.dynamic.PrependReactor("patch", "replicasets", func(action k8stesting.Action) (bool, runtime.Object, error) {
		return len(action.(k8stesting.PatchActionImpl).PatchOptions.DryRun) > 0, set, nil
	})
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 4, 4)))
	w.pass(0)
	w.same("notices", map[string]string{"train-2": at5, "train-3": at5}, w.notices())
	costs := func() string {
		said := ""
		for i := range 4 {
			said += fmt.Sprintf("%q ", w.pod(fmt.Sprint("train-", i)).Annotations["controller.kubernetes.io/pod-deletion-cost"])
		}
		return said
	}
	w.same("costs", `"" "" "-1000000" "-1000000" `, costs())
	w.drop(rigid(t)...)
	w.pass(3)
	w.same("costs", `"" "" "" "" `, costs())
	w.put(rigid(t)...)
	w.pass(20)
	w.same("costs", `"" "" "-1000000" "-1000000" `, costs())
	w.hold("paused") // its owner is not read then
	w.pass(22)
	w.same("costs", `"" "" "" "" `, costs())
}

// Somebody who writes the field back sees two changes, then none for half an hour, and the condition and one event say so. Another process knows it.
func TestFieldsChangedBack(t *testing.T) {
	w := newFieldsWorld(t, 16, 2, members(t, "train", 2, 2, 0)...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 2)))
	back := func(job *unstructured.Unstructured) {
		spec := job.Object["spec"].(map[string]any)
		spec["parallelism"], spec["completions"] = int64(2), int64(2)
	}
	for _, at := range []int{0, 10} {
		w.pass(at)
		w.fields(8)
		w.edit(back)
	}
	w.events()
	const says = "Job.batch train was changed from 2 to 8 members, and somebody changed that again soon, 2 times in a row: its managedFields say who writes spec.parallelism; " +
		"stop one of the two. The controller tries again at 12:30 UTC, or once the ElasticTarget is deleted"
	for _, at := range []int{20, 30, 1000, 1819} {
		w.pass(at)
		w.fields(2)
		w.check("train", 2, reasonFixed)
		w.resizable(reasonOtherWriter, says)
		if at == 1000 {
			w.start()
		}
	}
	w.same("events", []string{"Warning AnotherWriter leaves its size alone: " + says, "Normal ElasticShrink shrinks from 8 to 2 members: " + says}, w.events())
	w.pass(1820)
	w.fields(8)
	w.edit(back)
	w.pass(1830)
	w.resizable(reasonOtherWriter, "3 times in a row")
}

// The size could not change for another reason when somebody wrote the field back: another process leaves it alone for as long as this one would have.
func TestFieldsChangedBackWhileSuspended(t *testing.T) {
	w := newFieldsWorld(t, 16, 2, members(t, "train", 2, 2, 0)...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 2)))
	back := func(suspend bool) func(job *unstructured.Unstructured) {
		return func(job *unstructured.Unstructured) {
			spec := job.Object["spec"].(map[string]any)
			spec["parallelism"], spec["completions"], spec["suspend"] = int64(2), int64(2), suspend
		}
	}
	w.pass(0)
	w.edit(back(false))
	w.pass(10)
	w.edit(back(true))
	w.pass(20)
	w.resizable("OwnerIsSuspended", "")
	w.edit(back(false))
	w.pass(600)
	w.resizable(reasonOtherWriter, "tries again at 12:40 UTC")
	w.start()
	w.pass(2390)
	w.fields(2)
	w.pass(2400)
	w.fields(8)
}
