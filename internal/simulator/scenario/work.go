package scenario

import (
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/bursts"
	"github.com/tandem-gpu/tandem/internal/simulator/requests"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Kind is a kind of work.
type Kind int

// The kinds. Training is all jobs that are neither replicas nor notebooks.
const (
	Training Kind = iota
	Inference
	Notebooks
	kinds
)

// String returns the kind in a word.
func (k Kind) String() string { return [kinds]string{"training", "inference", "notebooks"}[k] }

// Work is what was done in a run with fleets or notebooks.
type Work struct {
	// Until is the time up to which work and GPUs are told.
	Until time.Duration
	// Hours are the GPU-hours of useful work by kind: the time that it takes alone on a GPU, with the least number of workers, and for requests
	// on the largest share that the fleet declares.
	Hours [kinds]float64
	// GPUs are those that the pods of each kind held, on average.
	GPUs [kinds]float64
	// JCTs are the completion times of the trainings of the whole run, one for a gang.
	JCTs []time.Duration
	// Requests of all fleets, of the whole run.
	Requests requests.Result
	// NotebookWaits are from the arrivals of notebooks to their starts.
	NotebookWaits []time.Duration
	// Bursts of all notebooks.
	Bursts bursts.Result
	// Ordered are the parts that come after others, or that others come after: a part after the one before it.
	Ordered []PartOutcome
	// Use is the GPUs in use by kind, a value for each minute: the mean over it.
	Use [][kinds]float64
}

// PartOutcome is what became of a job, a fleet or a notebook with an order. Times are −1 where it did not arrive, start or end.
type PartOutcome struct {
	Name, After             string
	Arrived, Started, Ended time.Duration
}

// Useful returns the GPU-hours of useful work of all kinds.
func (w *Work) Useful() float64 { return w.Hours[Training] + w.Hours[Inference] + w.Hours[Notebooks] }

// worker sums the work of a run up.
type worker struct {
	run *Run
	// slots of a GPU.
	slots vgpu.Slots
	// kinds are by job. gpus are those of each training with its least number of workers, and lasts how long it takes with them, by the
	// index of its first pod.
	kinds []Kind
	gpus  map[int]float64
	lasts map[int]time.Duration
	// books are the notebooks by the index of their jobs.
	books map[int]*notebooks
}

func newWorker(run *Run, slots vgpu.Slots) *worker {
	return &worker{run: run, slots: slots, gpus: map[int]float64{}, lasts: map[int]time.Duration{}, books: map[int]*notebooks{}}
}

// part returns the GPUs that slots are.
func (w *worker) part(slots vgpu.Slots) float64 { return float64(slots) / float64(w.slots) }

// see notes the jobs of a source, of which the first has an index in the run.
func (w *worker) see(s source, jobs []sim.Job) {
	gangs := map[*sim.Gang]int{}
	for k := range jobs {
		j, at := &jobs[k], len(w.kinds)
		w.kinds = append(w.kinds, Training)
		if n, is := s.(*notebooks); is {
			w.kinds[at], w.books[at] = Notebooks, n
			continue
		}
		first, members := at, 1
		if j.Gang != nil {
			if _, known := gangs[j.Gang]; !known {
				gangs[j.Gang] = at
			}
			if first = gangs[j.Gang]; j.Gang.Elastic != nil && at-first >= j.Gang.Elastic.Sizes[0] {
				members = 0
			}
		}
		w.gpus[first] += float64(members) * w.part(j.Request.PeakSlots())
		w.lasts[first] = j.Duration
	}
}

// sum sums the run up. The jobs are those that were played, with the requests of the fleets.
func (w *worker) sum(s *Scenario, jobs []sim.Job, played []*requests.Run) *Work {
	h, until := w.run.History, s.until
	if _, end := h.Span(); until == 0 {
		until = end
	}
	out := &Work{Until: until}
	w.train(jobs, out)
	w.order(jobs, s.ordered, out)
	for i, p := range played {
		r := p.Result()
		out.Hours[Inference] += float64(r.Answered) * s.fleets[i].solo()
		out.Requests.Windows, out.Requests.Broken = out.Requests.Windows+r.Windows, out.Requests.Broken+r.Broken
		out.Requests.Requests, out.Requests.Late = out.Requests.Requests+r.Requests, out.Requests.Late+r.Late
		out.Requests.Answered += r.Answered
	}
	for job := range w.books {
		if o := &h.Outcomes[job]; o.State.Placed() {
			out.NotebookWaits = append(out.NotebookWaits, o.Wait())
		}
	}
	holdings := h.Holdings()
	w.use(holdings, out)
	out.Bursts = w.bursts(holdings, until)
	out.Hours[Notebooks] = out.Bursts.Alone.Hours()
	slices.Sort(out.JCTs)
	slices.Sort(out.NotebookWaits)
	return out
}

// train adds up the work of trainings: the done part of the time that each takes with its least number of workers.
func (w *worker) train(jobs []sim.Job, out *Work) {
	h := w.run.History
	for _, first := range slices.Sorted(maps.Keys(w.gpus)) {
		done := h.Worked(first, out.Until).Hours()
		if played := jobs[first].Duration; played > 0 {
			done *= w.lasts[first].Hours() / played.Hours()
		}
		out.Hours[Training] += w.gpus[first] * done
		if o := &h.Outcomes[first]; o.State == sim.Finished {
			out.JCTs = append(out.JCTs, o.JCT())
		}
	}
}

// order notes when parts with an order came, started and ended. The jobs are those that were played.
func (w *worker) order(jobs []sim.Job, parts []orderedPart, out *Work) {
	outcomes, ends := map[vgpu.UID]*sim.Outcome{}, map[string]bool{}
	for i := range w.run.History.Outcomes {
		outcomes[jobs[i].Request.UID] = &w.run.History.Outcomes[i]
	}
	for _, p := range parts {
		o := outcomes[p.leader]
		x := PartOutcome{Name: p.name, After: p.after, Arrived: -1, Started: -1, Ended: -1}
		if p.after == "" || ends[p.after] {
			x.Arrived = o.Arrived
		}
		if o.State.Placed() {
			x.Started = o.Arrived + o.Waited
		}
		if o.State == sim.Finished {
			x.Ended, ends[p.name] = o.Ended, true
		}
		out.Ordered = append(out.Ordered, x)
	}
}

// use adds up the GPUs that are held, by minute and by kind.
func (w *worker) use(holdings []sim.Holding, out *Work) {
	out.Use = make([][kinds]float64, (out.Until+time.Minute-1)/time.Minute)
	for i := range holdings {
		x := &holdings[i]
		gpus := w.held(&x.Assignment)
		for minute := int(x.From / time.Minute); minute < len(out.Use) && time.Duration(minute)*time.Minute < x.To; minute++ {
			from, to := time.Duration(minute)*time.Minute, min(out.Until, time.Duration(minute+1)*time.Minute)
			out.Use[minute][w.kinds[x.Job]] += gpus * float64(min(to, x.To)-max(from, x.From)) / float64(to-from)
		}
	}
	for minute := range out.Use {
		for k := range kinds {
			out.GPUs[k] += out.Use[minute][k] / float64(len(out.Use))
		}
	}
}

// held returns the GPUs of an assignment.
func (w *worker) held(a *vgpu.Assignment) (sum float64) {
	for i := range a.Containers {
		c := &a.Containers[i]
		sum += float64(len(c.Devices)) * w.part(c.Share.Slots)
	}
	return sum
}

// bursts plays the notebooks of each GPU.
func (w *worker) bursts(holdings []sim.Holding, until time.Duration) (sum bursts.Result) {
	sessions, tenants := map[vgpu.DeviceID][]bursts.Session{}, map[vgpu.DeviceID][]bursts.Tenant{}
	for i := range holdings {
		x := &holdings[i]
		for _, c := range x.Assignment.Containers {
			for k, device := range c.Devices {
				if n := w.books[x.Job]; n != nil && k == 0 {
					sessions[device] = append(sessions[device], bursts.Session{From: x.From, To: x.To, Burst: n.burst, Duty: n.duty, Seed: w.seed(x)})
				} else {
					tenants[device] = append(tenants[device], bursts.Tenant{From: x.From, To: x.To, Part: w.part(c.Share.Slots)})
				}
			}
		}
	}
	for device, all := range sessions {
		r := bursts.Play(all, tenants[device], until)
		sum.Alone, sum.Took = sum.Alone+r.Alone, sum.Took+r.Took
	}
	return sum
}

// seed is that of the bursts of a notebook: the same under every policy.
func (w *worker) seed(x *sim.Holding) uint64 {
	h := fnv.New64a()
	h.Write([]byte(x.Assignment.UID)) // never fails
	return h.Sum64() ^ uint64(w.run.Seed)
}
