package notebooks

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Bounds of an experiment: above them a run takes minutes.
const (
	MaxGPUs      = 1000
	MaxNotebooks = 10_000
	MaxBursts    = 100_000
)

// Notebooks compares whole GPUs with shares over the duty: the part of its time in which a notebook computes when it is alone.
type Notebooks struct {
	// Count of notebooks, and GPUs. A GPU is shared by as many as its slots.
	Count, GPUs, Slots int
	// Bursts of each notebook, of Seconds on average; both they and the idle times before them are exponential.
	Bursts  int
	Seconds float64
	Duties  []float64
	Seeds   []int64
	// Profile is what a burst uses of a GPU.
	Profile interference.Profile
	// Progress is called after each run; it may be nil.
	Progress func(done, total int)
}

// speeds returns the speed of each of so many bursts that compute on one GPU at the same time, 1 for one alone.
type speeds func(n *Notebooks, active int) float64

// rows are the ways to share a GPU, in the order in which they are shown.
var rows = []struct {
	name   string
	speeds speeds
}{
	{"ideal", func(_ *Notebooks, active int) float64 { return 1 / float64(active) }},
	{"unknown", func(n *Notebooks, active int) float64 { return n.divided(interference.ClassUnknown, active) }},
	{"training", func(n *Notebooks, active int) float64 { return n.divided(interference.ClassTraining, active) }},
	{"hard limits", func(n *Notebooks, active int) float64 { return n.capped(interference.ClassUnknown, active, n.Slots) }},
}

// divided is the speed where bursts of a class divide the SMs equally.
func (n *Notebooks) divided(class interference.Class, active int) float64 {
	return n.capped(class, active, active)
}

// capped is the speed of each of the active bursts where it has one of so many parts of the SMs: that of its class on these SMs, less what
// its neighbours take of the memory's bandwidth, by the default model.
func (n *Notebooks) capped(class interference.Class, active, parts int) float64 {
	p := n.Profile
	p.Class = class
	part := vgpu.WholeGPU / vgpu.MilliGPU(parts)
	model, err := interference.ByName("default")
	if err != nil {
		panic(err) // it is the one that ships
	}
	on := slices.Repeat([]interference.Tenant{p.On(part)}, active)
	return class.Speed(part) * model.Predict(on, nil)[0].Speed
}

// session is the idle times and bursts of a notebook, in seconds.
type session struct{ idle, burst []float64 }

// sessions draws the notebooks for a duty.
func (n *Notebooks) sessions(duty float64, seed int64) []session {
	random := rand.New(rand.NewPCG(uint64(seed), 5))
	all := make([]session, n.Count)
	for i := range all {
		for range n.Bursts {
			all[i].idle = append(all[i].idle, n.Seconds*(1-duty)/duty*random.ExpFloat64())
			all[i].burst = append(all[i].burst, n.Seconds*random.ExpFloat64())
		}
	}
	return all
}

// whole returns when the last notebook is done where each holds a GPU from its begin to its end. They begin in order.
func (n *Notebooks) whole(all []session) float64 {
	free := make([]float64, n.GPUs)
	for _, s := range all {
		at := slices.Index(free, slices.Min(free))
		for i := range s.idle {
			free[at] += s.idle[i] + s.burst[i]
		}
	}
	return slices.Max(free)
}

// shared returns when the last notebook is done where they share GPUs. Those without a share wait until one is free.
func (n *Notebooks) shared(all []session, how speeds) (float64, error) {
	speed := []float64{0}
	for k := range n.Slots {
		speed = append(speed, how(n, k+1))
	}
	devices, err := n.place(len(all))
	if err != nil {
		return 0, err
	}
	groups := make([][]session, n.GPUs)
	for i, d := range devices {
		groups[d] = append(groups[d], all[i])
	}
	last := 0.0
	for _, g := range groups {
		last = max(last, playGPU(g, n.Slots, speed))
	}
	return last, nil
}

// place returns the device of each notebook: those that fit as the scheduler places them, and the others behind them in turn.
func (n *Notebooks) place(count int) ([]int, error) {
	devices := make([]vgpu.Device, n.GPUs)
	for d := range devices {
		devices[d] = vgpu.Device{ID: vgpu.DeviceID(fmt.Sprintf("gpu-%04d", d)), Index: d, Model: "GPU", Slots: vgpu.Slots(n.Slots), Memory: 16 * vgpu.GiB, Healthy: true}
	}
	node, err := vgpu.NewNode("node", devices)
	if err != nil {
		return nil, err
	}
	cluster := gang.Cluster{Nodes: []*vgpu.Node{node}}
	out := make([]int, count)
	for i := range out {
		if out[i] = i % n.GPUs; i >= n.GPUs*n.Slots {
			continue
		}
		name := fmt.Sprintf("notebook-%05d", i)
		m := gang.Member{Request: vgpu.Request{UID: vgpu.UID(name), Pod: name, Containers: []vgpu.ContainerRequest{{Name: "main", Slots: 1}}}}
		plan, err := gang.Place(&cluster, &gang.Group{Name: name, Members: []gang.Member{m}, MinCount: 1}, gang.Config{SkipExplanation: true})
		if err != nil {
			return nil, err
		}
		if plan.Refused != nil {
			return nil, fmt.Errorf("place %s: %v", name, plan.Refused)
		}
		if err := node.Add(plan.Places[0]); err != nil {
			return nil, err
		}
		out[i] = node.Index(plan.Places[0].Containers[0].Devices[0])
	}
	return out, nil
}

// notebook is one that runs: left is what is left of its idle time, or of its burst.
type notebook struct {
	session
	at       int
	computes bool
	left     float64
}

// next begins what comes next, and reports whether there is something.
func (b *notebook) next() bool {
	if b.computes {
		b.at++
	}
	if b.computes = !b.computes; b.at == len(b.idle) {
		return false
	}
	if b.left = b.idle[b.at]; b.computes {
		b.left = b.burst[b.at]
	}
	return true
}

// playGPU returns when the last of some notebooks is done that share a GPU, so many at a time. The speeds are by the number of bursts.
func playGPU(all []session, slots int, speed []float64) (now float64) {
	var on []*notebook
	for {
		for len(on) < slots && len(all) > 0 {
			b := &notebook{session: all[0], computes: true, at: -1}
			all = all[1:]
			if b.next() {
				on = append(on, b)
			}
		}
		if len(on) == 0 {
			return now
		}
		active := 0
		for _, b := range on {
			if b.computes {
				active++
			}
		}
		first, step := 0, math.Inf(1)
		for i, b := range on {
			if takes := b.left / b.speed(speed[active]); takes < step {
				first, step = i, takes
			}
		}
		now += step
		for i, b := range on {
			if b.left -= step * b.speed(speed[active]); i == first {
				b.left = 0
			}
		}
		if !on[first].next() {
			on = slices.Delete(on, first, first+1)
		}
	}
}

// speed is how fast its time passes.
func (b *notebook) speed(computing float64) float64 {
	if b.computes {
		return computing
	}
	return 1
}

// Run plays each duty with each seed.
func (n *Notebooks) Run() (*results.Notebooks, error) {
	ratios := make([][][]float64, len(n.Duties)) // by duty, way to share, seed
	for i := range ratios {
		ratios[i] = make([][]float64, len(rows))
		for k := range ratios[i] {
			ratios[i][k] = make([]float64, len(n.Seeds))
		}
	}
	err := scenario.Each(len(n.Duties)*len(n.Seeds), n.Progress, func(at int) error {
		i, s := at/len(n.Seeds), at%len(n.Seeds)
		all := n.sessions(n.Duties[i], n.Seeds[s])
		whole := n.whole(all)
		for k := range rows {
			shared, err := n.shared(all, rows[k].speeds)
			if err != nil {
				return err
			}
			ratios[i][k][s] = whole / shared
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("run notebooks: %w", err)
	}
	out := &results.Notebooks{Count: n.Count, GPUs: n.GPUs, Seeds: n.Seeds}
	for k := range rows {
		r := results.NotebookRow{Sharing: rows[k].name}
		for i, duty := range n.Duties {
			r.Points = append(r.Points, results.NotebookPoint{Duty: duty, Ratio: results.SpreadOf(ratios[i][k])})
		}
		out.Rows = append(out.Rows, r)
	}
	return out, nil
}
