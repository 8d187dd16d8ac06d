package gpuqueue

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// containers returns n containers, of which those from the first on ask for a vGPU.
func containers(n, with int) []v1.Container {
	all := make([]v1.Container, n)
	for i := range all {
		if all[i].Name = fmt.Sprint("c", i); i < with {
			all[i].Resources.Limits = v1.ResourceList{v1alpha1.ResourceVGPU: *resource.NewQuantity(1, resource.DecimalSI)}
		}
	}
	return all
}

func pod(namespace, name string, priority int32, init, app []v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)},
		Spec:       v1.PodSpec{Priority: &priority, InitContainers: init, Containers: app},
	}
}

// tried returns the order in which kube-scheduler's queue hands out pods that came a second apart.
func tried(t *testing.T, pods ...*v1.Pod) (names []string) {
	metrics.Register()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	clock := clocktesting.NewFakeClock(time.Now())
	q := queue.NewTestQueue(ctx, Plugin{}.Less, queue.WithClock(clock))
	defer q.Close()
	for _, p := range pods {
		q.Add(ctx, p)
		clock.Step(time.Second)
	}
	for range pods {
		e, err := q.Pop(klog.FromContext(ctx))
		must.OK(t, err)
		names = append(names, e.GetName())
	}
	return names
}

func TestOrder(t *testing.T) {
	light := func(name string) *v1.Pod { return pod("b", name, 0, nil, containers(1, 1)) }
	heavy := func(name string) *v1.Pod { return pod("a", name, 0, nil, containers(16, 16)) }
	for _, test := range []struct {
		name string
		pods []*v1.Pod
		want []string
	}{
		{"the one that came first", []*v1.Pod{light("1"), light("2"), light("3")}, []string{"1", "2", "3"}},
		{"the highest priority", []*v1.Pod{light("1"), pod("b", "2", 5, nil, containers(1, 1))}, []string{"2", "1"}},
		{"a neighbour of dear pods", []*v1.Pod{heavy("1"), heavy("2"), heavy("3"), light("4")}, []string{"4", "1", "2", "3"}},
		{"dear pods of a higher priority", []*v1.Pod{pod("a", "1", 1, nil, containers(16, 16)), light("2")}, []string{"1", "2"}},
		{"containers without vGPUs do not count", []*v1.Pod{pod("a", "1", 0, containers(2, 0), containers(16, 1)), light("2")}, []string{"1", "2"}},
		{"init containers count", []*v1.Pod{pod("a", "1", 0, containers(1, 1), containers(1, 1)), light("2"), light("3"), light("4"), light("5"), light("6")},
			[]string{"2", "3", "4", "1", "5", "6"}},
		{"the dearest comes last", []*v1.Pod{heavy("1"), pod("b", "2", 0, nil, containers(3, 3)), light("3")}, []string{"3", "2", "1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, tried(t, test.pods...)); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

// A stream of other pods keeps the dearest pod waiting for a minute, and no longer.
func TestPutBackEnds(t *testing.T) {
	pods := []*v1.Pod{pod("a", "dear", 0, nil, containers(16, 16))}
	for i := range 90 {
		pods = append(pods, pod("b", fmt.Sprint(i), 0, nil, containers(1, 1)))
	}
	got := tried(t, pods...)
	// The pods 0 to 58 came within a minute; 59 came at the same instant as the dear pod's turn.
	if i := slices.Index(got, "dear"); i != 59 && i != 60 {
		t.Errorf("the dear pod was tried after %d others, want 59 or 60", i)
	}
}

// A PodGroup with one dear member is as dear as the member.
func TestGroups(t *testing.T) {
	now := time.Now()
	group := func(members ...*v1.Pod) fwk.QueuedEntityInfo {
		g := &framework.QueuedPodGroupInfo{
			PodGroupInfo:   &framework.PodGroupInfo{},
			QueueingParams: framework.QueueingParams{Timestamp: now},
			QueuedPodInfos: map[fwk.EntityKey][]*framework.QueuedPodInfo{},
		}
		for _, m := range members {
			g.QueuedPodInfos[fwk.EntityKey{}] = append(g.QueuedPodInfos[fwk.EntityKey{}], &framework.QueuedPodInfo{PodInfo: &framework.PodInfo{Pod: m}})
		}
		return g
	}
	light, heavy := pod("a", "light", 0, nil, containers(1, 1)), pod("a", "heavy", 0, nil, containers(5, 5))
	if got := turn(group(light, light)); !got.Equal(now) {
		t.Errorf("the turn of a group of light pods is %v after its time", got.Sub(now))
	}
	if got := turn(group(light, heavy)); !got.Equal(now.Add(4 * PutBack)) {
		t.Errorf("the turn of a group with a pod of five containers is %v after its time, want %v", got.Sub(now), 4*PutBack)
	}
}

// The order is one: whatever the pods, sorting them never depends on which are compared first.
func TestLessIsAnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		began := time.Now()
		draw := func(label string) *framework.QueuedPodInfo {
			p := pod("a", label, rapid.Int32Range(0, 1).Draw(t, label+" priority"), nil, containers(3, rapid.IntRange(0, 3).Draw(t, label+" with vGPUs")))
			return &framework.QueuedPodInfo{
				PodInfo:        &framework.PodInfo{Pod: p},
				QueueingParams: framework.QueueingParams{Timestamp: began.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, label+" time")) * PutBack / 2)},
			}
		}
		a, b, c := draw("a"), draw("b"), draw("c")
		less := Plugin{}.Less
		if less(a, b) && less(b, a) || less(a, a) {
			t.Fatalf("%v and %v are each before the other", a, b)
		}
		if less(a, b) && less(b, c) && !less(a, c) {
			t.Fatalf("a is before b, b before c, and a not before c")
		}
		if !less(a, b) && !less(b, a) && !less(b, c) && !less(c, b) && (less(a, c) || less(c, a)) {
			t.Fatalf("a is as b, b as c, and a not as c")
		}
	})
}
