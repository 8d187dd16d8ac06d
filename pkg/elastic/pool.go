package elastic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// pool is the devices of one GPU model, and the jobs that use them or wait for them.
type pool struct {
	// device is one of the devices.
	device *vgpu.Device
	// free is the compute that no pod uses and that is not reserved. capacity is the sum of free and of what the jobs
	// use.
	free, capacity vgpu.MilliGPU
	// lent is reserved capacity that is not needed yet, the soonest first. Neither free nor capacity counts it.
	lent []loan
	// perHost is the compute of the node that has the most, devices counts the healthy devices. The entries have least as their least sizes together.
	perHost vgpu.MilliGPU
	least   vgpu.MilliGPU
	devices int
	// entries are the jobs, by priority, arrival and name.
	entries []*entry
}

// loan is capacity that others need from a time on, in seconds from now until jobs must begin to give it back.
type loan struct {
	amount vgpu.MilliGPU
	lasts  float64
}

// entry is a job in a pool.
type entry struct {
	*Job
	// at is the place of the job in the caller's list.
	at   int
	pool *pool
	// unit is what one worker takes of a device.
	unit vgpu.MilliGPU
	// size is the size that the job has, 0 for a job that waits. See Job.size.
	size int
	// rates are the expected rates at the legal sizes. For a smaller size the places are known, since the workers with
	// the highest ranks leave. Else they are on as few hosts as possible. current is the rate of the size that the job
	// has with its places, 0 for a job that waits. base is the rate of the least size on as few hosts as possible.
	rates         []float64
	current, base float64
	// lentFor is the time in seconds for which the job may have the size that the policy gives it, 0 for as long as it runs.
	lentFor float64
	// limit is the largest size for which there is room. blocked says that there is none for a job that waits.
	limit   int
	blocked bool
	// scattered is what other jobs have to free beyond what a job that waits takes, so that it fits: the shares that they free lie
	// on several devices or hosts. looked says that it is known whether it fits at all.
	scattered vgpu.MilliGPU
	looked    bool
	target    Target
}

// waits reports whether the job has no worker.
func (e *entry) waits() bool { return e.size == 0 }

// takes returns what so many workers take, with what has to be free besides for a job that waits.
func (e *entry) takes(workers int) vgpu.MilliGPU {
	if e.waits() && workers > 0 {
		return vgpu.MilliGPU(workers)*e.unit + e.scattered
	}
	return vgpu.MilliGPU(workers) * e.unit
}

// rate returns the expected rate of a legal size, and of the size that the job has the rate with its places.
func (e *entry) rate(workers int) float64 {
	if workers == e.size {
		return e.current
	}
	i, _ := slices.BinarySearch(e.Sizes, workers)
	return e.rates[i]
}

// setRate corrects the expected rate of a legal size.
func (e *entry) setRate(workers int, rate float64) {
	i, _ := slices.BinarySearch(e.Sizes, workers)
	e.rates[i] = rate
}

// first orders jobs: by priority, arrival and name.
func first(a, b *entry) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Arrived, b.Arrived), strings.Compare(a.Name, b.Name))
}

// makePools divides the healthy devices by GPU model, and puts each job into the pool of its model. A job that waits goes
// to the legal model with the most room beside the least sizes of the jobs before it.
func (s *search) makePools(reserved []Reserved) {
	byModel := map[string]*pool{}
	for _, n := range s.cluster.Nodes {
		onNode := map[string]vgpu.MilliGPU{}
		for i := range n.Devices() {
			d := &n.Devices()[i]
			p := byModel[d.Model]
			if p == nil {
				p = &pool{device: d}
				byModel[d.Model] = p
				s.pools = append(s.pools, p)
			}
			if !d.Healthy {
				continue
			}
			p.free += milli(n.FreeFor(i, &vgpu.Request{Priority: lowest}).Slots, d)
			p.devices++
			onNode[d.Model] += vgpu.WholeGPU
			p.perHost = max(p.perHost, onNode[d.Model])
		}
	}
	slices.SortFunc(s.pools, func(a, b *pool) int { return strings.Compare(a.device.Model, b.device.Model) })
	for _, r := range reserved {
		if !r.Idle && float64(r.From) <= float64(s.now)+s.cfg.Horizon {
			s.reserve(r)
		}
	}
	for _, r := range reserved {
		if r.Idle {
			s.keepIdle(r)
		}
	}
	for _, p := range s.pools {
		p.capacity = p.free
		p.lent = fewLoans(p.lent)
	}
	s.makeEntries()
	for _, e := range s.entries {
		if !e.waits() {
			s.join(e, byModel[s.modelOf(e.Job)])
			e.pool.capacity += e.takes(len(e.Placed))
		}
	}
	for _, e := range s.entries {
		if e.waits() {
			s.join(e, s.roomiest(e))
		}
	}
	for _, p := range s.pools {
		slices.SortFunc(p.entries, first)
	}
}

// lowest is a priority for which all holds count.
const lowest = -1 << 31

// milli returns slots of a device in thousandths of it.
func milli(slots vgpu.Slots, d *vgpu.Device) vgpu.MilliGPU {
	return vgpu.MilliGPU(int64(slots) * int64(vgpu.WholeGPU) / int64(d.Slots))
}

// reserve takes reserved capacity out of its pool, or out of those with the most free devices.
func (s *search) reserve(r Reserved) {
	left := r.Amount
	for left > 0 {
		var best *pool
		for _, p := range s.pools {
			if (r.Model == "" || r.Model == p.device.Model) && (best == nil || p.free > best.free) {
				best = p
			}
		}
		switch {
		case best == nil:
			return
		case r.Model != "" || best.free <= 0:
			s.take(best, left, r.From) // jobs shrink for the rest
			return
		}
		part := min(left, best.free)
		s.take(best, part, r.From)
		left -= part
	}
}

// keepIdle takes capacity that is free out of the pools of its model, and leaves the rest to the jobs that have it.
func (s *search) keepIdle(r Reserved) {
	for _, p := range s.pools {
		if part := min(r.Amount, p.free); part > 0 && (r.Model == "" || r.Model == p.device.Model) {
			p.free -= part
			r.Amount -= part
		}
	}
}

// take takes capacity out of a pool, and lends it where it is not needed yet.
func (s *search) take(p *pool, amount vgpu.MilliGPU, from int64) {
	p.free -= amount
	if lasts := float64(from-s.now) - s.cfg.GiveBack; lasts > 0 {
		p.lent = append(p.lent, loan{amount, lasts})
	}
}

// maxLoans bounds the times for which capacity is lent: each is divided apart, and each fleet has some of its own.
const maxLoans = 8

// fewLoans returns loans from the soonest to the latest. If there are more than maxLoans, it merges loans that follow each other, and they last as
// long as the first of them: capacity is given back rather too early.
func fewLoans(loans []loan) (few []loan) {
	slices.SortFunc(loans, func(a, b loan) int { return cmp.Compare(a.lasts, b.lasts) })
	for i, l := range loans {
		if at := i * maxLoans / len(loans); len(loans) > maxLoans && i > 0 && at == (i-1)*maxLoans/len(loans) {
			few[len(few)-1].amount += l.amount
		} else {
			few = append(few, l)
		}
	}
	return few
}

// loans returns the capacity that is lent.
func (p *pool) loans() (sum vgpu.MilliGPU) {
	for _, l := range p.lent {
		sum += l.amount
	}
	return sum
}

// makeEntries lists the jobs that Workers can decide on.
func (s *search) makeEntries() {
	for i := range s.jobs {
		j := &s.jobs[i]
		if s.invalid[i] == nil && len(j.Placed) > 0 && s.modelOf(j) == "" {
			s.invalid[i] = fmt.Errorf("decide on job %s: worker 0 has its place on %s, where it has no device", j.Name, j.Placed[0].Node)
		}
		if s.invalid[i] == nil {
			s.entries = append(s.entries, &entry{Job: j, at: i, size: j.size(), limit: j.most()})
		}
	}
	slices.SortFunc(s.entries, first)
}

// modelOf returns the GPU model of the first worker of a job, "" where the cluster does not have its device.
func (s *search) modelOf(j *Job) string {
	at, there := s.byName[j.Placed[0].Node]
	if !there || len(j.Placed[0].Containers) == 0 {
		return ""
	}
	n := s.cluster.Nodes[at]
	d := n.Index(j.Placed[0].Containers[0].Devices[0])
	if d < 0 {
		return ""
	}
	return n.Devices()[d].Model
}

// roomiest returns the pool with the most room for a job that waits, nil where no device is legal for it.
func (s *search) roomiest(e *entry) *pool {
	var best *pool
	most := vgpu.MilliGPU(0)
	for _, p := range s.pools {
		if _, legal := e.Worker.Request.ShareOn(0, p.device); !legal {
			continue
		}
		room := p.capacity - p.least
		if best == nil || room > most {
			best, most = p, room
		}
	}
	return best
}

// join adds a job to a pool; a nil pool has no device for it.
func (s *search) join(e *entry, p *pool) {
	if p == nil {
		e.blocked = true
		e.target = Target{Job: e.Name, Workers: e.least(), Why: Waits}
		return
	}
	e.pool = p
	p.entries = append(p.entries, e)
	e.unit = unitOf(&e.Worker.Request, p.device)
	j := *e.Job
	j.Sizes = looked(j.Sizes, e.size, int(vgpu.MilliGPU(p.devices)*vgpu.WholeGPU/e.unit))
	e.Job = &j
	p.least += e.takes(e.least())
	perHost := max(1, int(p.perHost/e.unit))
	e.base = e.Curve.Rate(e.least(), (e.least()+perHost-1)/perHost)
	for _, n := range e.Sizes {
		on := (n + perHost - 1) / perHost
		if !e.waits() {
			on = max(on, hosts(e.Placed[:min(n, len(e.Placed))]))
		}
		e.rates = append(e.rates, e.Curve.Rate(n, min(on, n)))
	}
	if !e.waits() {
		e.current = e.Curve.Rate(e.size, min(e.size, hosts(e.Placed)))
		if s.settles(e) {
			e.limit = e.size
		}
	}
}

// settles reports whether a job has changed its size too often to grow again.
func (s *search) settles(e *entry) bool {
	at, _ := slices.BinarySearch(e.Moved, s.now-3600)
	return len(e.Moved)-at >= s.cfg.MaxMoves
}

// unitOf returns what a worker takes of devices like d, at least 1.
func unitOf(r *vgpu.Request, d *vgpu.Device) vgpu.MilliGPU {
	slots := r.PeakSlots()
	if share, legal := r.ShareOn(0, d); legal && len(r.Containers) == 1 {
		slots = share.Slots * vgpu.Slots(share.Devices)
	}
	return max(1, milli(slots, d))
}
