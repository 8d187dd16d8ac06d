package elastic_test

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// hostname is a level with one domain for each node.
const hostname = "kubernetes.io/hostname"

// world is a cluster, with jobs whose workers are in its ledgers.
type world struct {
	*gang.Cluster
	jobs     []elastic.Job
	reserved []elastic.Reserved
	now      int64
}

// clusterOf returns a cluster of nodes, with the level of the hosts.
func clusterOf(nodes ...*vgpu.Node) *gang.Cluster {
	level := gang.Level{Key: hostname}
	for i, n := range nodes {
		level.Domain, level.Names = append(level.Domain, int32(i)), append(level.Names, n.Name())
	}
	return &gang.Cluster{Nodes: nodes, Levels: []gang.Level{level}}
}

// uniform draws one of the values, each as likely.
func uniform[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

// between draws a number from low to high, each as likely.
func between(t *rapid.T, label string, low, high int) int {
	values := make([]int, 0, high-low+1)
	for n := low; n <= high; n++ {
		values = append(values, n)
	}
	return uniform(t, label, values...)
}

// randomWorld draws a cluster of up to four nodes with up to four devices each, other pods on it, and up to five jobs, some
// of which run. All jobs are valid.
func randomWorld(t *rapid.T) *world {
	models := []testkit.Model{testkit.A100}
	if between(t, "unlike GPUs", 0, 3) == 3 {
		models = append(models, testkit.T4)
	}
	var nodes []*vgpu.Node
	for i := range between(t, "nodes", 1, 4) {
		name := fmt.Sprintf("n%d", i)
		n, err := vgpu.NewNode(name, uniform(t, "model", models...).Devices(name, between(t, "devices", 1, 4)))
		must.OK(t, err)
		n.SetRoom(vgpu.Room{MilliCPU: int64(uniform(t, "milli CPU", 4000, 16_000, 64_000))})
		nodes = append(nodes, n)
	}
	w := &world{Cluster: clusterOf(nodes...), now: 1_000_000}
	for i := range between(t, "other pods", 0, 4) {
		other := elastic.Job{Name: fmt.Sprintf("team/other-%d", i), Worker: worker(uniform(t, "slots", vgpu.Slots(1), 5, 10))}
		w.extend(t, &other, 1, "")
	}
	for range between(t, "reservations", 0, 2) {
		w.reserved = append(w.reserved, elastic.Reserved{
			Model: uniform(t, "model of a reservation", "", nodes[0].Devices()[0].Model), Amount: vgpu.MilliGPU(uniform(t, "amount", 0, 500, 1000, 3000)),
			From: uniform(t, "from", 0, w.now+100, w.now+300, w.now+1000, w.now+5000, w.now+50_000),
		})
	}
	for i := range between(t, "jobs", 0, 5) {
		w.jobs = append(w.jobs, randomJob(t, w, fmt.Sprintf("team/job-%d", i)))
		w.start(t, &w.jobs[i])
	}
	return w
}

func mustAdd(t must.T, n *vgpu.Node, a vgpu.Assignment) {
	must.OK(t, n.Add(a))
}

// randomJob draws a job that waits.
func randomJob(t *rapid.T, w *world, name string) elastic.Job {
	j := elastic.Job{
		Name: name, Priority: uniform(t, "priority", int32(0), 0, 0, 10), Arrived: w.now - int64(between(t, "age", 1, 40))*100,
		Worker: worker(uniform(t, "slots", vgpu.Slots(10), 10, 10, 5, 20)),
		Wishes: gang.Wishes{Preferred: []string{hostname}}, Cost: float64(uniform(t, "cost", 0, 10, 60, 300)),
	}
	j.Worker.Request.Host.MilliCPU = int64(uniform(t, "milli CPU of a worker", 0, 0, 0, 1000, 3000))
	least := between(t, "least", 1, 3)
	var err error
	switch uniform(t, "sizes", "rigid", "steps", "steps", "groups", "powers") {
	case "rigid":
		j.Sizes = []int{least}
	case "steps":
		j.Sizes, err = elastic.Steps(least, least+between(t, "more", 0, 8), 1)
	case "groups":
		j.Sizes, err = elastic.Steps(2*least, 2*least+between(t, "more", 0, 8), 2)
	case "powers":
		j.Sizes = powersOfTwo(least, least+between(t, "more", 0, 8))
	}
	must.OK(t, err)
	j.Curve.Growth, j.Curve.Apart = uniform(t, "growth", 0, .5, .9, 1), uniform(t, "apart", 0, .5, 1)
	for n := 1; n <= j.Sizes[len(j.Sizes)-1]; n += between(t, "gap", 1, 6) {
		rate := float64(n) * float64(between(t, "speed", 50, 100)) / 100
		j.Curve.Points = append(j.Curve.Points, elastic.Point{Workers: n, Hosts: between(t, "hosts", 0, n), Rate: rate})
	}
	if between(t, "remaining known", 0, 2) == 2 {
		j.Remaining = float64(uniform(t, "remaining", 10, 1000, 100_000))
	}
	return j
}

func worker(slots vgpu.Slots) gang.Member {
	return gang.Member{Request: vgpu.Request{Containers: []vgpu.ContainerRequest{{Name: "main", Slots: slots}}}}
}

// start lets a job run, mostly, with one of its sizes where that fits.
func (w *world) start(t *rapid.T, j *elastic.Job) {
	models := w.Nodes[0].Models()
	for _, n := range w.Nodes[1:] {
		models = append(models, n.Models()...)
	}
	if between(t, "waits", 0, 3) == 3 {
		return
	}
	if w.extend(t, j, uniform(t, "size", j.Sizes...), uniform(t, "on", models...)) {
		j.Started = j.Arrived + 50
	}
	switch n := len(j.Placed); between(t, "disturbed", 0, 9) {
	case 8: // a worker died
		if n > 1 {
			w.shrink(j, n-1)
		}
	case 9: // the user set a lower maximum
		j.Sizes = j.Sizes[:between(t, "sizes left", 1, len(j.Sizes))]
	}
}

// extend places further workers of a job as the scheduler does, and reports whether all have a place.
func (w *world) extend(t rapid.TB, j *elastic.Job, size int, model string) bool {
	g := &gang.Group{Name: j.Name, Placed: j.Placed, Wishes: j.Wishes, MinCount: size}
	for rank := len(j.Placed); rank < size; rank++ {
		m := j.Worker
		m.Rank = rank
		m.Request.UID, m.Request.Pod = vgpu.UID(fmt.Sprintf("%s-%d", j.Name, rank)), fmt.Sprintf("%s-%d", j.Name, rank)
		m.Request.Priority = j.Priority
		if model != "" {
			m.Request.Variants = []vgpu.Variant{{Model: model}}
		}
		g.Members = append(g.Members, m)
	}
	plan, err := gang.Place(w.Cluster, g, gang.Config{SkipExplanation: true})
	must.OK(t, err)
	if plan.Refused != nil || slices.ContainsFunc(plan.Places, func(a vgpu.Assignment) bool { return a.Node == "" }) {
		return false
	}
	for _, a := range plan.Places {
		n := w.node(a.Node)
		mustAdd(t, n, a)
		n.SetRoom(n.Room().Less(j.Worker.Request.Host))
	}
	j.Placed = append(slices.Clone(j.Placed), plan.Places...)
	return true
}

// shrink removes the workers with the highest ranks.
func (w *world) shrink(j *elastic.Job, size int) {
	for _, a := range j.Placed[size:] {
		n := w.node(a.Node)
		n.Remove(a.UID)
		n.SetRoom(n.Room().Plus(j.Worker.Request.Host))
	}
	j.Placed = slices.Clone(j.Placed[:size])
}

func (w *world) node(name string) *vgpu.Node {
	return w.Nodes[slices.IndexFunc(w.Nodes, func(n *vgpu.Node) bool { return n.Name() == name })]
}

// decide calls Workers.
func (w *world) decide(t must.T, cfg elastic.Config) elastic.Plan {
	plan, err := elastic.Workers(w.Cluster, w.jobs, w.reserved, w.now, cfg)
	must.OK(t, err)
	return plan
}

// apply does what a plan says, in its order, and reports how many sizes changed.
func (w *world) apply(t rapid.TB, plan elastic.Plan) (moves int) {
	for _, i := range plan.Order {
		j, target := &w.jobs[i], &plan.Targets[i]
		switch {
		case target.Workers < target.Now:
			w.shrink(j, target.Workers)
		case !w.extend(t, j, target.Workers, target.Model):
			continue
		}
		if target.Now == 0 {
			j.Started = w.now
		} else {
			j.Moved = append(slices.Clone(j.Moved), w.now)
		}
		moves++
	}
	return moves
}

// randomPolicy draws a policy.
func randomPolicy(t *rapid.T) elastic.Config {
	return elastic.Config{Policy: uniform(t, "policy", elastic.Policies()...)}
}
