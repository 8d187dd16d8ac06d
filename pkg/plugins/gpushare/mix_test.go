package gpushare

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// noon is the middle of a day of the calendar, the half-life of these tests.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// ticking is a clock that stands still but for what a test adds.
type ticking struct{ time.Time }

func newTicking() *ticking { return &ticking{noon} }

func (c *ticking) now() time.Time { return c.Time }

func daily(c *ticking) *arrivals { return newArrivals(24*time.Hour, c.now) }

func slots(k int) fragmentation.Kind { return fragmentation.Kind{Slots: vgpu.Slots(k)} }

func weighing(k fragmentation.Kind, weight int64) fragmentation.Kind {
	k.Weight = weight
	return k
}

// one is what a pod of now weighs.
const one = 1 << 20

func TestArrivalsCountByTheirAge(t *testing.T) {
	day := 24 * time.Hour
	a := daily(newTicking())
	a.observe("team", slots(1), noon.Add(-20*day)) // forgotten
	a.observe("team", slots(2), noon.Add(-2*day))
	a.observe("team", slots(3), noon.Add(-day))
	a.observe("team", slots(3), noon.Add(-3*time.Hour)) // an eighth of a day: a step
	a.observe("team", slots(4), noon)
	a.observe("team", slots(5), noon.Add(time.Hour)) // a server's clock is ahead: now
	a.observe("team", slots(5), noon)
	// 3 counts a half and 2^(-1/8) = 0.917.
	want := []fragmentation.Kind{
		weighing(slots(5), 2*one), weighing(slots(3), one/2+961548), weighing(slots(4), one), weighing(slots(2), one/4),
	}
	if diff := cmp.Diff(want, a.usual().Kinds()); diff != "" {
		t.Errorf("mix (-want +got):\n%s", diff)
	}
}

func TestGivenMix(t *testing.T) {
	mix, err := workloads.GivenMix([]config.TypicalRequest{
		{CPU: resource.MustParse("1500m"), Memory: resource.MustParse("2Gi"), VGPU: 3, Models: []string{"T4", "A100"}, Weight: 2},
		{CPU: resource.MustParse("8"), Weight: 5},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []fragmentation.Kind{{MilliCPU: 8000, Weight: 5}, {MilliCPU: 1500, Memory: 2 * gib, Slots: 3, Models: "A100|T4", Weight: 2}}
	if diff := cmp.Diff(want, mix.Kinds()); diff != "" {
		t.Errorf("mix (-want +got):\n%s", diff)
	}
}

// event is what the informer tells: the pod before and after, one of them nil for a pod that comes or goes.
type event struct{ before, after *v1.Pod }

func (d *desk) tell(events ...event) {
	handler := d.plugin.podEvents(d.t.Context())
	for _, e := range events {
		switch {
		case e.before == nil:
			handler.OnAdd(e.after, false)
		case e.after == nil:
			handler.OnDelete(e.before)
		default:
			handler.OnUpdate(e.before, e.after)
		}
	}
}

func asking(p *v1.Pod, cpu string) *v1.Pod {
	return with(p, func(p *v1.Pod) {
		r := &p.Spec.Containers[0].Resources
		r.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
		p.CreationTimestamp = metav1.NewTime(noon)
	})
}

func TestEachPodCountsOnce(t *testing.T) {
	single := weighing(fragmentation.Kind{MilliCPU: 1500, Slots: 3}, one)
	a := asking(pod("a", 3), "1500m")
	onNode := with(a.DeepCopy(), func(p *v1.Pod) { p.Spec.NodeName = "n1" })
	again := with(a.DeepCopy(), func(p *v1.Pod) { p.UID = "another" })
	ofKind := func(kind string) *v1.Pod {
		return with(asking(pod("owned", 3), "1500m"), func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "x", Controller: new(true)}}
		})
	}
	malformed := with(asking(pod("malformed", 3), "1"), func(p *v1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationComputeLimit: "half"}
	})
	picky := with(asking(pod("picky", 3), "1500m"), func(p *v1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationModels: "Tesla-T4, A100"}
	})
	heavy := with(asking(pod("heavy", 3), "1500m"), func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("2Gi")
	})
	withMemory, onModels := single, single
	withMemory.Memory = 2 * gib
	onModels.Models = "A100|Tesla-T4"
	huge := asking(pod("huge", 3), "4611686018427387")
	tests := []struct {
		name   string
		events []event
		want   []fragmentation.Kind
	}{
		{"it comes", []event{{nil, a}}, []fragmentation.Kind{single}},
		{"it changes", []event{{nil, a}, {a, a}, {a, onNode}, {onNode, onNode}}, []fragmentation.Kind{single}},
		{"it came before the start", []event{{nil, onNode}}, []fragmentation.Kind{single}},
		{"it goes", []event{{nil, a}, {a, nil}}, []fragmentation.Kind{single}},
		{"another takes its name", []event{{nil, a}, {a, nil}, {nil, again}}, []fragmentation.Kind{weighing(single, 2*one)}},
		{"another takes its name unseen", []event{{nil, a}, {a, again}}, []fragmentation.Kind{weighing(single, 2*one)}},
		{"a Job's counts", []event{{nil, ofKind("Job")}}, []fragmentation.Kind{single}},
		{"a DaemonSet's does not", []event{{nil, ofKind("DaemonSet")}}, nil},
		{"a static pod does not", []event{{nil, ofKind("Node")}}, nil},
		{"its memory counts", []event{{nil, heavy}}, []fragmentation.Kind{withMemory}},
		{"its models count", []event{{nil, picky}}, []fragmentation.Kind{onModels}},
		{"a malformed one does not", []event{{nil, malformed}}, nil},
		{"one that no node could take does not", []event{{nil, huge}}, nil},
		{"one without vGPUs does not", []event{{nil, a}, {nil, asking(pod("plain", 0), "2")}}, []fragmentation.Kind{single}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := newDesk(t)
			d.plugin.arrivals = daily(newTicking())
			d.tell(test.events...)
			if diff := cmp.Diff(test.want, d.plugin.arrivals.usual().Kinds(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("mix (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("pods without vGPUs count where nodes are scored for them", func(t *testing.T) {
		d := newDesk(t)
		d.plugin.arrivals, d.plugin.scoresAll = daily(newTicking()), true
		d.tell(event{nil, a}, event{nil, asking(pod("plain", 0), "2")})
		want := []fragmentation.Kind{weighing(slots(0), one), single}
		if diff := cmp.Diff(want, d.plugin.arrivals.usual().Kinds()); diff != "" {
			t.Errorf("mix (-want +got):\n%s", diff)
		}
	})
}

// A real informer tells the pods of the mix, and tells them again to a scheduler that starts anew.
func TestRestartKeepsTheMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 2))
		created := metav1.Now()
		await := func(when string) {
			t.Helper()
			var kinds []fragmentation.Kind
			mixed := func() bool { // the plugin's informer shows a pod when it likes, before the pod is bound or after
				kinds = c.plugin.arrivals.usual().Kinds()
				return len(kinds) == 2 && kinds[0].Slots == 3 && kinds[1].Slots == 4 && kinds[0].Weight == 2*kinds[1].Weight
			}
			c.eventually(mixed, func() string {
				return fmt.Sprintf("%s the mix is %v, want two pods of 3 slots and one of 4", when, kinds)
			})
		}
		for name, k := range map[string]int{"a": 3, "b": 3, "c": 4} {
			c.createPod(with(pod(name, k), func(p *v1.Pod) { p.CreationTimestamp = created }))
			c.awaitBound(name)
		}
		await("after three pods")
		c.stop()
		c.start()
		c.createPod(pod("asker", 1)) // without a time: of the year 1, and so forgotten
		c.awaitBound("asker")
		await("after a restart")
	})
}

// A tenant who creates and deletes pods again and again counts for no more than all others together.
func TestPodsThatComeAndGoBoundTheMix(t *testing.T) {
	d := newDesk(t)
	d.plugin.arrivals = daily(newTicking())
	in := func(namespace, name string, k int) *v1.Pod {
		return with(asking(pod(name, k), "1"), func(p *v1.Pod) { p.Namespace, p.UID = namespace, types.UID(namespace+name) })
	}
	for i := range 80 {
		d.tell(event{nil, in("team", fmt.Sprint("pod-", i), 3)})
	}
	for i := range 5000 {
		loud := in("loud", fmt.Sprint("pod-", i), 10)
		d.tell(event{nil, loud}, event{loud, nil})
	}
	want := []fragmentation.Kind{
		weighing(fragmentation.Kind{MilliCPU: 1000, Slots: 3}, 80*one), weighing(fragmentation.Kind{MilliCPU: 1000, Slots: 10}, 80*one),
	}
	if diff := cmp.Diff(want, d.plugin.arrivals.usual().Kinds(), cmpopts.EquateApprox(1e-6, 0)); diff != "" {
		t.Errorf("mix (-want +got):\n%s", diff)
	}
}
