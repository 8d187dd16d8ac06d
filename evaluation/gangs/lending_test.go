package gangs

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/evaluation/inference"
	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/traffic"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// mixOf returns a mix on a cluster with fleets of a made-up model, which serves 20 requests a second on 20 % of a device and 67 on all of it.
func mixOf(g *Training, fleets int, rates ...float64) *Lending {
	return &Lending{
		Training: *g, Fleets: fleets, Times: 5, LoadTime: 20 * time.Second, Variation: .1, Neighbours: 1.1, Utilisation: .3,
		Shares: []measurements.Solo{{Share: 200, Latency: 50 * time.Millisecond}, {Share: 500, Latency: 25 * time.Millisecond}, {Share: 1000, Latency: 15 * time.Millisecond}},
		Before: inference.Load{Span: time.Minute, Rates: rates[:1]}, Day: inference.Load{Span: time.Minute, Rates: rates},
		Notice: 5 * time.Second, Grace: 30 * time.Second, Checkpoint: 10 * time.Minute,
	}
}

// check fails where a device is given twice, where a ledger has what nobody holds, or where requests are served by replicas without devices.
func (r *lendingRun) check(t interface{ Fatalf(string, ...any) }) {
	held := map[vgpu.UID]bool{}
	hold := func(places []vgpu.Assignment) {
		for _, a := range places {
			if held[a.UID] {
				t.Fatalf("%s holds devices twice", a.UID)
			}
			held[a.UID] = true
		}
	}
	for i := range r.jobs {
		hold(r.jobs[i].places)
	}
	for _, f := range r.fleets {
		hold(f.placed)
		if len(f.placed) > f.wanted || f.missing() != len(f.since) {
			t.Fatalf("a fleet wants %d replicas, %d have devices and %d wait", f.wanted, len(f.placed), len(f.since))
		}
	}
	for _, l := range r.leaving {
		hold([]vgpu.Assignment{l.Assignment})
	}
	for _, n := range r.cluster.Nodes {
		if err := n.Check(); err != nil {
			t.Fatalf("%v", err)
		}
		for i := range n.Devices() {
			if used := n.Used(i).Slots; used > n.Devices()[i].Slots {
				t.Fatalf("%s: %d of %d slots of device %d are given", n.Name(), used, n.Devices()[i].Slots, i)
			}
		}
		for _, a := range n.Assignments() {
			if !held[a.UID] {
				t.Fatalf("%s is in the ledger of %s, and nobody holds it", a.UID, n.Name())
			}
			delete(held, a.UID)
		}
	}
	if len(held) > 0 {
		t.Fatalf("no ledger has %v", held)
	}
}

// TestPropertyLending: under every policy no device is ever given twice, the ledgers have what jobs, replicas and leaving workers hold, and nobody
// does more work than there is.
func TestPropertyLending(t *testing.T) {
	apps := t4Apps(t)
	for i := range lendingRows {
		t.Run(lendingRows[i].name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				g, jobs := drawnGangs(t, apps)
				for k := range jobs {
					jobs[k].cost = float64(rapid.IntRange(0, 200).Draw(t, "cost"))
				}
				rates := rapid.SliceOfN(rapid.Float64Range(0, 60), 5, 15).Draw(t, "rates")
				l := mixOf(g, rapid.IntRange(1, min(3, g.Nodes*g.GPUs)).Draw(t, "fleets"), rates...)
				loads := make([]inference.Load, l.Fleets)
				for k := range loads {
					loads[k] = l.Day
				}
				r, err := l.newRun(&lendingRows[i], jobs, l.Before, loads, 1)
				must.OK(t, err)
				steps := 0
				r.audit = func(r *lendingRun) { r.check(t); steps++ }
				must.OK(t, r.play())
				if want := 4 * len(rates); steps != want {
					t.Fatalf("%d steps, want %d", steps, want)
				}
				work := 0.0
				for k := range jobs {
					work += jobs[k].soloHours()
				}
				if out := r.sum(); out.trained < -1e-9 || out.trained > work+1e-9 || out.lost < 0 || out.lost > out.hours*float64(2*l.Nodes*l.GPUs*8) {
					t.Fatalf("%v GPU-hours were trained and %v lost, the jobs have %v", out.trained, out.lost, work)
				}
			})
		})
	}
}

// wanting wants numbers of replicas, one after the other, and the last one on and on.
type wanting struct{ sizes []int }

func (w *wanting) size(*traffic.Fleet, traffic.Seen, []float64) (n int, later []elastic.Need) {
	if n = w.sizes[0]; len(w.sizes) > 1 {
		w.sizes = w.sizes[1:]
	}
	return n, nil
}

// grown plays a fleet on five devices that wants a second replica at 60 s. A job has the other four, and its changes cost what is
// given. It returns when the replica has its device.
func grown(t *testing.T, cost float64) (at float64, r *lendingRun) {
	t.Helper()
	g := training(t)
	g.Nodes, g.GPUs = 1, 5
	jobs, err := g.jobs(t4Apps(t), jobsFile(t, "oak-0,0,oak,4,32"))
	must.OK(t, err)
	jobs[0].cost, jobs[0].passes = cost, 1000
	l := mixOf(g, 1, 1, 1, 1, 1, 1, 1)
	row := lendingRow{"", false, func(*Lending, *traffic.Fleet) sizer { return &wanting{[]int{1, 1, 1, 1, 2}} }, func() trainer { return &borrowers{} }}
	if r, err = l.newRun(&row, jobs, l.Before, []inference.Load{l.Day}, 1); err != nil {
		t.Fatal(err)
	}
	r.audit = func(r *lendingRun) {
		r.check(t)
		if n := len(r.jobs[0].places); n < 3 && r.now > 15 && r.out.preempted == 0 {
			t.Errorf("at %v s the job has %d workers, one replica takes one of four", r.now, n)
		}
		if at == 0 && len(r.fleets[0].placed) == 2 {
			at = r.now
		}
	}
	must.OK(t, r.play())
	return at, r
}

// TestLendingDelays: the second replica is wanted at 60 s (the first size is wanted before the start, the others every 15 s). The job shrinks at
// once. With a cost of 20 s its device is free after 5 + 20 s, at the step at 90 s. With a cost of 600 s its worker is evicted after two minutes,
// at 180 s, and is killed 30 s later; the job goes back to what it had saved.
func TestLendingDelays(t *testing.T) {
	at, r := grown(t, 20)
	if at != 90 || r.out.preempted != 0 || r.out.lost != 0 {
		t.Errorf("with a short save the replica has its device at %v s, %d evictions, %v GPU-hours lost, want 90, 0, 0", at, r.out.preempted, r.out.lost)
	}
	at, r = grown(t, 600)
	if at != 210 || r.out.preempted != 1 || !(r.out.lost > 0) {
		t.Errorf("with a long save the replica has its device at %v s, %d evictions, %v GPU-hours lost, want 210, 1, above 0", at, r.out.preempted, r.out.lost)
	}
}

// TestLendingLose: a job that saves its state within the grace period keeps what it did; another one goes back to its last checkpoint.
func TestLendingLose(t *testing.T) {
	_, r := grown(t, 20)
	for cost, want := range map[float64]float64{20: .5, 100: .75} {
		j := &r.jobs[0]
		j.left, j.cost, r.saved[0] = .5, cost, .75
		if r.lose(0); j.left != want {
			t.Errorf("with %v s to save its state, %v of the job is left, want %v", cost, j.left, want)
		}
	}
}

// TestLendingShare: at full load 20 % serves 5 × 20 requests a second on a device, 50 % 2 × 40 and the whole device 67. A small share serves most of
// that where the promise is long. If it is short, requests must hardly wait on a small share.
func TestLendingShare(t *testing.T) {
	for times, want := range map[float64]vgpu.MilliGPU{20: 200, 5: 500, 1.1: 1000} {
		l := mixOf(training(t), 1, 1)
		l.Times = times
		if got := l.best().Share; got != want {
			t.Errorf("the best share for %v is %d, want %d", l.promise().Within, got, want)
		}
	}
}

// TestSpikeInTime: the GPUs count as back in time where the promise did not break, or where they were back before.
func TestSpikeInTime(t *testing.T) {
	for _, tc := range []struct {
		s           spikeResult
		want, asked bool
	}{
		{spikeResult{asks: spikeLasts, back: spikeLasts}, true, true},
		{spikeResult{asks: 15, back: 30, broken: true, breaks: 45}, true, true},
		{spikeResult{asks: 30, back: 60, broken: true, breaks: 45}, false, true},
		{spikeResult{asks: 60, back: 60, broken: true, breaks: 45}, false, false},
	} {
		if got := tc.s.inTime(); got != tc.want {
			t.Errorf("%+v is in time: %v, want %v", tc.s, got, tc.want)
		}
		if got := tc.s.asked(); got != tc.asked {
			t.Errorf("%+v was asked for in time: %v, want %v", tc.s, got, tc.asked)
		}
	}
}
