package experiment

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Durations of jobs alone, in seconds, are lognormal: the median is half an hour, and one of six takes more than an hour
// and a half.
const (
	medianDuration = 1800
	sigmaDuration  = 1.2
)

// sharedMemory is the memory of a device: that of the RTX 3090, on which Lucid's authors measured.
const sharedMemory = 24 * vgpu.GiB

// sharedJob is a job as a policy sees it: without its duration.
type sharedJob struct {
	// id is its place in the batch, config the kind of job.
	id, config int
	profile    *interference.Profile
}

// sharingView is what a policy sees when it decides.
type sharingView struct {
	// now is the time in seconds.
	now float64
	// queue lists the jobs that wait, in the order of their arrival.
	queue []sharedJob
	// devices lists the jobs on each device in the order in which they started.
	devices [][]sharedJob
}

// sharingPolicy decides which job starts on which device.
type sharingPolicy interface {
	// choose returns a job by its place in the queue, and the device on which it starts now; false is to wait until a job
	// ends.
	choose(v *sharingView) (place, device int, ok bool)
	// observe receives the speeds of the tenants of a device for so many seconds, until now.
	observe(v *sharingView, device int, speeds []float64, seconds float64)
}

// sharingRun plays one batch under one policy.
type sharingRun struct {
	table  *sharingTable
	policy sharingPolicy
	view   sharingView
	// work is the time of each job alone, left the rest of it, in seconds alone; began is the time of its start.
	work, left, began []float64
	// speeds of the tenants of each device.
	speeds [][]float64
	// failed lists the jobs that ran out of memory. These queue again when a job ends.
	failed []sharedJob

	// busy is the sum over devices of utilisation × seconds.
	busy      float64
	slowdowns []float64
	oom       int
}

// batch is what jobs there are.
type batch struct {
	configs []int
	work    []float64
}

// drawBatch returns jobs of a number of configurations, 0 for all of a table, each as likely.
func drawBatch(t *sharingTable, kinds, jobs int, seed int64) batch {
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	some := random.Perm(len(t.configs))
	if kinds > 0 {
		some = some[:kinds]
	}
	var b batch
	for range jobs {
		b.configs = append(b.configs, some[random.IntN(len(some))])
		b.work = append(b.work, medianDuration*math.Exp(sigmaDuration*random.NormFloat64()))
	}
	return b
}

func newSharingRun(t *sharingTable, p sharingPolicy, devices int, b batch) *sharingRun {
	r := &sharingRun{
		table: t, policy: p, view: sharingView{devices: make([][]sharedJob, devices)},
		work: b.work, left: slices.Clone(b.work), began: make([]float64, len(b.work)),
		speeds: make([][]float64, devices), slowdowns: make([]float64, len(b.work)),
	}
	for i, c := range b.configs {
		r.view.queue = append(r.view.queue, sharedJob{id: i, config: c, profile: &t.configs[c].profile})
	}
	return r
}

func (r *sharingRun) play() error {
	for range r.work {
		r.fill()
		device, tenant, seconds := r.nextEnd()
		if device < 0 {
			return fmt.Errorf("%d jobs wait while every device is idle", len(r.view.queue)+len(r.failed))
		}
		r.advance(seconds)
		r.end(device, tenant)
	}
	return nil
}

// fill starts jobs for as long as the policy names one. A job that is too large for the memory of the device fails at
// once.
func (r *sharingRun) fill() {
	for len(r.view.queue) > 0 {
		place, device, ok := r.policy.choose(&r.view)
		if !ok {
			return
		}
		job := r.view.queue[place]
		r.view.queue = slices.Delete(r.view.queue, place, place+1)
		tenants := slices.Concat(r.view.devices[device], []sharedJob{job})
		if r.table.memory(tenants) > sharedMemory {
			r.failed = append(r.failed, job)
			r.oom++
			continue
		}
		r.view.devices[device] = tenants
		r.began[job.id] = r.view.now
		r.speeds[device] = r.table.speeds(tenants, r.speeds[device])
	}
}

// nextEnd returns which job ends first, and in how many seconds; of several at once that on the first device which started
// first. The device is −1 when nothing runs.
func (r *sharingRun) nextEnd() (device, tenant int, seconds float64) {
	device, seconds = -1, math.Inf(1)
	for d, tenants := range r.view.devices {
		for i, job := range tenants {
			if s := r.left[job.id] / r.speeds[d][i]; s < seconds {
				device, tenant, seconds = d, i, s
			}
		}
	}
	return device, tenant, seconds
}

// advance moves the time on, while no speed changes.
func (r *sharingRun) advance(seconds float64) {
	r.view.now += seconds
	for d, tenants := range r.view.devices {
		use := 0.0
		for i, job := range tenants {
			r.left[job.id] = max(0, r.left[job.id]-seconds*r.speeds[d][i])
			use += job.profile.SM
		}
		r.busy += min(1, use) * seconds
		if len(tenants) > 0 && seconds > 0 {
			r.policy.observe(&r.view, d, r.speeds[d], seconds)
		}
	}
}

// end takes a job from its device.
func (r *sharingRun) end(device, tenant int) {
	tenants := r.view.devices[device]
	id := tenants[tenant].id
	r.left[id] = 0
	r.slowdowns[id] = (r.view.now - r.began[id]) / r.work[id]
	tenants = slices.Delete(tenants, tenant, tenant+1)
	r.view.devices[device] = tenants
	r.speeds[device] = r.table.speeds(tenants, r.speeds[device])
	r.view.queue = append(r.view.queue, r.failed...)
	slices.SortFunc(r.view.queue, func(a, b sharedJob) int { return a.id - b.id })
	r.failed = r.failed[:0]
}

// utilization is the mean over devices and time, 0 to 1.
func (r *sharingRun) utilization() float64 {
	return r.busy / float64(len(r.view.devices)) / r.view.now
}
