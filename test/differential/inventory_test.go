package differential

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// Labels by which budgets know their pods, and how many values each has.
const (
	appLabel, tierLabel = "app", "tier"
	apps                = 4
)

// population is a full cluster twice over: as the model sees it, and as the scheduler does.
type population struct {
	random  *rand.Rand
	cluster *vgpu.Cluster
	// candidates with the time at which each started, in the order of pods.
	candidates preemption.Candidates
	started    []int64
	pods       []*v1.Pod
	budgets    []*policyv1.PodDisruptionBudget
}

// newPopulation fills a cluster of one to six unlike nodes with pods of unlike priority, of which some count against a budget, or
// two, some ask for no GPU, some are leaving already and some have the room of others held for them.
func newPopulation(t *testing.T, seed uint64) *population {
	t.Helper()
	c := &population{random: rand.New(rand.NewPCG(seed, 1))}
	models := []vgpu.Device{
		{Model: "A100", Slots: 10, Memory: 40 * vgpu.GiB}, {Model: "H100", Slots: 1000, Memory: 80 * vgpu.GiB},
		{Model: "T4", Slots: 4, Memory: 16 * vgpu.GiB},
	}
	var nodes []*vgpu.Node
	for i := range 1 + c.random.IntN(6) {
		gpus := []int{1, 2, 4, 8}[c.random.IntN(4)]
		nodes = append(nodes, newNode(t, fmt.Sprintf("n%d", i), int64(gpus*(4+c.random.IntN(12))), gpus, models[c.random.IntN(3)]))
	}
	cluster, err := vgpu.NewCluster(nodes...)
	must.OK(t, err)
	c.cluster = cluster
	c.allow()
	for misses := 0; misses < 30; {
		if !c.enter(t) {
			misses++
		}
	}
	return c
}

// newWidePopulation has so many nodes of one GPU with a pod each, which differ in when they started.
func newWidePopulation(t *testing.T, nodes int) *population {
	t.Helper()
	c := &population{random: rand.New(rand.NewPCG(1, 2))}
	all := make([]*vgpu.Node, 0, nodes)
	for i := range nodes {
		all = append(all, newNode(t, fmt.Sprintf("n%d", i), 16, 1, vgpu.Device{Model: "A100", Slots: 10, Memory: 40 * vgpu.GiB}))
	}
	var err error
	if c.cluster, err = vgpu.NewCluster(all...); err != nil {
		t.Fatal(err)
	}
	c.allow()
	for i, n := range c.cluster.Nodes() {
		c.run(t, n, &vgpu.Request{UID: vgpu.UID(fmt.Sprintf("p%04d", i)), Pod: fmt.Sprintf("default/p%04d", i), Containers: whole})
	}
	return c
}

// whole is what a pod with a GPU of ten slots asks for.
var whole = []vgpu.ContainerRequest{{Name: "main", Slots: 10}}

// allow makes the budgets: one for each app, and one that crosses them.
func (c *population) allow() {
	budget := func(name, label, value string, allowed int) {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}
		b.Status.DisruptionsAllowed = int32(allowed)
		c.budgets = append(c.budgets, b)
		c.candidates.Budgets = append(c.candidates.Budgets, preemption.Budget{Name: name, Allowed: allowed})
	}
	for i := range apps {
		budget(fmt.Sprintf("app-%d", i), appLabel, fmt.Sprint(i), max(0, c.random.IntN(4)-1))
	}
	budget("tier-0", tierLabel, "0", c.random.IntN(4))
}

// enter places one more pod where there is room, and reports whether there is.
func (c *population) enter(t *testing.T) bool {
	t.Helper()
	i := len(c.pods)
	j := sim.Job{Request: draw(c.random)}
	r := &j.Request
	r.UID, r.Priority = vgpu.UID(fmt.Sprintf("p%04d", i)), int32([]int{-5, 0, 0, 0, 10, 10, 500, 1000}[c.random.IntN(8)])
	r.Pod = "default/" + string(r.UID)
	if len(r.Containers) > 0 && c.random.IntN(2) == 0 { // small ones, of which several go for one
		r.Containers[0].Slots = vgpu.Slots([]int{1, 2, 3, 120, 250}[c.random.IntN(5)])
	}
	n := c.anyWith(r)
	if n == nil {
		return false
	}
	c.run(t, n, r)
	return true
}

// run places a pod on a node that has room.
func (c *population) run(t *testing.T, n *vgpu.Node, r *vgpu.Request) {
	t.Helper()
	bound := preemption.Pod{UID: r.UID, Name: r.Pod, Node: n.Name(), Host: r.Host, Priority: r.Priority, Gang: -1, Leaving: c.random.IntN(20) == 0}
	p := pod(&sim.Job{Request: *r})
	p.Spec.NodeName, p.Spec.Priority = n.Name(), &bound.Priority
	if len(r.Containers) > 0 {
		c.book(t, n, r, p)
	}
	n.SetRoom(n.Room().Minus(r.Host))
	c.label(p, &bound)
	started := metav1.Unix(int64(1_000_000+c.random.IntN(1_000)*1_000+len(c.pods)), 0) // no two at the same time
	p.Status.Phase, p.Status.StartTime = v1.PodRunning, &started
	if bound.Leaving {
		p.DeletionTimestamp = &started
	}
	c.pods, c.candidates.Pods = append(c.pods, p), append(c.candidates.Pods, bound)
	c.started = append(c.started, started.Unix())
}

// anyWith returns a node that has room for a pod, any of them; nil for none.
func (c *population) anyWith(r *vgpu.Request) *vgpu.Node {
	nodes := c.cluster.Nodes()
	for _, i := range c.random.Perm(len(nodes)) {
		if r.Host.Within(nodes[i].Room()) && placement.Fit(nodes[i], r) == nil {
			return nodes[i]
		}
	}
	return nil
}

// book gives a pod devices, in the ledger and as its Binding would.
func (c *population) book(t *testing.T, n *vgpu.Node, r *vgpu.Request, p *v1.Pod) {
	t.Helper()
	name := []string{"packed", "spread"}[c.random.IntN(2)]
	policy, err := placement.ByName(name)
	must.OK(t, err)
	a, refusal := placement.Assign(n, r, policy)
	if refusal != nil {
		t.Fatal(refusal)
	}
	must.OK(t, n.Add(a))
	text, err := kube.EncodeAssignment(a)
	must.OK(t, err)
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[v1alpha1.AnnotationAssignment] = text
}

// label puts most pods under a budget, and some of those under a second one.
func (c *population) label(p *v1.Pod, bound *preemption.Pod) {
	if c.random.IntN(5) == 0 {
		return
	}
	app := c.random.IntN(apps)
	p.Labels = map[string]string{appLabel: fmt.Sprint(app)}
	bound.Budgets = []int{app}
	if c.random.IntN(8) == 0 {
		p.Labels[tierLabel] = "0"
		bound.Budgets = append(bound.Budgets, apps)
	}
}

// hold keeps room for pods that have not come yet, which counts or not by their priority.
func (c *population) hold(t *testing.T, keep func(vgpu.Hold) error) {
	t.Helper()
	for i, n := range c.cluster.Nodes() {
		if c.random.IntN(2) == 0 {
			continue
		}
		r := vgpu.Request{UID: vgpu.UID(fmt.Sprintf("held-%d", i)), Pod: fmt.Sprintf("default/held-%d", i),
			Containers: []vgpu.ContainerRequest{{Name: "main", Slots: 1 + vgpu.Slots(c.random.IntN(4))}}}
		a, refusal := placement.Assign(n, &r, placement.Policy{})
		if refusal != nil {
			continue
		}
		h := vgpu.Hold{Assignment: a, Priority: int32([]int{0, 700, 100_000}[c.random.IntN(3)])}
		must.OK(t, n.Hold(h))
		must.OK(t, keep(h))
	}
}

// preemptor returns a pod that fits nowhere, of a priority from below that of all to above; false where none is found. Many
// ask for several GPUs, which takes several victims.
func (c *population) preemptor(number int) (vgpu.Request, *v1.Pod, bool) {
	for range 200 {
		j := sim.Job{Request: draw(c.random)}
		r := &j.Request
		r.UID = vgpu.UID(fmt.Sprintf("preemptor-%d", number))
		r.Pod = "default/" + string(r.UID)
		if n := c.cluster.Nodes()[c.random.IntN(len(c.cluster.Nodes()))]; len(r.Containers) > 0 && c.random.IntN(2) == 0 {
			of := n.Devices()
			r.Containers[0].Slots, r.Containers[0].Memory = of[0].Slots*vgpu.Slots(1+c.random.IntN(len(of))), 0
		}
		r.Priority = int32([]int{0, 10, 100, 700, 5000, 5000}[c.random.IntN(6)])
		if c.anyWith(r) != nil {
			continue
		}
		p := pod(&j)
		p.Spec.Priority, p.Spec.PreemptionPolicy = &r.Priority, ptr.To(v1.PreemptLowerPriority)
		return *r, p, true
	}
	return vgpu.Request{}, nil, false
}
