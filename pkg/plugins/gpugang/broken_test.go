package gpugang

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/test/must"
)

// A running gang that lost members with their node goes before older pods of its priority when a node comes.
func TestRunningGangGoesFirst(t *testing.T) {
	for _, older := range []string{"a", "m", "z"} {
		for count := range 4 {
			t.Run(fmt.Sprint(older, count), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, 2, 2)
					pods := members("train", 4, 4, 10)
					c.Create(pods...)
					nodes := c.AwaitBound("train", 4)
					for i := range count {
						c.Create(pod(fmt.Sprint(older, "-older-", i), 10))
					}
					time.Sleep(time.Minute)
					c.loseNode("n2")
					time.Sleep(30 * time.Second)
					for name, node := range nodes {
						if node == "n2" {
							again := members("train", 4, 4, 10)[0]
							again.Name, again.UID = name+"-again", types.UID("uid-again-"+name)
							c.Create(again)
						}
					}
					time.Sleep(10 * time.Minute)
					c.CreateNode("n3", "r1", 2)
					c.AwaitBound("train", 4)
					if taken := c.Bound(older + "-older"); len(taken) != 0 {
						t.Errorf("older pods have the room: %v", taken)
					}
				})
			})
		}
	}
}

// Many placements of other pods, elsewhere, do not lose a running gang the room that comes with a node or with the end of a pod.
func TestRunningGangGoesFirstOnABusyCluster(t *testing.T) {
	away := func(pods ...*v1.Pod) []*v1.Pod {
		for _, p := range pods {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
					{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpNotIn, Values: []string{"busy", "n5"}},
				}}},
			}}}
		}
		return pods
	}
	for _, comes := range []string{"node", "node, and one for an urgent pod", "end"} {
		for _, older := range []string{"a", "m", "z"} {
			t.Run(comes+" "+older, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, 1, 1)
					c.Create(away(members("train", 2, 2, 10)...)...)
					nodes := c.AwaitBound("train", 2)
					c.CreateNode("n3", "r1", 1)
					c.Create(away(pod("whole", 10))...)
					c.AwaitBound("whole", 1)
					c.Create(away(pod(older+"-older-1", 10), pod(older+"-older-2", 10))...)
					time.Sleep(time.Minute)
					c.CreateNode("busy", "r1", 20)
					c.loseNode("n2")
					for name, node := range nodes {
						if node == "n2" {
							again := members("train", 2, 2, 10)[0]
							again.Name, again.UID = name+"-again", "uid-again"
							c.Create(away(again)...)
						}
					}
					time.Sleep(time.Minute)
					for i := range 100 {
						p := pod(fmt.Sprint("small-", i), 1)
						p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "busy"}
						c.Create(p)
						time.Sleep(time.Second)
					}
					c.AwaitBound("small", 100)
					switch comes {
					case "node":
						c.CreateNode("n4", "r1", 1)
					case "end":
						c.Remove("whole")
					default:
						urgent := pod("urgent", 1) // before this one the gang does not go
						urgent.Spec.Priority = new(int32(10))
						urgent.Spec.NodeSelector = map[string]string{v1.LabelHostname: "n5"}
						c.Create(urgent)
						time.Sleep(time.Second)
						c.CreateNode("n4", "r1", 1)
						c.CreateNode("n5", "r1", 1)
					}
					time.Sleep(time.Minute)
					if got := c.Bound("train"); len(got) != 2 {
						t.Errorf("of the gang %v is bound, of the older pods %v", got, c.Bound(older+"-older"))
					}
				})
			})
		}
	}
}

// A pod that is refused once for a running gang gets the room that is left.
func TestRunningGangLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.Create(members("train", 2, 2, 10)...)
		nodes := c.AwaitBound("train", 2)
		c.Create(pod("other", 10))
		time.Sleep(time.Minute)
		c.loseNode("n2")
		for name, node := range nodes {
			if node == "n2" {
				again := members("train", 2, 2, 10)[0]
				again.Name, again.UID = name+"-again", "uid-again"
				c.Create(again)
			}
		}
		time.Sleep(time.Minute)
		c.CreateNode("n3", "r1", 2)
		c.AwaitBound("train", 2)
		c.AwaitBound("other", 1)
	})
}

// If two running gangs lack members, the one that has waited longer goes first, whatever the order of the queue.
func TestRunningGangsTakeTurns(t *testing.T) {
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		t.Run(names[0], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2, 2)
				for _, name := range names {
					pods := members(name, 2, 2, 10)
					for i, node := range []string{"n1", "n2"} {
						pods[i].Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
					}
					c.Create(pods...)
					c.AwaitBound(name, 2)
				}
				c.loseNode("n2")
				for _, name := range names {
					again := members(name, 2, 2, 10)[0]
					again.Name, again.UID = name+"-again", types.UID("uid-again-"+name)
					c.Create(again)
					time.Sleep(time.Minute)
				}
				c.CreateNode("n3", "r1", 1)
				c.AwaitBound(names[0], 2)
				if got := c.Bound(names[1]); len(got) != 1 {
					t.Errorf("both gangs are whole: %v", got)
				}
			})
		})
	}
}

// The last worker of a Job comes back after the others have ended, and the last wave of a Job is smaller than a gang.
func TestGangsEnd(t *testing.T) {
	ofJob := func(p *v1.Pod) *v1.Pod {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job", Controller: &yes}}
		return p
	}
	tests := map[string]struct {
		completions int32
		// succeed end before the others fail, and again come in their place.
		succeed, again int
	}{
		"the last one":      {4, 3, 1},
		"the last two":      {4, 2, 2},
		"the last wave":     {6, 4, 2},
		"none of them":      {4, 0, 4},
		"a wave of several": {12, 4, 4},
	}
	for name, tc := range tests {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", restarted ", restarted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, 4, 4)
					four := int32(4)
					job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train", UID: "job"}}
					job.Spec.Parallelism, job.Spec.Completions = &four, &tc.completions
					must.OK(t, c.Client.Tracker().Add(job))
					pods := members("train", 4, 4, 10)
					for _, p := range pods {
						c.Create(ofJob(p))
					}
					c.AwaitBound("train", 4)
					job = job.DeepCopy()
					job.Status.Succeeded = int32(tc.succeed)
					must.OK(t, c.Client.Tracker().Update(batchv1.SchemeGroupVersion.WithResource("jobs"), job, "default"))
					for i, p := range pods {
						ended := c.Pod(p.Name).DeepCopy()
						if ended.Status.Phase = v1.PodFailed; i < tc.succeed {
							ended.Status.Phase = v1.PodSucceeded
						}
						_, err := c.Client.CoreV1().Pods("default").UpdateStatus(t.Context(), ended, metav1.UpdateOptions{})
						must.OK(t, err)
					}
					if restarted {
						c.stop()
						c.start()
					}
					time.Sleep(time.Minute)
					for i := range tc.again {
						p := ofJob(members("train", 4, 4, 10)[0])
						p.Name, p.UID = fmt.Sprint("again-", i), types.UID(fmt.Sprint("uid-again-", i))
						c.Create(p)
					}
					c.AwaitBound("again", tc.again)
				})
			})
		}
	}
}

// A member that a plugin refuses before it gets to its place, such as for a claim that is missing, ends the plan: others get the GPUs.
// If the gang can run without it, the others run.
func TestMemberRefusedInPreFilter(t *testing.T) {
	for _, least := range []int{3, 2} {
		t.Run(fmt.Sprint(least, " of 3"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3)
				pods := members("train", 3, least, 10)
				pods[1].Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "mistyped"},
				}}}
				c.Create(pods...)
				if least == 2 {
					c.AwaitBound("train", 2)
					return
				}
				time.Sleep(10 * time.Second)
				began := time.Now()
				c.Create(pod("a", 10), pod("b", 10), pod("c", 10))
				for _, name := range []string{"a", "b", "c"} {
					c.AwaitBound(name, 1)
				}
				if took := time.Since(began); took > time.Minute {
					t.Errorf("the GPUs were idle for %v", took)
				}
				if got := c.Bound("train"); len(got) != 0 {
					t.Errorf("members are bound: %v", got)
				}
			})
		})
	}
}

// A gang that has no room is planned at fewer and fewer placements of others, until the scheduler has tried it itself.
func TestPlansInVainAreFew(t *testing.T) {
	p, ref := &Plugin{inVain: map[podgroup.Ref]*patience{}}, podgroup.Ref{Name: "train"}
	place := func(placements int) (planned int) {
		for range placements {
			if p.mayGoFirst(ref) {
				planned++
				p.wentInVain(ref)
			}
		}
		return planned
	}
	if got := place(127); got != 7 { // at 1, 3, 7, 15, 31, 63 and 127
		t.Errorf("the gang is planned at %d of 127 placements, want 7", got)
	}
	if got := place(640); got != 10 {
		t.Errorf("then it is planned at %d of 640 placements, want 10", got)
	}
	p.triesItself(ref)
	if got := place(65); got != 2 { // at once, and after 63
		t.Errorf("the gang is planned at %d of 65 placements after the scheduler has tried it, want 2", got)
	}
}
