package elastic

import "github.com/tandem-gpu/tandem/pkg/vgpu"

const (
	// longWait is the wait in seconds for which Elastic-KubeFlow shrinks jobs. A shorter one starts jobs sooner, and
	// changes sizes more often.
	longWait = 60
	// lowUse is the part of the capacity in use below which Elastic-KubeFlow lets jobs grow.
	lowUse = 900
)

// elasticKubeflow grows jobs when utilisation is low, and shrinks them when the wait is long, as Elastic-KubeFlow does:
//
//   - a job that waits starts with the largest size that fits;
//   - the largest job shrinks by one size, again and again, for a job that has waited for longWait, until the latter fits
//     with its least size;
//   - where no job waits and less than lowUse of the capacity is in use, each job in turn grows by one size.
func elasticKubeflow(s *search, p *pool) []int {
	z := p.asNow()
	waits := false
	for i, e := range p.entries {
		if !e.waits() || e.blocked || z.startLargest(i) {
			continue
		}
		if s.now-e.Arrived < longWait || !z.shrinkFor(i, z.largest) {
			waits = true
			continue
		}
		z.start(i)
	}
	if waits {
		return z.want
	}
	for i := range p.entries {
		if z.left*vgpu.WholeGPU > p.capacity*(vgpu.WholeGPU-lowUse) {
			z.grow(i)
		}
	}
	return z.want
}

// shrinkFor shrinks running jobs by one size each time, in the order of choice, until entry i fits. If entry i would
// not fit, it changes nothing and returns false.
func (z *sizes) shrinkFor(i int, choose func() (victim int, some bool)) bool {
	need := z.entries[i].takes(z.entries[i].least())
	room := z.left
	for k, e := range z.entries {
		if !e.waits() {
			room += e.takes(z.want[k] - min(z.want[k], e.least()))
		}
	}
	if room < need {
		return false
	}
	for z.left < need {
		victim, some := choose()
		if !some {
			return false
		}
		z.shrink(victim)
	}
	return true
}

// largest returns the running job that takes the most and can shrink, of equal ones the last.
func (z *sizes) largest() (victim int, some bool) {
	for i, e := range z.entries {
		if e.waits() || z.want[i] <= e.least() {
			continue
		}
		if !some || e.takes(z.want[i]) >= z.entries[victim].takes(z.want[victim]) {
			victim, some = i, true
		}
	}
	return victim, some
}
