package experiment

import (
	"cmp"
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// hostname is the level of the nodes: the first that the scheduler prefers where a gang names none.
const hostname = "kubernetes.io/hostname"

// slotsOfGPU is N of the devices: the default of the node agent. A worker asks for all slots of one.
const slotsOfGPU vgpu.Slots = 10

// gangBook keeps the ledgers of the nodes, and places gangs by the function of the scheduler, packed as the scheduler is
// while it knows no usual requests.
type gangBook struct {
	cluster gang.Cluster
	// losses is what the placement is told of what a gang loses on several nodes; nil for nothing.
	losses func(j *gangJob) []gang.Loss
	// assigned are the places of the jobs that run, by id.
	assigned map[int][]vgpu.Assignment
	byName   map[string]int
}

// together is what the scheduler prefers of a gang that names nothing: one node, else as few as possible.
var together = gang.Wishes{Preferred: []string{hostname}}

// measuredLoss is what a profile says of a job: what was measured.
func measuredLoss(j *gangJob) []gang.Loss {
	return []gang.Loss{{Level: hostname, Part: vgpu.MilliGPU(j.loss)}}
}

// noLoss says that nodes make no difference, whatever is true.
func noLoss(*gangJob) []gang.Loss { return []gang.Loss{{Level: hostname}} }

// newGangBook returns ledgers of nodes with so many GPUs each, whose gangs wish to be together.
func newGangBook(nodes, perNode int) (*gangBook, error) {
	b := &gangBook{assigned: map[int][]vgpu.Assignment{}, byName: map[string]int{}}
	level := gang.Level{Key: hostname}
	for i := range nodes {
		n, err := wholeNode(fmt.Sprintf("node-%04d", i), perNode)
		if err != nil {
			return nil, err
		}
		b.cluster.Nodes = append(b.cluster.Nodes, n)
		b.byName[n.Name()] = i
		level.Domain, level.Names = append(level.Domain, int32(i)), append(level.Names, n.Name())
	}
	b.cluster.Levels = []gang.Level{level}
	return b, nil
}

// wholeNode is a node with so many idle GPUs.
func wholeNode(name string, gpus int) (*vgpu.Node, error) {
	devices := make([]vgpu.Device, gpus)
	for d := range devices {
		devices[d] = vgpu.Device{
			ID: vgpu.DeviceID(fmt.Sprintf("%s-gpu-%02d", name, d)), Index: d, Model: "GPU", Slots: slotsOfGPU, Memory: 16 * vgpu.GiB, Healthy: true,
		}
	}
	return vgpu.NewNode(name, devices)
}

// sync takes out the jobs that ended or were stopped.
func (b *gangBook) sync(c *gangCluster) {
	runs := map[int]bool{}
	for _, j := range c.jobs {
		runs[j.id] = !j.waits()
	}
	for id, places := range b.assigned {
		if !runs[id] {
			for _, a := range places {
				b.cluster.Nodes[b.byName[a.Node]].Remove(a.UID)
			}
			delete(b.assigned, id)
		}
	}
}

// group is a job as the scheduler sees it. Ends is as in vgpu.Request.
func (b *gangBook) group(j *gangJob, ends int64) *gang.Group {
	g := &gang.Group{Name: fmt.Sprintf("default/job-%04d", j.id), MinCount: j.workers, Wishes: together}
	if b.losses != nil {
		g.Losses = b.losses(j)
	}
	for rank := range j.workers {
		g.Members = append(g.Members, gang.Member{Rank: rank, Request: vgpu.Request{
			UID: vgpu.UID(fmt.Sprintf("%04d-%04d", j.id, rank)), Pod: fmt.Sprintf("%s-%d", g.Name, rank), Ends: ends,
			Containers: []vgpu.ContainerRequest{{Name: "main", Slots: slotsOfGPU}},
		}})
	}
	return g
}

// add books the places of a job, and returns the node of each of its workers.
func (b *gangBook) add(j *gangJob, places []vgpu.Assignment) ([]int, error) {
	nodes := make([]int, 0, len(places))
	for _, a := range places {
		n, ok := b.byName[a.Node]
		if !ok {
			return nil, fmt.Errorf("place job %d: pod %s has no node", j.id, a.Pod)
		}
		if err := b.cluster.Nodes[n].Add(a); err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	b.assigned[j.id] = places
	return nodes, nil
}

// place books a job for which there are enough free GPUs.
func (b *gangBook) place(_ *gangCluster, j *gangJob) ([]int, error) {
	plan, err := gang.Place(&b.cluster, b.group(j, 0), gang.Config{})
	if err != nil {
		return nil, err
	}
	if plan.Refused != nil {
		return nil, fmt.Errorf("place job %d: %v", j.id, plan.Refused)
	}
	return b.add(j, plan.Places)
}

// drainAfter is the default of GPUGangArgs, in seconds.
const drainAfter = 60

// tandemGangs is what the scheduler does with jobs whose pods form gangs: in an order, whole gangs where gang.Place puts them;
// one that does not fit lets others pass, and once the first of those that wait was passed over it has devices kept for it
// while their owners end. Nothing that runs is stopped.
type tandemGangs struct {
	*gangBook
	order func(a, b *gangJob) int
	// drainAfter is for how many seconds a job waits before devices are kept for it, 0 for ever. Declares is by what factor
	// more time than expected the pods declare as theirs (activeDeadlineSeconds), 0 for none.
	drainAfter, declares float64
	// draining is the job for which devices are kept, and held their places.
	draining *gangJob
	held     []vgpu.Assignment
	// started and ends are when the pods did and when they declare to; short is since when a job waits for room.
	started, ends map[vgpu.UID]int64
	short         map[int]float64
	// refused has the version of the ledgers on which a job was refused: it is not asked again on the same.
	refused map[int]int
	version int
}

func (t *tandemGangs) round(c *gangCluster) error {
	before := len(t.assigned)
	t.sync(c)
	if len(t.assigned) != before || t.declares > 0 {
		t.version++
	}
	var first *gangJob
	for _, j := range waiting(c, t.order) {
		started, err := t.try(c, j)
		if err != nil {
			return err
		}
		if !started && first == nil {
			first = j
		}
	}
	if first == nil || t.drainAfter == 0 || t.draining != nil || c.now-t.short[first.id] < t.drainAfter {
		return nil
	}
	over, err := t.passedOver(c, first)
	if err != nil || !over {
		return err
	}
	return t.drain(c, first)
}

// passedOver reports whether the room that a job waits for has changed hands since it began to wait.
func (t *tandemGangs) passedOver(c *gangCluster, j *gangJob) (bool, error) {
	plan, err := gang.Place(&t.cluster, t.group(j, t.end(c, j)), gang.Config{})
	if err != nil || plan.Refused == nil {
		return false, err
	}
	since := int64(t.short[j.id])
	return plan.Refused.PassedOver(since, func(uid vgpu.UID, _ string) int64 { return t.started[uid] }), nil
}

// try starts a job if it fits.
func (t *tandemGangs) try(c *gangCluster, j *gangJob) (started bool, err error) {
	if _, waits := t.short[j.id]; !waits {
		t.short[j.id] = c.now
	}
	if at, asked := t.refused[j.id]; c.idle() < j.workers || asked && at == t.version {
		return false, nil
	}
	g := t.group(j, t.end(c, j))
	plan, err := gang.Place(&t.cluster, g, gang.Config{Brief: true})
	if err != nil {
		return false, err
	}
	if plan.Refused != nil {
		t.refused[j.id] = t.version
		return false, nil
	}
	nodes, err := t.add(j, plan.Places)
	if err != nil {
		return false, err
	}
	if t.draining == j {
		t.release()
	}
	t.version++
	for _, a := range plan.Places {
		t.started[a.UID], t.ends[a.UID] = int64(c.now), t.end(c, j)
	}
	c.start(j, nodes)
	return true, nil
}

// end is the time at which a job that starts now declares to end, 0 where it declares none.
func (t *tandemGangs) end(c *gangCluster, j *gangJob) int64 {
	if t.declares == 0 {
		return 0
	}
	return int64(c.now + t.declares*j.expected)
}

// drain keeps devices for a job.
func (t *tandemGangs) drain(c *gangCluster, j *gangJob) error {
	plan, err := gang.Drain(&t.cluster, t.group(j, t.end(c, j)), gang.Config{})
	if err != nil || plan.Refused != nil {
		return err
	}
	for _, a := range plan.Places {
		if err := t.cluster.Nodes[t.byName[a.Node]].Hold(vgpu.Hold{Assignment: a, Until: plan.Until}); err != nil {
			return err
		}
	}
	t.draining, t.held = j, plan.Places
	t.version++
	return nil
}

// release keeps the devices no longer.
func (t *tandemGangs) release() {
	for _, a := range t.held {
		t.cluster.Nodes[t.byName[a.Node]].Release(a.UID)
	}
	t.draining, t.held = nil, nil
}

// byExpected is the job with the least expected GPU time first.
func byExpected(a, b *gangJob) int {
	return cmp.Or(cmp.Compare(a.expected*float64(a.workers), b.expected*float64(b.workers)), byArrival(a, b))
}
