package podgroup

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tandem-gpu/tandem/test/must"
)

// made returns a member that a controller has made.
func made(p *v1.Pod, kind, name, uid string) *v1.Pod {
	yes, version := true, "batch/v1"
	if kind != "Job" {
		version = "kubeflow.org/v1"
	}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: types.UID(uid), Controller: &yes}}
	return p
}

func inPhase(p *v1.Pod, phase v1.PodPhase) *v1.Pod {
	return with(p, func(p *v1.Pod) { p.Status.Phase = phase })
}

func job(name string, parallelism, completions, succeeded int32, failed string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	j.Spec.Parallelism, j.Status.Succeeded = &parallelism, succeeded
	if completions > 0 {
		j.Spec.Completions = &completions
	}
	if failed != "" {
		j.Status.FailedIndexes = &failed
	}
	return j
}

func statefulSet(name string, policy appsv1.PodManagementPolicyType) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}, Spec: appsv1.StatefulSetSpec{PodManagementPolicy: policy},
	}
}

// TestDoneMembers lets members of a gang of four end, and asks how many the rest needs.
func TestDoneMembers(t *testing.T) {
	t.Parallel()
	of := func(name, kind, owner string) *v1.Pod {
		return made(labelled(name, "train", "4"), kind, owner, "uid-"+owner)
	}
	inSet := func(name, job, attempt string) *v1.Pod {
		return with(of(name, "Job", job), func(p *v1.Pod) { p.Labels[jobSetUID], p.Labels[jobSetAttempt] = "set", attempt })
	}
	ofSet := func(name, set string) *v1.Pod {
		return with(of(name, "StatefulSet", set), func(p *v1.Pod) { p.OwnerReferences[0].APIVersion = "apps/v1" })
	}
	workflow := func(name string) *v1.Pod {
		return with(of(name, "Workflow", "w"), func(p *v1.Pod) { p.OwnerReferences[0].APIVersion = "argoproj.io/v1alpha1" })
	}
	ended := func(p *v1.Pod) *v1.Pod { return inPhase(p, v1.PodSucceeded) }
	failed := func(p *v1.Pod) *v1.Pod { return inPhase(p, v1.PodFailed) }
	const all = "1 of 4 members exist"
	tests := map[string]struct {
		alive   []*v1.Pod
		server  []runtime.Object
		least   int
		problem string
	}{
		"the last index of a Job fails": {
			[]*v1.Pod{of("b", "Job", "j")}, []runtime.Object{job("j", 4, 4, 3, "")}, 1, "",
		},
		"the status of the Job is late": {
			[]*v1.Pod{of("b", "Job", "j")},
			[]runtime.Object{job("j", 4, 4, 0, ""), ended(of("0", "Job", "j")), ended(of("1", "Job", "j")), ended(of("2", "Job", "j")), failed(of("3", "Job", "j"))}, 1, "",
		},
		"the last two are lost, one is made": {
			[]*v1.Pod{of("b", "Job", "j")}, []runtime.Object{job("j", 4, 4, 2, "")}, 2, "1 of 2 members exist; 2 others are done",
		},
		"the last wave of six": {
			[]*v1.Pod{of("e", "Job", "j"), of("f", "Job", "j")}, []runtime.Object{job("j", 4, 6, 4, "")}, 2, "",
		},
		"a wave in the middle": {
			[]*v1.Pod{of("e", "Job", "j")}, []runtime.Object{job("j", 4, 12, 4, "")}, 4, all,
		},
		"indexes that failed for good": {
			[]*v1.Pod{of("b", "Job", "j")}, []runtime.Object{job("j", 4, 4, 1, "1,2")}, 1, "",
		},
		"a Job without completions": {
			[]*v1.Pod{of("b", "Job", "j")}, []runtime.Object{job("j", 4, 0, 3, "")}, 1, "",
		},
		"the first member of a Job": {
			[]*v1.Pod{of("a", "Job", "j")}, []runtime.Object{job("j", 4, 4, 0, "")}, 4, all,
		},
		"a Job of that name that came later": {
			[]*v1.Pod{made(labelled("b", "train", "4"), "Job", "j", "uid-before")}, []runtime.Object{job("j", 4, 4, 3, "")}, 4, all,
		},
		"another controller": {
			[]*v1.Pod{of("m", "PyTorchJob", "p")}, []runtime.Object{ended(of("0", "PyTorchJob", "p")), ended(of("1", "PyTorchJob", "p")), ended(of("2", "PyTorchJob", "p"))}, 1, "",
		},
		"the run before, of another controller": {
			[]*v1.Pod{of("m", "PyTorchJob", "q")}, []runtime.Object{ended(of("0", "PyTorchJob", "p")), ended(of("1", "PyTorchJob", "p")), ended(of("2", "PyTorchJob", "p"))}, 4, all,
		},
		"a JobSet whose workers are done": {
			[]*v1.Pod{inSet("d", "driver", "0")},
			[]runtime.Object{job("driver", 1, 1, 0, ""), job("workers", 3, 3, 3, ""), ended(inSet("w", "workers", "0"))}, 1, "",
		},
		"a JobSet that has begun anew": {
			[]*v1.Pod{inSet("d", "driver", "1")},
			[]runtime.Object{job("driver", 1, 1, 0, ""), job("workers", 3, 3, 3, ""), ended(inSet("w", "workers", "0"))}, 4, all,
		},
		"members beyond the least number are done first": {
			[]*v1.Pod{of("f", "Job", "j")}, []runtime.Object{job("j", 8, 8, 5, "")}, 3, "1 of 3 members exist; 5 others are done",
		},
		"the next step of a workflow": {
			[]*v1.Pod{workflow("b0")}, []runtime.Object{ended(workflow("a0")), ended(workflow("a1")), ended(workflow("a2")), ended(workflow("a3"))}, 4, all,
		},
		"pods without a controller": {
			[]*v1.Pod{labelled("0b", "train", "4")},
			[]runtime.Object{ended(labelled("1", "train", "4")), ended(labelled("2", "train", "4")), ended(labelled("3", "train", "4"))}, 1, "",
		},
		"pods without a controller, of a run before": {
			[]*v1.Pod{labelled("0b", "train", "4")},
			[]runtime.Object{ended(labelled("0", "train", "4")), ended(labelled("1", "train", "4")), ended(labelled("2", "train", "4")), ended(labelled("3", "train", "4"))}, 4, all,
		},
		"a StatefulSet in order": {
			[]*v1.Pod{ofSet("web-0", "web")}, []runtime.Object{statefulSet("web", "")}, 4,
			all + "; StatefulSet web makes the next one when the last one is ready: make it anew with podManagementPolicy Parallel",
		},
		"a StatefulSet in parallel": {
			[]*v1.Pod{ofSet("web-0", "web")}, []runtime.Object{statefulSet("web", appsv1.ParallelPodManagement)}, 4, all,
		},
		"another gang": {
			[]*v1.Pod{labelled("0b", "train", "4")}, []runtime.Object{ended(labelled("1", "other", "4"))}, 4, all,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				w := newWorld(Served{})
				w.watchEndings(ctx, fake.NewClientset(tc.server...))
				for _, p := range tc.alive {
					w.put(t, p)
				}
				ref := Ref{Source: Label, Namespace: "ns", Name: "train"}
				if g, _ := w.Gang(ref); g.MinCount != 4 {
					t.Errorf("the least number is %d before the set has asked, want 4", g.MinCount)
				}
				told := 0
				w.OnChange(func(Ref) { told++ })
				time.Sleep(2 * settling)
				g, err := w.Gang(ref)
				problem := ""
				if err != nil {
					problem = err.Error()
				}
				if g.MinCount != tc.least || problem != tc.problem {
					t.Errorf("the least number is %d, problem %q; want %d, %q", g.MinCount, problem, tc.least, tc.problem)
				}
				if tc.least < 4 && told == 0 {
					t.Error("the listeners were not told of the least number")
				}
			})
		})
	}
}

// TestDoneMembersOfNextRun has another Job take the name of a gang whose members were done.
func TestDoneMembersOfNextRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		w := newWorld(Served{})
		w.watchEndings(ctx, fake.NewClientset(job("j", 4, 4, 3, ""), job("k", 4, 4, 0, "")))
		ref := Ref{Source: Label, Namespace: "ns", Name: "train"}
		last := made(labelled("b", "train", "4"), "Job", "j", "uid-j")
		w.put(t, last)
		_, _ = w.Gang(ref) // it lacks members from now on
		time.Sleep(2 * settling)
		g, err := w.Gang(ref)
		must.OK(t, err)
		if g.MinCount != 1 || g.Done != 3 {
			t.Fatalf("least number %d, done %d, want 1 and 3", g.MinCount, g.Done)
		}
		w.put(t, made(labelled("c", "train", "4"), "Job", "k", "uid-k"))
		w.drop(t, last)
		if g, _ := w.Gang(ref); g.MinCount != 4 {
			t.Errorf("the first pod of the next Job has the least number %d, want 4", g.MinCount)
		}
	})
}

// TestRevisedMembers has a rolling update change what must be alike.
func TestRevisedMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(Served{})
	hash := "label controller-revision-hash"
	w.put(t, labelled("a", "train", "2", hash, "one"), labelled("b", "train", "3", hash, "two"))
	_, err := w.Gang(Ref{Source: Label, Namespace: "ns", Name: "train"})
	const want = "a rolling update cannot change it, delete the pods of the revision before, or change it back"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("the problem is %v, want %s", err, want)
	}
}
