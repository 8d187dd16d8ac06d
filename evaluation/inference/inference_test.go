package inference

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-gpu/tandem/pkg/traffic"
	"github.com/tandem-gpu/tandem/test/must"
)

func one(rate float64, count int) traffic.Fleet {
	return traffic.Fleet{
		Name: "m", Promise: traffic.Promise{Quantile: .99, Within: time.Second}, Objective: traffic.Proportional,
		Variants: []traffic.Variant{{
			Name: "a", Replica: traffic.Replica{Rate: rate, Time: time.Duration(float64(time.Second) / rate), Variation: 1},
			Cost: 1, Most: 100, Load: 30 * time.Second, Wanted: count, Ready: count, Part: 1,
		}},
	}
}

func steady(rate float64, minutes int) Load {
	return Load{Span: time.Minute, Rates: slices.Repeat([]float64{rate}, minutes)}
}

// The replay of one replica with exponential times is M/M/1: the mean is 1 ÷ (10 − 5), the p99 ln 100 ÷ 5 = 0.92 s.
func TestReplayIsAQueue(t *testing.T) {
	r := Run(one(10, 1), Truth{}, steady(5, 2000), 0, &Static{[]int{1}}, 1)
	if math.Abs(r.Mean.Seconds()-.2) > .01 || math.Abs(r.P99.Seconds()-.92) > .06 {
		t.Errorf("mean %v, p99 %v", r.Mean, r.P99)
	}
	if r.Windows == 0 || r.Requests < 590_000 || r.Requests > 610_000 || r.Cost != 1 || r.Moves != 0 {
		t.Errorf("%+v", r)
	}
	want := float64(r.Requests) * math.Exp(-5) // of M/M/1, e^(−5 × 1 s) take longer than the promise
	if math.Abs(float64(r.Late)-want) > .1*want {
		t.Errorf("%d requests are late, want %v", r.Late, want)
	}
}

// If no replica serves, all requests are late and all windows broken.
func TestNoReplica(t *testing.T) {
	r := Run(one(10, 0), Truth{}, steady(5, 10), 0, &Static{[]int{0}}, 1)
	if r.Late != r.Requests || r.Broken != r.Windows || r.Windows == 0 || r.Cost != 0 {
		t.Errorf("%+v", r)
	}
}

// A fleet that a spike overloads breaks the promise until other replicas have loaded, and not for ever.
func TestSpike(t *testing.T) {
	load := Load{Span: time.Minute, Rates: slices.Concat(slices.Repeat([]float64{20}, 30), slices.Repeat([]float64{80}, 30))}
	tandem := Run(one(10, 4), Truth{}, load, 0, &Tandem{}, 1)
	static := Run(one(10, 4), Truth{}, load, 0, &Static{[]int{4}}, 1)
	if tandem.Broken == 0 || tandem.Broken > 6 || static.Broken < 25 {
		t.Errorf("of 60 windows tandem breaks %d, a fixed size %d", tandem.Broken, static.Broken)
	}
	if tandem.Cost < 8 || tandem.Moves == 0 {
		t.Errorf("%+v", tandem)
	}
}

// An autoscaler with a target of half of the time busy gets twice the replicas that the load needs, and shrinks only after five minutes.
func TestHPA(t *testing.T) {
	r := Run(one(10, 1), Truth{}, steady(50, 300), 0, &HPA{Utilisation: .5}, 1)
	if r.Cost < 9 || r.Cost > 12 {
		t.Errorf("on utilisation it has %v replicas on average, want some 10", r.Cost)
	}
	byRate := Run(one(10, 1), Truth{}, steady(50, 60), 0, &HPA{Rate: 5}, 1)
	if byRate.Cost < 9 || byRate.Cost > 12 {
		t.Errorf("on rate it has %v replicas on average, want some 10", byRate.Cost)
	}
	h, f := &HPA{Rate: 5}, one(10, 10)
	at := time.Unix(1e9, 0)
	for i := range 30 {
		rate := 50.0
		if i >= 4 {
			rate = 10
		}
		n, _ := h.Decide(&f, traffic.Seen{At: at.Add(time.Duration(i) * Interval), Rate: rate}, []float64{0})
		if want := map[bool]int{true: 10, false: 2}[i < 24]; n[0] != want {
			t.Fatalf("after %d decisions it has %d replicas, want %d", i, n[0], want)
		}
		f.Variants[0].Wanted = n[0]
	}
}

// At the capacity of a replica whose times vary little, the promised 1 % of the requests is late, of VGG-19 on a V100 with three times its
// latency on a fifth; at a fifth more clearly more is.
func TestCapacityIsRight(t *testing.T) {
	const promise, alone = 31.9, 10.618 // ms
	late := func(r traffic.Replica, rate float64) float64 {
		s := Splits{Requests: 400_000, Seed: 1}
		took := s.playReplicas([]traffic.Replica{r}, []float64{rate}, rate).took[0]
		slices.Sort(took)
		at, _ := slices.BinarySearch(took, promise/1000)
		return 1 - float64(at)/float64(len(took))
	}
	for _, millis := range []float64{alone, 5.5, 4.24, 2.83} {
		for _, variation := range []float64{0, .1, .5, 1} {
			r := traffic.Replica{Rate: 1000 / millis, Time: time.Duration(millis * float64(time.Millisecond)), Variation: variation}
			capacity := r.Capacity(traffic.Promise{Quantile: .99, Within: time.Duration(promise * float64(time.Millisecond))})
			if capacity == 0 {
				continue
			}
			if part := late(r, capacity); part > .0115 || part < .0085 {
				t.Errorf("at %v ms, variation %v and a capacity of %v a part of %v is late", millis, variation, capacity, part)
			}
			if part := late(r, 1.2*capacity); part < .012 {
				t.Errorf("at %v ms, variation %v and 1.2 × the capacity of %v a part of %v is late", millis, variation, capacity, part)
			}
		}
	}
}

// The real speed of the replicas counts, not the declared one.
func TestTruth(t *testing.T) {
	slow := []traffic.Replica{{Rate: 5, Time: 200 * time.Millisecond, Variation: 1}}
	f := one(10, 2)
	f.Promise.Within = 3 * time.Second
	r := Run(f, Truth{Replicas: slow}, steady(9, 200), 0, &Static{[]int{2}}, 1)
	if r.Broken < r.Windows*9/10 {
		t.Errorf("%d of %d windows are broken", r.Broken, r.Windows)
	}
	learns := Run(f, Truth{Replicas: slow}, steady(9, 200), 0, &Tandem{}, 1)
	if learns.Broken > r.Windows/5 || learns.Cost < 3 {
		t.Errorf("tandem has %v replicas and breaks %d of %d windows", learns.Cost, learns.Broken, learns.Windows)
	}
}

func TestReadLoad(t *testing.T) {
	for name, x := range map[string]struct {
		text string
		want []float64
		err  string
	}{
		"twitter":   {"minute,tweets\n0,60\n1,0\n2,120\n", []float64{1, 1, 2}, ""},
		"cut short": {"minute,tweets\n0,60\n1,2\n2,0\n3,0\n4,120\n", []float64{1, 1, 1, 1, 2}, ""},
		"azure":     {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,1,1\n2023-11-16 18:15:50.1,1,1\n2023-11-16 18:18:50.1,1,1\n", []float64{2. / 60, 0, 0}, ""},
		"a gap":     {"minute,tweets\n0,60\n2,120\n", nil, `line 3 column minute: found "2", want 1: minutes follow each other from 0`},
		"negative":  {"minute,tweets\n0,-1\n", nil, `line 2 column tweets: found "-1", want a whole number from 0 to 1000000000`},
		"no time":   {"TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1\n", nil, `column TIMESTAMP: found "x", want a time as`},
		"backwards": {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.1,1,1\n2023-11-16 18:10:46.1,1,1\n", nil, "a time after the last one"},
		"alibaba": {
			"timestamp_anon,value,container_ip,request_type\n1000,1,,API Requests\n1057,2,a,Generative Requests\n1057.0,1,b,Generative Requests\n1171,9,a,Generative Requests\n",
			[]float64{.15, 2.7, 1.35}, "", // 3 a second for 57 s from 57 s on: 3 s in the first minute, 54 s in the second; 9 a second from 171 s on
		},
		"another kind":   {"timestamp_anon,value,request_type\n1000,1,Requests\n", nil, `line 2 column request_type: found "Requests", want Generative Requests or API Requests`},
		"no rate":        {"timestamp_anon,value,request_type\n1000,-1,API Requests\n", nil, `column value: found "-1", want a number from 0`},
		"a late sample":  {"timestamp_anon,value,request_type\n1000,1,API Requests\n999,1,API Requests\n", nil, `line 3 column timestamp_anon: found "999", want a time after the last one`},
		"a long gap":     {"timestamp_anon,value,request_type\n1000,1,API Requests\n100000,1,API Requests\n", nil, "at most 1440 minutes later"},
		"one minute":     {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.1,1,1\n", nil, "requests of two minutes at least"},
		"another format": {"a,b\n1,2\n", nil, "those of a known trace: twitter-minutes (minute, tweets); azure-requests"},
	} {
		path := filepath.Join(t.TempDir(), "load.csv")
		must.OK(t, os.WriteFile(path, []byte(x.text), 0o600))
		l, err := ReadLoad(path)
		switch {
		case x.err != "":
			if err == nil || !strings.Contains(err.Error(), x.err) {
				t.Errorf("%s: the error is %v, want %s", name, err, x.err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			if diff := cmp.Diff(x.want, l.Rates, cmpopts.EquateApprox(0, 1e-12)); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
	l := steady(3, 10)
	if got := l.Part(8, 5, 2); !slices.Equal(got.Rates, []float64{6, 6}) {
		t.Errorf("a part is %v", got.Rates)
	}
}

func TestReadLoadTimes(t *testing.T) {
	for name, x := range map[string]struct {
		text string
		want []time.Duration
		err  string
	}{
		"alibaba":   {"timestamp_anon,value,container_ip\n1,1500,a\n2,22718.5,b\n", []time.Duration{1500 * time.Millisecond, 22718500 * time.Microsecond}, ""},
		"too long":  {"timestamp_anon,value,container_ip\n1,3600001,a\n", nil, `line 2 column value: found "3600001", want a number from 0 to 3600000 (milliseconds)`},
		"none":      {"timestamp_anon,value,container_ip\n", nil, "at least one row"},
		"rates":     {"timestamp_anon,value,container_ip,request_type\n1,1500,a,API Requests\n", nil, "a column that is not known"},
		"something": {"a,b\n1,2\n", nil, "alibaba-load-times (timestamp_anon, value, container_ip)"},
	} {
		path := filepath.Join(t.TempDir(), "times.csv")
		must.OK(t, os.WriteFile(path, []byte(x.text), 0o600))
		got, err := ReadLoadTimes(path)
		switch {
		case x.err != "":
			if err == nil || !strings.Contains(err.Error(), x.err) {
				t.Errorf("%s: the error is %v, want %s", name, err, x.err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case !slices.Equal(got, x.want):
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Replicas that load for unlike times serve in the order in which they are done, and the last of them stop first.
func TestLoadTimes(t *testing.T) {
	p := pool{channels: 1, loads: &loading{times: []time.Duration{2 * time.Second, 50 * time.Second}, rng: rand.New(rand.NewPCG(1, 1))}}
	p.resize(2, math.Inf(-1))
	p.resize(40, 100)
	if n := p.serving(100); n != 2 {
		t.Errorf("%d replicas serve when others begin to load", n)
	}
	early := p.serving(102) - 2
	if early < 10 || early > 28 || p.serving(149) != early+2 || p.serving(150) != 40 {
		t.Errorf("of 38 replicas %d serve after 2 s, %d after 50 s", early, p.serving(150)-2)
	}
	p.resize(early+2, 103)
	if n := p.serving(103); n != early+2 {
		t.Errorf("%d replicas serve after those that load have stopped, want %d", n, early+2)
	}
}
