package scenario

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/requests"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/traffic"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// maxFleets bounds the fleets: their requests are played one by one.
	maxFleets = 64
	// maxReplicas bounds those of one fleet.
	maxReplicas = 1000
	// maxRequests bounds the requests a second of a fleet, and maxMinutes the minutes of its rates.
	maxRequests = 1_000_000
	maxMinutes  = 30 * 24 * 60
	// maxAll bounds all requests of a fleet: a run plays some millions in a second.
	maxAll = 200_000_000
	// maxAtOnce bounds the requests that a replica works on at a time, its rate times the time of a request.
	maxAtOnce = 1000
	// maxShares bounds the shares on which the replicas of a fleet may be.
	maxShares = 16
	// quantile is the default of the promised part, as in an InferenceFleet.
	quantile = .99
	// leastTime is the shortest promise, and time of a request.
	leastTime = time.Millisecond
)

// fleet is an inference fleet of a scenario.
type fleet struct {
	name    string
	arrive  time.Duration
	after   vgpu.UID
	request vgpu.Request // without slots
	requests.Fleet
	// shares are those on which a replica may be, ascending.
	shares []fleetShare
	// slots of a device.
	slots vgpu.Slots
}

// fleetShare is what a replica does that has so many slots.
type fleetShare struct {
	slots   vgpu.Slots
	replica traffic.Replica
}

// fleets reads the inference fleets. Their replicas are pods of the workload.
func (r *reader) fleets(files []fleetFile, a *asker, taken map[scalar]string, policies []string) []*fleet {
	if len(files) > maxFleets {
		r.wrong("workload.fleets", fmt.Sprintf("%d fleets", len(files)), fmt.Sprintf("at most %d", maxFleets))
		return nil
	}
	all := make([]*fleet, 0, len(files))
	for i := range files {
		path, f := at("workload.fleets", i), &files[i]
		x := &fleet{name: r.name(path+".name", f.Name, taken), arrive: r.start(path+".arrive", f.Arrive), slots: r.oneSize(path, a.all)}
		x.Name = x.name
		x.request.Host = vgpu.Room{MilliCPU: r.cpu(path+".cpu", f.CPU), Memory: r.memory(path+".memory", f.Memory)}
		if f.Priority != "" {
			x.request.Priority = int32(r.whole(path+".priority", f.Priority, math.MinInt32, math.MaxInt32))
		}
		x.Promise = r.promise(path+".promise", &f.Promise)
		x.Least = int(r.wholeOr(1, path+".min_replicas", f.MinReplicas, 1, maxReplicas))
		x.Most = int(r.whole(path+".max_replicas", f.MaxReplicas, int64(x.Least), maxReplicas))
		x.Load = r.drainTime(path+".load_time", f.LoadTime, 0, [2]time.Duration{0, maxInterval})
		x.shares = a.shares(path, f, x)
		x.Rates = r.requestRates(path+".rates", &f.Rates)
		if r.err == nil {
			r.serves(path, x, policies)
		}
		all = append(all, x)
	}
	return all
}

func (r *reader) promise(path string, f *promiseFile) traffic.Promise {
	p := traffic.Promise{Quantile: quantile, Within: r.drainTime(path+".latency", f.Latency, 0, [2]time.Duration{leastTime, maxInterval})}
	if f.Latency == "" {
		r.wrong(path+".latency", quote(f.Latency), "the time within which requests are answered, such as 200ms")
	}
	if f.Quantile != "" {
		p.Quantile = r.decimal(path+".quantile", f.Quantile, .5, .9999)
	}
	return p
}

// shares reads the shares on which the replicas of a fleet may be, and what they do there.
func (a *asker) shares(path string, f *fleetFile, x *fleet) (all []fleetShare) {
	if len(f.Shares) == 0 || len(f.Shares) > maxShares {
		a.wrong(path+".shares", fmt.Sprintf("%d shares", len(f.Shares)), fmt.Sprintf("1 to %d, such as {slots: 2, rate: 4, time: 180ms}", maxShares))
	}
	variation := 0.0
	if f.Variation != "" {
		variation = a.decimal(path+".variation", f.Variation, 0, 1)
	}
	for i := range f.Shares {
		at, s := at(path+".shares", i), &f.Shares[i]
		share := fleetShare{slots: vgpu.Slots(a.whole(at+".slots", s.Slots, 1, int64(max(1, x.slots)))), replica: traffic.Replica{Variation: variation}}
		share.replica.Rate = a.decimal(at+".rate", s.Rate, .001, maxRequests)
		if share.replica.Time = a.drainTime(at+".time", s.Time, 0, [2]time.Duration{leastTime, maxInterval}); s.Time == "" {
			a.wrong(at+".time", quote(s.Time), "the time of a request that does not wait, such as 80ms")
		}
		if atOnce := share.replica.Rate * share.replica.Time.Seconds(); atOnce > maxAtOnce {
			a.wrong(at+".rate", quote(s.Rate), fmt.Sprintf("at most %d requests at a time, rate times time, which are %s", maxAtOnce, number(math.Round(atOnce))))
		}
		if n := len(all); n > 0 && share.slots <= all[n-1].slots {
			a.wrong(at+".slots", quote(s.Slots), "more slots than the share before has")
		}
		if a.err == nil {
			pod := x.pod(share.slots)
			if refusal := sim.Explain(a.nodes, &pod); refusal != nil {
				a.wrong(at, "more than any node has ("+refusal.Why()+")", "what an empty node of the cluster can give")
			}
		}
		all = append(all, share)
	}
	return all
}

// pod is the request of a replica with so many slots.
func (x *fleet) pod(slots vgpu.Slots) vgpu.Request {
	p := x.request
	p.Containers = []vgpu.ContainerRequest{{Name: "main", Slots: slots}}
	return p
}

// best returns the share whose replicas, as many as fit, let a device serve the most within the promise; of equal ones the smaller one.
func (x *fleet) best() *fleetShare {
	best, most := 0, -1.0
	for i := range x.shares {
		s := &x.shares[i]
		if serves := float64(x.slots/s.slots) * s.replica.Capacity(x.Promise); serves > most {
			best, most = i, serves
		}
	}
	return &x.shares[best]
}

// serves refuses a fleet that cannot keep its promise.
func (r *reader) serves(path string, x *fleet, policies []string) {
	for _, policy := range policies {
		s := x.best()
		if policy == native {
			if s = &x.shares[len(x.shares)-1]; s.slots != x.slots {
				r.wrong(path+".shares", fmt.Sprintf("%d slots at most", s.slots), fmt.Sprintf("a share of %d slots too, since the policy native gives whole GPUs", x.slots))
				return
			}
		}
		f := x.on(s)
		if s.replica.Capacity(x.Promise) == 0 {
			r.wrong(path+".promise.latency", f.Promise.Within.String(), fmt.Sprintf("at least %v, which a replica of %d slots can promise without a queue",
				s.replica.Best(x.Promise.Quantile).Round(leastTime), s.slots))
		} else if n, enough := f.ForPeak(); !enough {
			r.wrong(path+".max_replicas", fmt.Sprint(n), fmt.Sprintf("more: the highest rate of %s needs more replicas of %d slots by the policy %s", number(slices.Max(x.Rates)), s.slots, policy))
		}
	}
}

// on returns the fleet with its replicas on a share.
func (x *fleet) on(s *fleetShare) requests.Fleet {
	f := x.Fleet
	f.Replica = s.replica
	return f
}

// play returns the jobs of the fleet in a run of a policy, and its requests. Natively the fleet has, all the time, the whole GPUs that keep
// the promise at the highest rate.
func (x *fleet) play(run *Run, every, until time.Duration) ([]sim.Job, *requests.Run, error) {
	s := x.best()
	if run.Policy == native {
		s = &x.shares[len(x.shares)-1]
	}
	f := x.on(s)
	f.Every, f.Until = every, until
	if run.Policy == native {
		n, _ := f.ForPeak()
		f.Least, f.Most, f.Fixed = n, n, true
	}
	h := fnv.New64a()
	h.Write([]byte("fleets/" + x.name)) // never fails
	played, err := requests.New(&f, uint64(run.Seed)^h.Sum64())
	if err != nil {
		return nil, nil, err
	}
	sizes := make([]int, 0, f.Most)
	for n := f.Least; n <= f.Most; n++ {
		sizes = append(sizes, n)
	}
	g := &sim.Gang{Name: "fleets/" + x.name, MinCount: f.Least, Elastic: &sim.Elastic{Sizes: sizes, Fleet: &sim.Fleet{Size: played.Size}}}
	jobs := make([]sim.Job, 0, f.Most)
	for k := range f.Most {
		job := sim.Job{Request: x.pod(s.slots), Arrive: x.arrive, After: x.after, Duration: f.Lasts(), Gang: g, Checkpoint: time.Second}
		named(&job.Request, fmt.Sprintf("fleets/%s/replica-%d", x.name, k))
		jobs = append(jobs, job)
	}
	return jobs, played, nil
}

// leader is the UID of the first replica.
func (x *fleet) leader() vgpu.UID { return vgpu.UID("fleets/" + x.name + "/replica-0") }

// solo returns how much of a GPU a request takes where a replica has the largest share, in GPU-hours.
func (x *fleet) solo() float64 {
	s := &x.shares[len(x.shares)-1]
	return float64(s.slots) / float64(x.slots) / s.replica.Rate / 3600
}

// requestRates reads the requests a second of each minute.
func (r *reader) requestRates(path string, f *requestRatesFile) []float64 {
	kinds := 0
	var rates []float64
	if len(f.List) > 0 {
		kinds++
		rates = r.listedRates(path, f)
	} else if f.Every != "" {
		r.wrong(path+".every", quote(f.Every), "a list of rates beside it")
	}
	if f.Wave != nil {
		kinds++
		rates = r.wave(path+".wave", f.Wave)
	}
	if f.CSV != "" {
		kinds++
		rates = r.minuteRates(path+".csv", f.CSV)
	}
	if kinds != 1 {
		r.wrong(path, fmt.Sprintf("%d of list, wave and csv", kinds), "one of them")
	}
	sum := 0.0
	for _, rate := range rates {
		sum += 60 * rate
	}
	if r.err == nil && (sum == 0 || sum > maxAll) {
		r.wrong(path, fmt.Sprintf("%.0f requests", sum), fmt.Sprintf("1 to %d in all minutes together", maxAll))
	}
	return rates
}

// listedRates goes in straight lines from one rate to the next; the last one holds.
func (r *reader) listedRates(path string, f *requestRatesFile) []float64 {
	every := time.Hour
	if f.Every != "" {
		every = r.duration(path+".every", f.Every, time.Minute)
	}
	span := int(every / time.Minute)
	switch {
	case every%time.Minute != 0:
		r.wrong(path+".every", quote(f.Every), "whole minutes")
	case len(f.List) > maxMinutes/max(1, span):
		r.wrong(path+".list", fmt.Sprintf("%d rates", len(f.List)), fmt.Sprintf("at most %d, for 30 days", maxMinutes/max(1, span)))
	}
	if r.err != nil {
		return nil
	}
	points := make([]float64, 0, len(f.List)+1)
	for i, s := range f.List {
		points = append(points, r.decimal(at(path+".list", i), s, 0, maxRequests))
	}
	points = append(points, points[len(points)-1])
	rates := make([]float64, 0, span*len(f.List))
	for i := range f.List {
		for minute := range span {
			part := float64(minute) / float64(span)
			rates = append(rates, points[i]+(points[i+1]-points[i])*part)
		}
	}
	return rates
}

// wave reads a rate that goes up and down once a day as a cosine does.
func (r *reader) wave(path string, f *waveFile) []float64 {
	low, high := r.decimal(path+".low", f.Low, 0, maxRequests), r.decimal(path+".high", f.High, 0, maxRequests)
	if high < low {
		r.wrong(path+".high", quote(f.High), "at least low, "+number(low))
	}
	peak, lasts := r.start(path+".peak", f.Peak), 24*time.Hour
	if f.Lasts != "" {
		lasts = r.drainTime(path+".lasts", f.Lasts, 0, [2]time.Duration{time.Minute, maxMinutes * time.Minute})
	}
	rates := make([]float64, 0, lasts/time.Minute)
	for minute := range int(lasts / time.Minute) {
		turn := 2 * math.Pi * (float64(minute) - peak.Minutes()) / (24 * 60)
		// Rounded, so that processors which differ in the last bit of a cosine agree.
		rates = append(rates, math.Round(1e6*(low+(high-low)*(1+math.Cos(turn))/2))/1e6)
	}
	return rates
}

// rateSchema is the format of a file of rates: minutes follow each other from 0.
var rateSchema = csvtable.Schema[[]float64]{Format: "rates", Needs: []string{"minute", "rate"}, Row: func(t *csvtable.Table, all *[]float64) {
	if n := t.Whole("minute", 0, maxMinutes-1); int(n) != len(*all) {
		t.Fail("minute", fmt.Sprintf("%d: minutes follow each other from 0", len(*all)))
	}
	*all = append(*all, t.Decimal("rate", maxRequests, "requests per second"))
}}

// minuteRates reads a file of rates, beside the scenario unless its path is absolute.
func (r *reader) minuteRates(path string, s scalar) []float64 {
	name := string(s)
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(r.file), name)
	}
	rates, err := readRates(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.wrong(path, quote(s)+", which is not there", "the path of a file of rates, from the folder of the scenario")
	case err != nil:
		r.wrong(path, "a broken file of rates ("+err.Error()+")", "columns minute and rate, a row for each minute from 0 on")
	case len(rates) == 0:
		r.wrong(path, quote(s)+", which has no row", "columns minute and rate, a row for each minute from 0 on")
	}
	return rates
}

func readRates(name string) (rates []float64, err error) {
	f, err := csvtable.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := csvtable.New(f, name)
	if err != nil {
		return nil, err
	}
	s, err := csvtable.Detect(t, []csvtable.Schema[[]float64]{rateSchema})
	if err != nil {
		return nil, err
	}
	return rates, s.Read(t, &rates)
}
