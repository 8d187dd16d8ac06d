package victims

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/pods"
)

// placed returns a pod of no gang that takes nothing of its host.
func (g *Guards) placed(pod *v1.Pod, share vgpu.MilliGPU) Placed {
	t := g.TraitsOf(pod, vgpu.Room{})
	return Placed{Traits: &t, Share: share, Gang: -1}
}

func TestCandidates(t *testing.T) {
	named := func(p *v1.Pod, name, node string, priority int32) *v1.Pod {
		p.Name, p.UID, p.Spec.NodeName = name, types.UID("u-"+name), node
		if priority != 0 {
			p.Spec.Priority = &priority
		}
		return p
	}
	train := named(labelled(ran(time.Hour), "app", "train"), "train", "n1", -7)
	serve := named(pods.Annotated(ran(time.Minute), v1alpha1.AnnotationMaxLatency, "40ms"), "serve", "n2", 5)
	leaving := named(labelled(saved(ran(time.Hour), "2026-01-31T11:59:00Z"), "app", "train"), "leaving", "n1", 0)
	leaving.DeletionTimestamp = &metav1.Time{Time: noon.Add(time.Second)}
	young := named(ran(time.Second), "young", "n1", 0)
	g := guards(t, config.GPUPreemptArgs{MinimumRuntime: metav1.Duration{Duration: time.Minute}})
	chosen := named(ran(time.Hour), "chosen", "n3", 9)
	traits := func(p *v1.Pod, cpu int64, memory vgpu.Bytes) *Traits {
		t := g.TraitsOf(p, vgpu.Room{MilliCPU: cpu, Memory: memory})
		return &t
	}
	got := Candidates(
		[]Placed{
			{Traits: traits(train, 500, 7), Share: 300, Gang: 1}, {Traits: traits(serve, 0, 0), Share: 1000, Gang: -1},
			{Traits: traits(leaving, 1, 0), Share: 2000, Gang: 1}, {Traits: traits(young, 0, 0)}, {Traits: traits(chosen, 0, 0), Gang: -1, Goes: true},
		},
		[]*policyv1.PodDisruptionBudget{budget("ns", "b", 2, matchLabels("app", "train")), budget("ns", "a", 0, matchLabels("app", "serve"))}, noon,
	)
	want := &preemption.Candidates{
		Pods: []preemption.Pod{
			{UID: "u-train", Name: "ns/train", Node: "n1", Host: vgpu.Room{MilliCPU: 500, Memory: 7}, Priority: -7, Lost: 300 * 3600, Share: 300, Budgets: []int{1}, Gang: 1},
			{UID: "u-serve", Name: "ns/serve", Node: "n2", Priority: 5, Serving: true, Lost: 1000 * 60, Share: 1000, Gang: -1},
			{UID: "u-leaving", Name: "ns/leaving", Node: "n1", Host: vgpu.Room{MilliCPU: 1}, Lost: 2000 * 60, Share: 2000, Budgets: []int{1}, Leaving: true, Gang: 1},
			{UID: "u-young", Name: "ns/young", Node: "n1", Guard: preemption.TooYoung},
			{UID: "u-chosen", Name: "ns/chosen", Node: "n3", Priority: 9, Gang: -1, Leaving: true},
		},
		Budgets: []preemption.Budget{{Name: "ns/a", Allowed: 0}, {Name: "ns/b", Allowed: 2}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
	never := v1.PreemptNever
	train.Spec.PreemptionPolicy = &never
	if got := Candidates([]Placed{g.placed(train, 0)}, nil, noon); !got.Pods[0].NeverPreempts {
		t.Errorf("a pod with preemptionPolicy Never: %+v", got)
	}
	if got := Candidates([]Placed{g.placed(train, 0)}, nil, noon); len(got.Pods[0].Budgets) > 0 || len(got.Budgets) > 0 {
		t.Errorf("without budgets: %+v", got)
	}
	if got := Candidates(nil, nil, noon); len(got.Pods) > 0 {
		t.Errorf("without pods: %+v", got)
	}
}

// Each pod is what it would be alone, whatever the order of the pods and budgets.
func TestCandidatesProperty(t *testing.T) {
	g := guards(t, config.GPUPreemptArgs{
		MinimumRuntime:  metav1.Duration{Duration: time.Hour},
		MinimumRuntimes: []config.ClassRuntime{{PriorityClassName: "batch", Runtime: &metav1.Duration{Duration: 3 * time.Hour}}},
		Protected:       config.ProtectedPods{LabelSelector: matchLabels("a", "y")},
	})
	rapid.Check(t, func(t *rapid.T) {
		var pods []Placed
		for i := range rapid.IntRange(0, 5).Draw(t, "pods") {
			p := ran(time.Duration(rapid.Int64Range(0, 2e13).Draw(t, "ran")))
			p.Namespace, p.Name = rapid.SampledFrom([]string{"n", "m"}).Draw(t, "namespace"), fmt.Sprint("p", i)
			p.Spec.PriorityClassName = rapid.SampledFrom([]string{"", "batch"}).Draw(t, "class")
			p.Labels = rapid.MapOfN(rapid.SampledFrom([]string{"a", "b"}), rapid.SampledFrom([]string{"x", "y"}), 0, 2).Draw(t, "labels")
			pods = append(pods, g.placed(p, vgpu.MilliGPU(rapid.Int64Range(0, 8000).Draw(t, "share"))))
		}
		budgets := drawBudgets(t)
		all := Candidates(pods, budgets, noon)
		if diff := cmp.Diff(all, Candidates(pods, rapid.Permutation(budgets).Draw(t, "budgets"), noon)); diff != "" {
			t.Fatalf("another order of the budgets (-before +after):\n%s", diff)
		}
		for i := range pods {
			if diff := cmp.Diff(all.Pods[i:i+1], Candidates(pods[i:i+1], budgets, noon).Pods); diff != "" {
				t.Fatalf("pod %d alone (-among others +alone):\n%s", i, diff)
			}
			c := &all.Pods[i]
			if guard, lost := g.Of(pods[i].Pod, noon), workLost(pods[i].Pod, pods[i].Share, noon); c.Guard != guard || c.Lost != lost {
				t.Fatalf("pod %d has the guard %q and loses %d, want %q and %d", i, c.Guard, c.Lost, guard, lost)
			}
		}
	})
}

func TestShares(t *testing.T) {
	node := func(name string, slots vgpu.Slots) *vgpu.Node {
		n, err := vgpu.NewNode(name, []vgpu.Device{
			{ID: "g0", Model: "A", Slots: slots, Memory: 1000, Healthy: true}, {ID: "g1", Model: "A", Slots: slots, Memory: 1000, Healthy: true},
		})
		must.OK(t, err)
		return n
	}
	add := func(n *vgpu.Node, uid string, containers ...vgpu.ContainerAssignment) {
		must.OK(t, n.Add(vgpu.Assignment{UID: vgpu.UID(uid), Pod: "ns/" + uid, Node: n.Name(), Containers: containers}))
	}
	part := func(slots vgpu.Slots, device vgpu.DeviceID) vgpu.ContainerAssignment {
		return vgpu.ContainerAssignment{
			Name: "c" + string(device), Kind: vgpu.App, Devices: []vgpu.DeviceID{device},
			Share: vgpu.Share{Devices: 1, Slots: slots, Memory: 1, ComputeLimit: 1000, MemoryLimit: 1000},
		}
	}
	ten, seven := node("n1", 10), node("n2", 7)
	add(ten, "a", part(3, "g0"))
	add(ten, "b", part(7, "g0"), part(5, "g1"))
	add(seven, "c", part(3, "g0"))
	add(seven, "d", vgpu.ContainerAssignment{
		Name: "c", Kind: vgpu.App, Devices: []vgpu.DeviceID{"g0"},
		Share: vgpu.Share{Devices: 1, Slots: 4, Memory: 1, ComputeLimit: 1000, MemoryLimit: 1000},
	})
	// 3 of 7 slots are 428.57 thousandths, 4 of 7 are 571.43.
	var shares Shares
	for _, test := range []struct {
		node *vgpu.Node
		want map[vgpu.UID]vgpu.MilliGPU
	}{
		{ten, map[vgpu.UID]vgpu.MilliGPU{"a": 300, "aa": 0, "b": 1200, "c": 0}},
		{nil, map[vgpu.UID]vgpu.MilliGPU{"a": 0, "b": 0}},
		{seven, map[vgpu.UID]vgpu.MilliGPU{"b": 0, "c": 428, "d": 571, "e": 0}},
	} {
		shares.Read(test.node)
		for uid, want := range test.want {
			if got := shares.Of(uid); got != want {
				t.Errorf("pod %s of node %v takes %d, want %d", uid, test.node, got, want)
			}
		}
	}
}

// BenchmarkCandidates: 40,000 pods of 200 namespaces, in which two of three pods have one of 400 budgets and one of four a
// checkpoint, seen for the first time and with their traits known. The allowed time is 20 ms with those.
func BenchmarkCandidates(b *testing.B) {
	const pods, namespaces = 40_000, 200
	g := guards(b, config.GPUPreemptArgs{
		MinimumRuntime: metav1.Duration{Duration: time.Minute},
		Protected:      config.ProtectedPods{Namespaces: []string{"kube-system"}, LabelSelector: matchLabels("tier", "gold")},
	})
	var budgets []*policyv1.PodDisruptionBudget
	for i := range 2 * namespaces {
		budgets = append(budgets, budget(fmt.Sprintf("team-%d", i%namespaces), fmt.Sprint(i), 1, matchLabels("app", fmt.Sprint("app-", i/namespaces))))
	}
	var all []*v1.Pod
	for i := range pods {
		p := ran(time.Duration(i) * time.Second)
		p.Namespace, p.Name, p.UID = fmt.Sprintf("team-%d", i%namespaces), fmt.Sprint("pod-", i), types.UID(fmt.Sprint(i))
		p.Labels = map[string]string{"app": fmt.Sprint("app-", i/namespaces%3), "pod-template-hash": fmt.Sprint(i), "tier": "lead"}
		if i%4 == 0 {
			saved(p, noon.Add(-time.Minute).Format(time.RFC3339))
		}
		all = append(all, p)
	}
	traits, list := make([]Traits, pods), make([]Placed, pods)
	see := func() {
		for i, p := range all {
			traits[i] = g.TraitsOf(p, vgpu.Room{})
			list[i] = Placed{Traits: &traits[i], Share: 300, Gang: -1}
		}
	}
	see()
	for _, first := range []bool{true, false} {
		b.Run(fmt.Sprint("first=", first), func(b *testing.B) {
			b.ReportAllocs()
			start := spent(b)
			for b.Loop() {
				if first {
					see()
				}
				if c := Candidates(list, budgets, noon); len(c.Pods) != pods {
					b.Fatal(len(c.Pods))
				}
			}
			b.ReportMetric(float64((spent(b)-start).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// spent is the time that cores have worked for the process: others on the machine do not count.
func spent(tb testing.TB) time.Duration {
	var use syscall.Rusage
	must.OK(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
