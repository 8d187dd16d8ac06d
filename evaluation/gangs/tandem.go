package gangs

import (
	"cmp"
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// hostname is the level of the nodes: the first that the scheduler prefers where a gang names none.
const hostname = "kubernetes.io/hostname"

// slotsOfGPU is N of the devices: the default of the node agent. A worker requests all slots of one.
const slotsOfGPU vgpu.Slots = 10

// gangBook keeps the ledgers of the nodes, and places gangs by the function of the scheduler, packed as the scheduler is
// while it knows no usual requests.
type gangBook struct {
	cluster gang.Cluster
	// losses returns the losses of a gang on several nodes, for the placement; nil for none.
	losses func(j *gangJob) []gang.Loss
	// assigned are the places of the jobs that run, by id.
	assigned map[int][]vgpu.Assignment
	byName   map[string]int
}

// together is what the scheduler prefers of a gang that names nothing: one node, else as few as possible.
var together = gang.Wishes{Preferred: []string{hostname}}

// measuredLoss is the measured loss of a job, as its profile would declare it.
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

// sync takes out the jobs that have ended or stopped.
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

// Defaults of GPUGangArgs, in seconds.
const (
	drainAfter      = 24 * 3600
	eagerDrainAfter = 60 // with drain: Enabled
	drainTimeout    = 24 * 3600
)

// lookAgain is the pause between two looks of the scheduler whether to keep devices for a job: shorter than a round.
const lookAgain = 15

// lookAtSize is the pause, in seconds, before the predicted size of a job is compared again.
const lookAtSize = 600

// tandemGangs places jobs whose pods form gangs as the scheduler does: in an order, whole gangs where gang.Place puts
// them. A gang that does not fit lets others pass. The scheduler keeps devices for one gang at a time while their
// owners end, where gang.Keep says so. Running jobs never stop.
type tandemGangs struct {
	*gangBook
	order  func(a, b *gangJob) int
	drains gang.Drains
	// declares is by what factor more time than expected the pods declare as theirs (activeDeadlineSeconds), 0 for none.
	declares float64
	// forecasts predict the ends that pods do not declare, and for which jobs devices are kept, nil for none.
	forecasts *forecasts
	// draining is the job for which the scheduler keeps devices since a time, and held their places.
	draining *gangJob
	since    float64
	held     []vgpu.Assignment
	// started and ends are the times of the pods' start and declared end. short is the time since which a job waits for
	// room, and look the time of the next look whether to keep devices for it.
	started, ends map[vgpu.UID]int64
	short, look   map[int]float64
	// refused has the version of the ledgers at the refusal of a job: the placement skips the job on the same version.
	refused map[int]int
	version int
}

func (t *tandemGangs) round(c *gangCluster) error {
	before := len(t.assigned)
	t.sync(c)
	if t.forecasts != nil {
		if err := t.forecasts.learn(c); err != nil {
			return err
		}
	}
	if len(t.assigned) != before || t.declares > 0 || t.forecasts != nil {
		t.version++
	}
	if t.draining != nil && c.now-t.since > drainTimeout {
		t.look[t.draining.id] = c.now + eagerDrainAfter
		t.release()
		t.version++
	}
	var left []*gangJob
	for _, j := range waiting(c, t.order) {
		started, err := t.try(c, j)
		if err != nil {
			return err
		}
		if !started {
			left = append(left, j)
		}
	}
	for _, j := range left {
		if t.draining != nil || t.drains == gang.NoDrains {
			return nil
		}
		if err := t.drain(c, j); err != nil {
			return err
		}
	}
	return nil
}

// try starts a job if it fits.
func (t *tandemGangs) try(c *gangCluster, j *gangJob) (started bool, err error) {
	if _, waits := t.short[j.id]; !waits {
		t.short[j.id], t.look[j.id] = c.now, c.now+t.drainAfter()
	}
	if at, asked := t.refused[j.id]; c.idle() < j.workers || asked && at == t.version {
		return false, nil
	}
	g := t.group(j, t.end(c, j))
	plan, err := gang.Place(&t.cluster, g, gang.Config{SkipExplanation: true})
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
	pods := make([]vgpu.UID, 0, len(plan.Places))
	for _, a := range plan.Places {
		t.started[a.UID], t.ends[a.UID] = int64(c.now), t.end(c, j)
		pods = append(pods, a.UID)
	}
	if t.forecasts != nil {
		t.forecasts.begin(j, c.now, pods)
	}
	c.start(j, nodes)
	return true, nil
}

// drainAfter is how long a job waits before the scheduler keeps devices for it.
func (t *tandemGangs) drainAfter() float64 {
	if t.drains == gang.AllDrains || t.forecasts != nil {
		return eagerDrainAfter
	}
	return drainAfter
}

// end is the time at which a job that starts now declares, or is predicted, to end, 0 where neither is so.
func (t *tandemGangs) end(c *gangCluster, j *gangJob) int64 {
	if t.forecasts != nil {
		end, _ := t.forecasts.end(j, c.now) // legal jobs have legal ages
		return end
	}
	if t.declares == 0 {
		return 0
	}
	return int64(c.now + t.declares*j.expected)
}

// drain keeps devices for a job, if the time has come for it.
func (t *tandemGangs) drain(c *gangCluster, j *gangJob) error {
	if c.now < t.look[j.id] {
		return nil
	}
	if t.forecasts != nil && !t.forecasts.pays(c, j) {
		t.look[j.id] = c.now + lookAtSize
		return nil
	}
	turn := gang.DrainCheck{
		Drains: t.drains, Since: int64(t.short[j.id]), Now: int64(c.now),
		Started: func(uid vgpu.UID, _ string) int64 { return t.started[uid] },
	}
	plan, err := gang.Keep(&t.cluster, t.group(j, t.end(c, j)), gang.Config{}, turn)
	if err != nil {
		return err
	}
	if plan.Places == nil {
		t.look[j.id] = c.now + max(lookAgain, float64(turn.Pause()))
		return nil
	}
	for _, a := range plan.Places {
		if err := t.cluster.Nodes[t.byName[a.Node]].Hold(vgpu.Hold{Assignment: a, Until: plan.Until}); err != nil {
			return err
		}
	}
	t.draining, t.since, t.held = j, c.now, plan.Places
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
