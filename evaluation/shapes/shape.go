package shapes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Shape is one cluster and the pods that usually arrive there.
type Shape struct {
	// Number is from 0 to MaxNumber.
	Number int
	Family string
	// Fills says that pods arrive until nothing fits, and stay. Else pods come and go.
	Fills bool

	hosts []host
	kinds []kind
	// inflate is the demand of a fill, as a multiple of all GPUs; load that of the others.
	inflate, load float64
	// change says how the weights of the kinds move over the run, 0 to 1: nil for not at all.
	change func(at float64, kind int) float64
	// busy is the rate of arrivals over the run relative to the mean, at 0 to 1: nil for even.
	busy func(at float64) float64
	// burst is the part of the pods that one team submits all at once.
	burst float64
	slots vgpu.Slots
}

// Shapes below Count are those that the project's figures are of. Each number up to MaxNumber is a shape.
const (
	Count     = 200
	MaxNumber = 1_000_000
)

// Families returns the number of families.
func Families() int { return len(families()) }

// host is nodes of one kind.
type host struct {
	count, gpus int
	model       string
	memory      vgpu.Bytes
	room        vgpu.Room
}

// kind is pods that look alike.
type kind struct {
	weight float64
	slots  vgpu.Slots
	memory vgpu.Bytes
	host   vgpu.Room
	models []string
	// median and sigma of the lognormal run times.
	median time.Duration
	sigma  float64
}

// Of returns the shape of a number.
func Of(number int) Shape {
	families := families()
	f := families[number%len(families)]
	d := &drawer{Rand: rand.New(rand.NewPCG(uint64(number), 12))}
	s := Shape{Number: number, Family: f.name, Fills: f.fills, inflate: 1.3, slots: 10}
	d.cluster(&s)
	d.mix(&s)
	s.load = d.within(.75, 1.05)
	if f.tune != nil {
		f.tune(d, &s)
	}
	d.keepLegal(&s)
	return s
}

// Setup returns the setup of a run, without a policy. The seed decides which of two nodes comes first by name.
func (s *Shape) Setup(seed int64) (sim.Setup, error) {
	d := &drawer{Rand: rand.New(rand.NewPCG(uint64(s.Number)+1000, uint64(seed)))}
	out := sim.Setup{Seed: seed, Queue: sim.Skip}
	if s.Fills {
		out.Queue = sim.Drop
	}
	total := 0
	for _, h := range s.hosts {
		total += h.count
	}
	rank := d.Perm(total)
	for _, h := range s.hosts {
		for range h.count {
			name := fmt.Sprintf("n%04d", rank[len(out.Nodes)])
			devices := make([]vgpu.Device, 0, h.gpus)
			for g := range h.gpus {
				devices = append(devices, vgpu.Device{
					ID: vgpu.DeviceID(fmt.Sprintf("%s/g%d", name, g)), Index: g, Model: h.model, Slots: s.slots, Memory: h.memory, Healthy: true,
				})
			}
			n, err := vgpu.NewNode(name, devices)
			if err != nil {
				return sim.Setup{}, err
			}
			n.SetRoom(h.room)
			out.Nodes = append(out.Nodes, n)
		}
	}
	if s.Fills {
		out.Jobs = d.fill(s)
	} else {
		out.Jobs = d.flow(s)
	}
	return out, nil
}

// gpus returns the number of all GPUs.
func (s *Shape) gpus() (sum float64) {
	for _, h := range s.hosts {
		sum += float64(h.count * h.gpus)
	}
	return sum
}

// drawer draws.
type drawer struct{ *rand.Rand }

func (d *drawer) within(low, high float64) float64 { return low + d.Float64()*(high-low) }

// spread draws evenly by the logarithm.
func (d *drawer) spread(low, high float64) float64 {
	return math.Exp(d.within(math.Log(low), math.Log(high)))
}

func one[T any](d *drawer, all ...T) T { return all[d.IntN(len(all))] }

// pick draws a kind at a moment of the run, 0 to 1.
func (d *drawer) pick(s *Shape, at float64) *kind {
	weights, sum := make([]float64, len(s.kinds)), 0.
	for i := range s.kinds {
		weights[i] = s.kinds[i].weight
		if s.change != nil {
			weights[i] *= s.change(at, i)
		}
		sum += weights[i]
	}
	x := d.Float64() * sum
	for i, w := range weights {
		if x -= w; x < 0 {
			return &s.kinds[i]
		}
	}
	return &s.kinds[len(s.kinds)-1]
}

func (k *kind) job(number int, team string) sim.Job {
	r := vgpu.Request{UID: vgpu.UID(fmt.Sprintf("u%05d", number)), Pod: fmt.Sprintf("%s/p%05d", team, number), Host: k.host}
	if k.slots > 0 {
		r.Containers = []vgpu.ContainerRequest{{Name: "main", Slots: k.slots, Memory: k.memory}}
		for _, m := range k.models {
			r.Variants = append(r.Variants, vgpu.Variant{Model: m})
		}
	}
	return sim.Job{Request: r}
}

func (d *drawer) fill(s *Shape) (jobs []sim.Job) {
	want, sum := s.inflate*s.gpus(), 0.
	for sum < want && len(jobs) < 20000 {
		k := d.pick(s, sum/want)
		sum += float64(k.slots) / float64(s.slots)
		j := k.job(len(jobs), one(d, "a", "b", "c"))
		j.Arrive = time.Duration(len(jobs)) * time.Second
		jobs = append(jobs, j)
	}
	return jobs
}

// flowJobs is how many jobs come and go.
const flowJobs = 1500

func (d *drawer) flow(s *Shape) (jobs []sim.Job) {
	work := 0.
	for i := range flowJobs {
		k := d.pick(s, float64(i)/flowJobs)
		team := one(d, "a", "b", "c")
		j := k.job(i, team)
		j.Duration = max(time.Second, time.Duration(float64(k.median)*math.Exp(k.sigma*d.NormFloat64())).Round(time.Second))
		work += j.Duration.Seconds() * float64(k.slots) / float64(s.slots)
		jobs = append(jobs, j)
	}
	span := work / (s.load * s.gpus())
	at, sum := make([]float64, flowJobs), 0.
	for i := range at {
		rate := 1.
		if s.busy != nil {
			rate = s.busy(float64(i) / flowJobs)
		}
		sum += d.ExpFloat64() / rate
		at[i] = sum
	}
	for i := range jobs {
		jobs[i].Arrive = time.Duration(at[i] / sum * span * float64(time.Second)).Round(time.Millisecond)
	}
	if s.burst > 0 {
		first, n := int(d.within(.2, .6)*flowJobs), int(s.burst*flowJobs)
		for i := first; i < first+n; i++ {
			jobs[i].Arrive = jobs[first].Arrive
			jobs[i].Request.Pod = fmt.Sprintf("burst/p%05d", i)
		}
	}
	return jobs
}
