package gpugang

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/test/bubble"
	"github.com/tandem-gpu/tandem/test/must"
)

// madeBy has a controller have made pods with names of their own.
func madeBy(kind, name string, pods ...*v1.Pod) []*v1.Pod {
	for i, p := range pods {
		p.Name = fmt.Sprintf("%s-%d", name, i)
		p.UID = types.UID("uid-" + p.Name)
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: new(true)}}
	}
	return pods
}

// warned returns the events about the names of gangs, by pod and with their number.
func (c *cluster) warned() []string { return c.eventsOf("GangNameTaken") }

// eventsOf returns the events of a reason, by pod.
func (c *cluster) eventsOf(reason string) (all []string) {
	c.T.Helper()
	bubble.Rest()
	events, err := c.Client.EventsV1().Events(metav1.NamespaceAll).List(c.T.Context(), metav1.ListOptions{})
	must.OK(c.T, err)
	for _, e := range events.Items {
		if e.Reason == reason {
			all = append(all, e.Regarding.Name+": "+e.Note)
		}
	}
	slices.Sort(all)
	return all
}

// Each pod of a second job with the name of a running gang is warned of once, and placed. The minutes in this file are of the clock of bubbles.
func TestSecondJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.Create(madeBy("Job", "first", members("train", 2, 2, 10)...)...)
		c.AwaitBound("first", 2)
		time.Sleep(time.Minute)
		c.Create(madeBy("Job", "second", members("train", 2, 2, 10)...)...)
		c.AwaitBound("second", 1)
		time.Sleep(time.Minute)
		c.Remove("first-0") // the other pod is tried again
		c.AwaitBound("second", 2)
		got := c.warned()
		const note = ": the pod belongs to Job second, and the members that run to Job first: it joins gang default/train by itself; " +
			"give each job a gang name of its own, in the label tandem-gpu.io/gang"
		if want := []string{"second-0" + note, "second-1" + note}; !slices.Equal(got, want) {
			t.Errorf("the warnings are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// Nobody is warned of members that several objects make on purpose, or that one object makes anew.
func TestGangsOfSeveralObjects(t *testing.T) {
	labelledBy := func(key, value string, pods []*v1.Pod) []*v1.Pod {
		for _, p := range pods {
			p.Labels[key] = value
		}
		return pods
	}
	type gang = []*v1.Pod
	launcher := func(least int) gang { return madeBy("Job", "launcher", members("train", 1, least, 10)...) }
	workers := func(least int) gang { return madeBy("Job", "workers", members("train", 2, least, 10)...) }
	again := func(pods gang) gang {
		for _, p := range pods {
			p.Name += "-again"
			p.UID += "-again"
		}
		return pods
	}
	tests := map[string]func(c *cluster){
		"a launcher comes again": func(c *cluster) {
			c.Create(append(launcher(3), workers(3)...)...)
			c.AwaitBound("", 3)
			time.Sleep(time.Minute)
			c.Remove("launcher-0")
			c.Create(again(launcher(3))...)
		},
		"a launcher beyond the least number comes again": func(c *cluster) {
			c.Create(append(launcher(2), workers(2)...)...)
			c.AwaitBound("", 3)
			time.Sleep(time.Minute)
			c.Remove("launcher-0")
			c.Create(again(launcher(2))...)
		},
		"a launcher of another kind comes late": func(c *cluster) {
			c.Create(madeBy("MPIJob", "mpi", members("train", 2, 2, 10)...)...)
			c.AwaitBound("", 2)
			time.Sleep(time.Minute)
			c.Create(launcher(2)...)
		},
		"a launcher comes again to a gang of which one worker is left": func(c *cluster) {
			c.Create(append(launcher(1), workers(1)...)...)
			c.AwaitBound("", 3)
			time.Sleep(time.Minute)
			c.Remove("launcher-0")
			c.Remove("workers-0")
			only := c.Pod("workers-1")
			only.Labels["example.com/changed"] = "yes"
			_, err := c.Client.CoreV1().Pods(only.Namespace).Update(c.T.Context(), only, metav1.UpdateOptions{})
			must.OK(c.T, err)
			time.Sleep(time.Minute)
			c.Create(append(again(launcher(1)), again(workers(1)[:1])...)...)
		},
		"workers that come some seconds after their launcher": func(c *cluster) {
			c.Create(launcher(1)...)
			c.AwaitBound("", 1)
			time.Sleep(20 * time.Second)
			c.Create(workers(1)...)
		},
		"each revision of a service has an object of its own": func(c *cluster) {
			c.Create(madeBy("RayCluster", "first", members("train", 2, 2, 10)...)...)
			c.AwaitBound("", 2)
			time.Sleep(time.Minute)
			c.Create(madeBy("RayCluster", "second", members("train", 1, 2, 10)...)...)
		},
		"a JobSet makes a Job anew": func(c *cluster) {
			const key = "jobset.sigs.k8s.io/jobset-name"
			c.Create(labelledBy(key, "set", workers(2))...)
			c.AwaitBound("", 2)
			time.Sleep(time.Minute)
			c.Create(labelledBy(key, "set", launcher(2))...)
		},
		"a job takes the place of another": func(c *cluster) {
			c.Create(append(launcher(3), workers(3)...)...)
			c.AwaitBound("", 3)
			c.Remove("launcher-0")
			time.Sleep(time.Minute)
			c.Create(madeBy("Job", "other", members("train", 1, 3, 10)...)...)
		},
	}
	for name, play := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3)
				play(c)
				c.AwaitBound("", 3)
				if got := c.warned(); len(got) > 0 {
					t.Errorf("the warnings are %v", got)
				}
			})
		})
	}
}
