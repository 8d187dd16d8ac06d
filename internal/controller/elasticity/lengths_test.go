package elasticity

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/test/must"
)

// shortestFirst starts a controller whose policy goes by the time that jobs still take.
func (w *world) shortestFirst() {
	w.Helper()
	var err error
	w.options.Informers = informers.NewSharedInformerFactory(w.kube, 0)
	w.options.Elastic = elastic.Config{Policy: "elastic-srjf"}
	w.Controller, err = New(w.options)
	must.OK(w, err)
}

// profiled gives pods a WorkloadProfile and the sizes from 2 to 8.
func profiled(profile string, pods ...*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		p.Labels[v1alpha1.LabelProfile] = profile
		p.Annotations[v1alpha1.AnnotationElasticWorkers] = "2,4,8"
	}
	return pods
}

// complete lets pods end by themselves at a time.
func complete(at time.Time, pods ...*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		p.Status.Phase = v1.PodSucceeded
		p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}}}}
	}
	return pods
}

// done returns the members of gangs that ran with two members for a time and ended before noon.
func done(t *testing.T, profile string, gangs int, length time.Duration) (pods []*v1.Pod) {
	for i := range gangs {
		two := profiled(profile, members(t, fmt.Sprintf("%s-%d", profile, i), 2, 2, 0)...)
		for _, p := range two {
			p.CreationTimestamp = metav1.NewTime(noon.Add(-length - time.Hour))
		}
		pods = append(pods, complete(noon.Add(-time.Hour), two...)...)
	}
	return pods
}

// remainingOf returns the predicted seconds of a gang of a profile that has had no GPU.
func (w *world) remainingOf(profile string) float64 {
	w.Helper()
	p := profiled(profile, member("new", 0))[0]
	return w.lengths.remaining(p, 2, elastic.Had{})
}

func about(got, want float64) bool { return got > .8*want && got < 1.2*want }

// The job that ends first grows first, by what jobs like it took whose pods still exist.
func TestShortestGrowsFirst(t *testing.T) {
	for _, policy := range []struct {
		name         string
		set          func(w *world)
		early, quick int32
	}{
		{"by arrival", func(w *world) {
			w.options.Elastic.Policy = "elastic-fifo"
			w.options.Informers = informers.NewSharedInformerFactory(w.kube, 0)
			c, err := New(w.options)
			must.OK(w, err)
			w.Controller = c
		}, 4, 2},
		{"the shortest first", (*world).shortestFirst, 2, 4},
	} {
		t.Run(policy.name, func(t *testing.T) {
			pods := append(done(t, "long", 12, 10*time.Hour), done(t, "short", 12, 10*time.Minute)...)
			pods = append(pods, profiled("long", members(t, "early", 8, 2, 0)...)...)
			pods = append(pods, profiled("short", members(t, "quick", 8, 2, 2)...)...)
			w := newWorld(t, 6, pods...)
			must.OK(t, w.kube.Tracker().Add(jobOf("early", 8)))
			must.OK(t, w.kube.Tracker().Add(jobOf("quick", 8)))
			w.gangs.sizes = map[podgroup.Ref][]int{ref("early"): {2, 4, 8}, ref("quick"): {2, 4, 8}}
			policy.set(w)
			w.pass(0)
			for name, want := range map[string]int32{"early": policy.early, "quick": policy.quick} {
				if target := w.target(name); target == nil || target.Spec.Workers != want {
					t.Errorf("gang %s should have %d members: %+v", name, want, target)
				}
			}
		})
	}
}

// The job that says it is nearly done grows first, although jobs like it take long.
func TestNearlyDoneGrowsFirst(t *testing.T) {
	pods := append(done(t, "long", 12, 10*time.Hour), done(t, "short", 12, 10*time.Minute)...)
	pods = append(pods, profiled("long", members(t, "early", 8, 2, 0)...)...)
	pods = append(pods, profiled("short", members(t, "quick", 8, 2, 2)...)...)
	for name, progress := range map[string]string{"early-0": "0.9", "early-1": "0.99", "quick-1": "0.001"} {
		for _, p := range pods {
			if p.Name == name {
				p.Annotations[v1alpha1.AnnotationProgress] = progress
				p.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
			}
		}
	}
	w := newWorld(t, 6, pods...)
	must.OK(t, w.kube.Tracker().Add(jobOf("early", 8)))
	must.OK(t, w.kube.Tracker().Add(jobOf("quick", 8)))
	w.gangs.sizes = map[podgroup.Ref][]int{ref("early"): {2, 4, 8}, ref("quick"): {2, 4, 8}}
	w.shortestFirst()
	w.pass(0)
	for name, want := range map[string]int32{"early": 4, "quick": 2} {
		if target := w.target(name); target == nil || target.Spec.Workers != want {
			t.Errorf("gang %s should have %d members: %+v", name, want, target)
		}
	}
}

// hearing lets 32 gangs end that ran for an hour each, and said at each part of it what say returns.
func (w *world) hearing(say func(part float64) string) {
	const length, gangs = 3600, 8
	for round := range 4 {
		from := 2 * length * round
		var pods []*v1.Pod
		for i := range gangs {
			name := fmt.Sprintf("train-%d-%d", round, i)
			w.gangs.sizes[ref(name)] = []int{2, 4, 8}
			pods = append(pods, profiled("p", members(w.T, name, 2, 2, 2*i)...)...)
		}
		for at := 0; at <= length; at += 450 {
			for _, p := range pods {
				p.CreationTimestamp = metav1.NewTime(seconds(from))
				p.Annotations[v1alpha1.AnnotationProgress] = say(float64(at) / length)
			}
			w.put(pods...)
			w.pass(from + at)
		}
		w.put(complete(seconds(from+length), pods...)...)
		w.pass(from + length + 1)
		w.drop(pods...)
	}
}

// The controller learns the words of gangs from the middle of their lives with their lengths, whatever they said last. Later gangs of
// the namespace are believed by that.
func TestLearnsProgress(t *testing.T) {
	after := func(say func(part float64) string) float64 {
		w := newWorld(t, 16)
		w.shortestFirst()
		w.hearing(say)
		return w.lengths.remaining(profiled("p", member("new", 0))[0], 2, elastic.Had{Served: 2 * 1800, Projected: 1800 / .95})
	}
	right := after(func(part float64) string { return fmt.Sprintf("%.2f", part) })
	if right > 400 {
		t.Errorf("after gangs that were right, one that did .95 in half an hour takes %v s", right)
	}
	for name, say := range map[string]func(part float64) string{
		"said .95 until they had ended": func(part float64) string {
			if part == 1 {
				return "1"
			}
			return "0.95"
		},
		"said .01 at their start and .95 or a little more from then on": func(part float64) string {
			return fmt.Sprintf("%.6f", min(.01+part*100, .95+.01*part))
		},
	} {
		if wrong := after(say); wrong < 1200 {
			t.Errorf("after gangs that %s, and took an hour, one that says so after half an hour takes %v s", name, wrong)
		}
	}
}

// A gang counts once, by the time for which its members had nodes under this controller, and a later gang of its name is another one.
func TestLearnsEnds(t *testing.T) {
	run := func(w *world, from, to int) { // two members run meanwhile; this controller has seen them start
		for at := from; at <= to; at += 60 {
			w.pass(at)
		}
	}
	start := func(t *testing.T, at int) []*v1.Pod {
		two := profiled("p", members(t, "train", 2, 2, 0)...)
		for _, p := range two {
			p.CreationTimestamp = metav1.NewTime(seconds(at))
			p.UID += "-at-" + types.UID(fmt.Sprint(at))
		}
		return two
	}
	w := newWorld(t, 8, start(t, 0)...)
	w.shortestFirst()
	nothing := w.remainingOf("p")
	run(w, 0, 1200)
	first := start(t, 0)
	w.put(complete(seconds(1200), first[0])...)
	w.pass(1200)
	if got := w.remainingOf("p"); got != nothing {
		t.Errorf("while a member of the first gang runs a job takes %v s, before it %v s", got, nothing)
	}
	w.put(complete(seconds(1200), first...)...)
	w.pass(1201)
	once := w.remainingOf("p")
	w.pass(1210)
	if again := w.remainingOf("p"); once <= nothing || again != once {
		t.Errorf("before a gang ended a job takes %v s, after one of 1200 s %v s, and %v s a pass later", nothing, once, again)
	}
	for i := range 20 { // later gangs of the same name; the pods of the one before are gone
		from := 2000 * (i + 1)
		w.put(start(t, from)...)
		run(w, from, from+1200)
		w.put(complete(seconds(from+1200), start(t, from)...)...)
		w.pass(from + 1201)
	}
	if got := w.remainingOf("p"); !about(got, 1200) {
		t.Errorf("after 21 gangs of 1200 s a job takes %v s", got)
	}
}

// A gang whose pods are deleted would have run longer.
func TestLearnsStops(t *testing.T) {
	w := newWorld(t, 8, done(t, "p", 8, time.Hour)...)
	w.shortestFirst()
	w.pass(0)
	before := w.remainingOf("p")
	for i := range 4 {
		two := profiled("p", members(t, fmt.Sprintf("stopped-%d", i), 2, 2, 2*i)...)
		for _, p := range two {
			p.CreationTimestamp = metav1.NewTime(noon.Add(-50 * time.Minute))
		}
		w.gangs.sizes[ref(fmt.Sprintf("stopped-%d", i))] = []int{2, 4, 8}
		w.put(two...)
		w.pass(10)
		w.drop(two...)
	}
	w.pass(20)
	w.pass(20 + int(forgetAfter.Seconds()))
	if got := w.remainingOf("p"); got < before || !about(got, 3600) {
		t.Errorf("after four gangs that were stopped after 50 minutes a job takes %v s, before them %v s", got, before)
	}
}

// No other policy asks for lengths, and the GPU time of a gang does not count for the next one of its name.
func TestNoLengths(t *testing.T) {
	w := newWorld(t, 8, done(t, "p", 8, time.Hour)...)
	first := members(t, "train", 2, 2, 0)
	w.put(first...)
	w.pass(0)
	w.put(complete(seconds(10), first...)...)
	w.pass(10)
	next := members(t, "train", 2, 2, 0)
	for _, p := range next {
		p.UID, p.CreationTimestamp = p.UID+"-next", metav1.NewTime(seconds(100))
	}
	w.put(next...)
	w.pass(110)
	if m := w.memory[ref("train")]; m.served != 2*10 {
		t.Errorf("members that started 10 s ago had GPUs for %v s", m.served)
	}
	if got := w.remainingOf("p"); got != 0 {
		t.Errorf("a job takes %v s", got)
	}
}
