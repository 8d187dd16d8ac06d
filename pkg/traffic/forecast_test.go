package traffic

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/test/must"
)

// observe takes in rates of minutes that follow each other from midnight on.
func observe(t *testing.T, f *Forecast, from, minutes int, rate func(minute int) float64) {
	t.Helper()
	for m := from; m < from+minutes; m++ {
		must.OK(t, f.Observe(rate(m), midnight.Add(time.Duration(m+1)*time.Minute)))
	}
}

// A load that grows by 10 a second each minute is expected to go on.
func TestForecastFollowsTheTrend(t *testing.T) {
	var f Forecast
	observe(t, &f, 0, 30, func(m int) float64 { return 100 + 10*float64(m) }) // 390 in the last minute
	if got := f.Highest(5*time.Minute) / (1 + f.SteadyMargin); math.Abs(got-440) > 1 {
		t.Errorf("in five minutes %v are expected, want 440", got)
	}
	observe(t, &f, 30, 20, func(m int) float64 { return 390 - 10*float64(m-30) })
	if got := f.Highest(5 * time.Minute); got < 200 {
		t.Errorf("a fall is forecast: %v", got)
	}
}

// A peak of yesterday is expected today, and as much higher as today is so far.
func TestForecastKnowsTheDay(t *testing.T) {
	var f Forecast
	load := func(m int) float64 {
		rate := 50.0
		if m%1440 >= 600 && m%1440 < 700 {
			rate = 200
		}
		if m >= 1440 {
			rate *= 1.2
		}
		return rate
	}
	observe(t, &f, 0, 1440+595, load)
	if got := f.Highest(10*time.Minute) / (1 + f.RiseMargin); got < 220 || got > 260 {
		t.Errorf("before the peak %v are expected, want 240", got)
	}
}

// A rate within a minute that is more than expected counts at once, and as what its new requests say. It teaches nothing: once the minute is
// over, all is as if it had not been seen.
func TestForecastNotices(t *testing.T) {
	quiet := func() *Forecast {
		var f Forecast
		observe(t, &f, 0, 30, always(100))
		return &f
	}
	last := midnight.Add(30 * time.Minute)
	for name, x := range map[string]struct {
		rate          float64
		after, window time.Duration
		want          float64
	}{
		"a quarter of the window is new":    {150, 15 * time.Second, time.Minute, 300},
		"half of it":                        {150, 30 * time.Second, time.Minute, 200},
		"all of it":                         {150, 45 * time.Second, 30 * time.Second, 150},
		"very little of it":                 {150, time.Second, time.Minute, 300},
		"what was expected with the margin": {105, 15 * time.Second, time.Minute, 0},
		"less":                              {90, 15 * time.Second, time.Minute, 0},
		"no number":                         {math.NaN(), 15 * time.Second, time.Minute, 0},
		"too much":                          {math.Inf(1), 15 * time.Second, time.Minute, 0},
		"a minute before":                   {150, -15 * time.Second, time.Minute, 0},
		"a minute later":                    {150, 75 * time.Second, time.Minute, 0},
	} {
		f := quiet()
		if f.Notice(x.rate, last.Add(x.after), x.window); math.Abs(f.Newest-x.want) > 1e-9 {
			t.Errorf("%s: %v a second are taken to arrive, want %v", name, f.Newest, x.want)
		}
	}
	f, never := quiet(), quiet()
	f.Notice(150, last.Add(15*time.Second), time.Minute)
	f.Notice(120, last.Add(30*time.Second), time.Minute)
	near(t, "the rate expected after a fall", f.Highest(0)/(1+f.SteadyMargin), 300, 1e-9)
	observe(t, f, 30, 1, always(100))
	observe(t, never, 30, 1, always(100))
	if diff := cmp.Diff(never, f); diff != "" {
		t.Errorf("a minute later the forecast knows more of it (-never noticed +noticed):\n%s", diff)
	}
}

// After a jump the rate of the new requests is known from each window that has some of them: the jump is neither missed nor exaggerated, also
// where the last minute has most of it. Chance makes jumps of few requests, so there are at least fifty a second.
func TestPropertyNoticesJumps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var f Forecast
		before, times := math.Exp(rapid.Float64Range(4, 8).Draw(t, "before")), rapid.Float64Range(1.5, 4).Draw(t, "times")
		at := rapid.IntRange(0, 119).Draw(t, "second") // of two minutes
		mean := func(end int) float64 { return before * (1 + (times-1)*float64(min(max(0, end-at), 60))/60) }
		for m := range 32 {
			rate := before
			if m >= 30 {
				rate = mean((m - 29) * 60)
			}
			must.OK(t, f.Observe(rate, midnight.Add(time.Duration(m+1)*time.Minute)))
			highest := f.Highest(0)
			for second := 15; m >= 29 && m < 31 && second < 60; second += 15 {
				f.Notice(mean((m-29)*60+second), midnight.Add(time.Duration(m+1)*time.Minute+time.Duration(second)*time.Second), time.Minute)
				if more := f.Highest(0); more < highest {
					t.Fatalf("%v are expected after %v were", more, highest)
				} else {
					highest = more
				}
				if f.Newest > before*times*(1+1e-9) {
					t.Fatalf("%v are taken to arrive after a jump from %v to %v", f.Newest, before, before*times)
				}
			}
			if m == 29 && at == 0 && f.Newest < before*times*(1-1e-9) {
				t.Fatalf("%v are taken to arrive a quarter of a minute after a jump from %v to %v", f.Newest, before, before*times)
			}
		}
	})
}

// Requests that come by chance, at a constant mean rate and a few in a minute, are no trend and no spike: in three hours no more is expected
// without the margin than a tenth and twice what chance makes of a minute.
func TestPropertyChanceIsNoTrend(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		mean, ahead := math.Exp(rapid.Float64Range(-1, 4).Draw(t, "mean")), time.Duration(rapid.IntRange(0, 10).Draw(t, "ahead"))*time.Minute
		r := rand.New(rand.NewPCG(uint64(rapid.IntRange(0, 1000).Draw(t, "seed")), 1))
		var f Forecast
		var quarters []float64 // of a minute, in requests
		next := r.ExpFloat64() / mean
		for q := range 12 * 60 {
			n := 0.
			for ; next < float64(15*(q+1)); next += r.ExpFloat64() / mean {
				n++
			}
			if quarters = append(quarters, n); q < 3 {
				continue
			}
			rate, at := 0., midnight.Add(time.Duration(q+1)*15*time.Second)
			for _, n := range quarters[q-3:] {
				rate += n / 60
			}
			if q%4 == 3 {
				must.OK(t, f.Observe(rate, at))
			} else {
				f.Notice(rate, at, time.Minute)
			}
			if got := f.Highest(ahead) / (1 + f.SteadyMargin); got > 1.1*mean+2*chance(mean, 60) {
				t.Fatalf("quarter %d: %v are expected without the margin, %v a second come: %+v", q, got, mean, f.Recent)
			}
		}
	})
}

// A slow ramp of a few requests a second is seen ahead all the same: with a load time of ten minutes, the highest forecast of the half hour before is short of
// the true rate in a sixth of the minutes at most.
func TestForecastSeesSlowRamps(t *testing.T) {
	short, minutes := 0, 0
	for seed := range uint64(20) {
		r, f := rand.New(rand.NewPCG(seed, 2)), Forecast{}
		var highest []float64
		rate := func(m int) float64 { return 1 + .045*float64(max(0, m-30)) }
		for m := range 90 {
			n := 0.
			for at := r.ExpFloat64() / rate(m); at < 60; at += r.ExpFloat64() / rate(m) {
				n++
			}
			must.OK(t, f.Observe(n/60, midnight.Add(time.Duration(m+1)*time.Minute)))
			if highest = append(highest, f.Highest(10*time.Minute)); m >= 40 {
				minutes++
				if slices.Max(highest[m-40:m-9]) < rate(m) {
					short++
				}
			}
		}
	}
	if 6*short > minutes {
		t.Errorf("in %d of %d minutes too little was forecast", short, minutes)
	}
}

// A value that is no rate, or a time that is no later one, changes nothing.
func TestForecastRefuses(t *testing.T) {
	var f Forecast
	observe(t, &f, 0, 20, always(100))
	before := f
	for _, rate := range []float64{math.NaN(), math.Inf(1), -1, 2 * MaxRate} {
		if err := f.Observe(rate, midnight.Add(time.Hour)); err == nil {
			t.Errorf("rate %v is taken", rate)
		}
	}
	if err := f.Observe(1, midnight); err == nil {
		t.Error("a time before the last one is taken")
	}
	if f.Last != before.Last || f.Highest(time.Minute) != before.Highest(time.Minute) {
		t.Error("the forecast has changed")
	}
	if err := f.Observe(100, midnight.Add(48*time.Hour)); err != nil || len(f.Recent) != recentMinutes {
		t.Errorf("after a gap of two days: %v, %d minutes", err, len(f.Recent))
	}
}

// Few minutes of a load with noise bring more than the forecast: after a day at most three in a thousand. The margin does not run away.
func TestPropertyCoverage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var f Forecast
		level, noise := math.Exp(rapid.Float64Range(0, 8).Draw(t, "level")), rapid.Float64Range(0, .3).Draw(t, "noise")
		swing, seed := rapid.Float64Range(0, .9).Draw(t, "swing"), rapid.Float64Range(0, 100).Draw(t, "seed")
		misses := 0
		const minutes = 4320
		for m := range minutes {
			x := math.Abs(math.Sin(float64(m)*12.9898+seed)) * 43758.5453
			rate := level * (1 + swing*math.Sin(float64(m)/1440*2*math.Pi)) * (1 + noise*(x-math.Floor(x)))
			if m >= 1440 && rate > f.Highest(soon*time.Minute) {
				misses++
			}
			must.OK(t, f.Observe(rate, midnight.Add(time.Duration(m+1)*time.Minute)))
		}
		if misses > 3*(minutes-1440)/1000 {
			t.Fatalf("%d of %d minutes brought more than forecast", misses, minutes-1440)
		}
		if most := level * (1 + swing) * (1 + noise); f.Highest(soon*time.Minute) > 2.5*most {
			t.Fatalf("%v are expected, the most ever is %v", f.Highest(soon*time.Minute), most)
		}
	})
}
