package gpupreempt

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
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/victims"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// candidates returns those for a preemptor with a priority, on all nodes with GPUs.
func (c *cluster) candidates(priority int32) (*preemption.Candidates, []*v1.Pod, error) {
	c.T.Helper()
	nodes := c.nodes()
	ledgers, err := c.plugin.sharesOrNil().Ledgers(c.T.Context(), pod("any", 10, 0), nodes, func(string) bool { return false })
	must.OK(c.T, err)
	return c.plugin.candidates(nodes, ledgers, nil, priority)
}

// byLabel knows gangs by their label.
type byLabel struct{ machine.Gangs }

func (byLabel) Of(pod *v1.Pod) (podgroup.Ref, bool) {
	name := membership.GangsOf(pod).Label
	return podgroup.Ref{Source: podgroup.Label, Namespace: pod.Namespace, Name: name}, name != ""
}

// Gang returns a gang of which two members stay.
func (byLabel) Gang(ref podgroup.Ref) (*podgroup.Gang, error) {
	return &podgroup.Gang{Ref: ref, MinCount: 2}, nil
}

func (byLabel) Queues(podgroup.Source) bool { return false }

// census is a plugin without a scheduler, on nodes that the test fills.
type census struct {
	plugin  *Plugin
	budgets cache.Indexer
	now     time.Time
	nodes   []fwk.NodeInfo
	ledgers []*vgpu.Node
	named   int
}

func newCensus(t testing.TB) *census {
	guards, err := victims.NewGuards(&config.GPUPreemptArgs{
		MinimumRuntime: metav1.Duration{Duration: time.Hour},
		Protected:      config.ProtectedPods{Namespaces: []string{"system"}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}},
	})
	must.OK(t, err)
	s := &census{now: time.Unix(1_800_000_000, 0), budgets: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
	s.plugin = &Plugin{
		guards: guards, budgets: policylisters.NewPodDisruptionBudgetLister(s.budgets), now: func() time.Time { return s.now }, notes: notes{byNode: map[string][]note{}},
	}
	s.plugin.machine = newMachine(s.plugin.now)
	return s
}

// chooses notes that a pod was chosen as a victim.
func (s *census) chooses(uid vgpu.UID, until time.Time) {
	s.plugin.machine.Step(func(machine.Locked) reservation.Event {
		return reservation.PodRoomMade{PodRef: reservation.PodRef{UID: "uid-preemptor"}, Evict: []reservation.Chosen{{UID: uid, Until: until}}}
	})
}

// addNode adds a node of two devices, without a ledger if it is bare.
func (s *census) addNode(t testing.TB, bare bool) {
	s.named++
	name := fmt.Sprintf("n%d", s.named)
	info := framework.NewNodeInfo()
	info.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	s.nodes = append(s.nodes, info)
	if bare {
		s.ledgers = append(s.ledgers, nil)
	} else {
		s.ledgers = append(s.ledgers, testkit.Node(t, name, testkit.A100, 2))
	}
}

// place gives a pod the node at an index, and slots of its first device where it has those and they are free.
func (s *census) place(t testing.TB, p *v1.Pod, at int, slots vgpu.Slots) {
	p.Spec.NodeName = s.nodes[at].Node().Name
	s.nodes[at].AddPodInfo(info(t, p))
	if n := s.ledgers[at]; n != nil && slots > 0 && n.FreeFor(0, &vgpu.Request{}).Slots >= slots {
		a := testkit.Assignment(t, n, 0, string(p.UID), slots)
		must.OK(t, n.Add(a))
	}
}

func info(t testing.TB, p *v1.Pod) fwk.PodInfo {
	i, err := framework.NewPodInfo(p)
	must.OK(t, err)
	return i
}

// On nodes that are out of the question the plugin lists only members of gangs, with what they take.
func TestCandidatesOfNodes(t *testing.T) {
	t.Parallel()
	s := newCensus(t)
	for at := range 3 {
		s.addNode(t, at == 2)
		p, member := pod(fmt.Sprintf("p%d", at), 0, 1), pod(fmt.Sprintf("m%d", at), 0, 9)
		member.Labels = map[string]string{v1alpha1.LabelGang: "gang"}
		start := metav1.NewTime(s.now.Add(-time.Minute))
		member.Status.StartTime = &start
		s.place(t, p, at, 3)
		s.place(t, member, at, 5)
		s.nodes[at].AddPodInfo(info(t, pod(fmt.Sprintf("nominated%d", at), 0, 1))) // it has no node yet
	}
	for _, test := range []struct {
		open []bool
		want map[string]int64
	}{
		{nil, map[string]int64{"default/p0": 0, "default/m0": 30_000, "default/p1": 0, "default/m1": 30_000, "default/m2": 0}},
		{[]bool{true, true, true}, map[string]int64{"default/p0": 0, "default/m0": 30_000, "default/p1": 0, "default/m1": 30_000, "default/m2": 0}},
		{[]bool{false, true, false}, map[string]int64{"default/m0": 30_000, "default/p1": 0, "default/m1": 30_000, "default/m2": 0}},
	} {
		from, pods, err := s.plugin.candidates(s.nodes, s.ledgers, test.open, 5)
		must.OK(t, err)
		got := map[string]int64{}
		for i, c := range from.Pods {
			got[c.Name] = c.Lost
			if kube.UIDOf(pods[i]) != c.UID || (c.Gang == 0) != (pods[i].Labels[v1alpha1.LabelGang] != "") {
				t.Errorf("open %v: candidate %d is %+v, its pod %s", test.open, i, c, pods[i].Name)
			}
		}
		expect(t, fmt.Sprint("open ", test.open), test.want, got)
		expect(t, "gangs", []preemption.Gang{{Name: "default/gang", MinCount: 2}}, from.Gangs)
	}
}

// The plugin remembers what a plugin sees that looks for the first time, whatever happens to pods, nodes, budgets and the clock
// between two looks.
func TestNotesProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := newCensus(t)
		s.addNode(t, false)
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			for range rapid.IntRange(0, 3).Draw(r, "changes") {
				s.change(t, r)
			}
			s.compare(r)
		}
	})
}

// compare holds what the plugin lists against what one without notes does, and against what is known of each pod.
func (s *census) compare(r *rapid.T) {
	priority := rapid.Int32Range(0, 3).Draw(r, "priority")
	var open []bool
	if rapid.Bool().Draw(r, "some closed") {
		open = rapid.SliceOfN(rapid.Bool(), len(s.nodes), len(s.nodes)).Draw(r, "open")
	}
	from, pods, err := s.plugin.candidates(s.nodes, s.ledgers, open, priority)
	must.OK(r, err)
	first := &Plugin{
		guards: s.plugin.guards, budgets: s.plugin.budgets, machine: s.plugin.machine, now: s.plugin.now,
		notes: notes{byNode: map[string][]note{}},
	}
	fresh, same, err := first.candidates(s.nodes, s.ledgers, open, priority)
	must.OK(r, err)
	if diff := cmp.Diff(fresh, from); diff != "" {
		r.Fatalf("at first sight and remembered (-fresh +remembered):\n%s", diff)
	}
	if !slices.Equal(pods, same) {
		r.Fatal("the pods are other objects than those of the nodes")
	}
	for i, c := range from.Pods {
		if guard := s.plugin.guards.Of(pods[i], s.now); guard != c.Guard {
			r.Fatalf("pod %s has the guard %q, want %q", c.Name, c.Guard, guard)
		}
	}
	names := map[string]bool{}
	for _, n := range s.nodes {
		names[n.Node().Name] = true
	}
	for name, list := range s.plugin.notes.byNode {
		if !names[name] || len(list) != len(s.info(name).GetPods()) {
			r.Fatalf("%d notes of node %s are kept", len(list), name)
		}
	}
}

// Notes that no search uses are dropped, and not before.
func TestNotesExpire(t *testing.T) {
	t.Parallel()
	s := newCensus(t)
	s.addNode(t, false)
	s.place(t, pod("a", 0, 0), 0, 1)
	if _, _, err := s.plugin.candidates(s.nodes, s.ledgers, nil, 5); err != nil {
		t.Fatal(err)
	}
	s.now = s.now.Add(noteAge)
	s.plugin.Tick(t.Context())
	expect(t, "notes in time", 1, len(s.plugin.notes.byNode["n1"]))
	s.now = s.now.Add(1)
	s.plugin.Tick(t.Context())
	expect(t, "notes later", 0, len(s.plugin.notes.byNode))
}

// calm is a handle whose filters let all pods pass, with pods that are nominated for n1.
type calm struct {
	fwk.Handle
	named
}

func (c calm) NominatedPodsForNode(node string) []fwk.PodInfo {
	return c.named.NominatedPodsForNode(node)
}

func (calm) RunFilterPluginsWithNominatedPods(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) *fwk.Status {
	return nil
}

func (calm) RunPreFilterExtensionRemovePod(context.Context, fwk.CycleState, *v1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}

// If pods that are nominated for a host need its room, the cheapest pods there make none: others are evicted, or none. Each node
// has 3 CPUs left and a pod with one on its only device; the preemptor needs 2, and the pod of n1 is the cheaper one.
func TestRoomOfNominated(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		cpu      string
		priority int32
		node     string
		searches int
	}{
		{"room for both", "2", 5, "n1", 1},
		{"room for one", "2001m", 5, "n2", 2},
		{"room for one, the nominated is of a lower priority", "3", 4, "n1", 1},
		{"room for one, the nominated is of a higher priority", "3", 6, "n2", 2},
	} {
		s := newCensus(t)
		for at, priority := range []int32{1, 2} {
			s.addNode(t, false)
			s.nodes[at].SetNode(&v1.Node{
				ObjectMeta: s.nodes[at].Node().ObjectMeta, Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}},
			})
			s.ledgers[at] = testkit.Node(t, s.nodes[at].Node().Name, testkit.A100, 1)
			s.ledgers[at].SetRoom(vgpu.Room{MilliCPU: 3000})
			low := pod(fmt.Sprintf("low%d", at), 0, priority)
			low.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
			start := metav1.NewTime(s.now.Add(-2 * time.Hour))
			low.Status.StartTime = &start
			s.place(t, low, at, 10)
		}
		other := pod("other", 0, test.priority)
		other.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(test.cpu)}
		s.plugin.handle = calm{named: named{pods: []fwk.PodInfo{info(t, other)}}}
		searches := 0
		s.plugin.core = func(c *gang.Cluster, g *gang.Group, from *preemption.Candidates, cfg preemption.Config) (preemption.Plan, error) {
			searches++
			return preemption.Victims(c, g, from, cfg)
		}
		plan, _, why, err := s.plugin.solve(t.Context(), framework.NewCycleState(), s.question(t, 5, vgpu.Room{MilliCPU: 2000}))
		if err != nil || plan.Refused != nil {
			t.Fatalf("%s: %v, %+v, %s", test.name, err, plan.Refused, why)
		}
		expect(t, test.name+": node", test.node, plan.Places[0].Node)
		expect(t, test.name+": searches", test.searches, searches)
	}
}

// question asks for one device for a pod of a priority that needs so much of a host.
func (s *census) question(t testing.TB, priority int32, host vgpu.Room) *question {
	want := testkit.Request("default/high", 10)
	want.Priority, want.Host = priority, host
	policy, err := placement.ByName("packed")
	must.OK(t, err)
	q := &question{
		pod: pod("high", 10, priority), priority: priority, group: &gang.Group{Name: want.Pod, MinCount: 1, Members: []gang.Member{{Request: *want}}},
		config: preemption.Config{Config: gang.Config{Policy: policy}},
	}
	q.setNodes(s.nodes, s.ledgers)
	if q.from, q.pods, err = s.plugin.candidates(s.nodes, s.ledgers, nil, priority); err != nil {
		t.Fatal(err)
	}
	q.open = make([]bool, len(q.infos))
	return q
}

// holdsAll holds whatever it is asked for.
type holdsAll struct{}

func (holdsAll) Hold(vgpu.Hold) error  { return nil }
func (holdsAll) Release(vgpu.UID) bool { return true }

// newMachine returns a machine whose devices can always be held, by a clock.
func newMachine(now func() time.Time) *machine.Machine {
	m := machine.New(func() machine.Shares { return holdsAll{} })
	m.Join(machine.Joined{Now: now, Gangs: byLabel{}, Metrics: newMetrics(), Configure: func(*reservation.Config) {}})
	return m
}
