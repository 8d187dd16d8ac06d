package traffic

import (
	"math"
	"testing"
	"time"
)

// A jump at the same minute of two hours is expected in the next one, before it comes; after one hour it is not.
func TestForecastKnowsTheHour(t *testing.T) {
	var f Forecast
	load := func(m int) float64 {
		if m%60 >= 30 && m%60 < 40 {
			return 300
		}
		return 100
	}
	observe(t, &f, 0, 89, load)
	if got := f.Highest(2 * time.Minute); got > 150 {
		t.Errorf("after one hour %v are expected", got)
	}
	observe(t, &f, 89, 60, load)
	if got := f.Highest(2 * time.Minute); got < 280 {
		t.Errorf("after two hours %v are expected", got)
	}
	observe(t, &f, 149, 25, load)
	if got := f.Highest(2 * time.Minute); got > 200 {
		t.Errorf("far from the minute %v are expected", got)
	}
}

// A rise that comes no more is forgotten within days.
func TestForecastForgetsAnHour(t *testing.T) {
	var f Forecast
	observe(t, &f, 0, 150*60, func(m int) float64 {
		if m < 180 && m%60 == 30 {
			return 400
		}
		return 100
	})
	if got := f.Hour[30].Factor.Second; got > 1.2 {
		t.Errorf("after six days a rise of %v is expected", got)
	}
}

// A rise is neither more requests nor more times the level than it was: five times the requests of a quiet night are 40 more a second at noon, and
// 400 more at noon are five times the requests of a quiet night.
func TestForecastBoundsARise(t *testing.T) {
	for name, x := range map[string]struct{ before, now, least, most float64 }{
		"from night to noon": {10, 1000, 1000, 1040},
		"from noon to night": {100, 10, 40, 50},
	} {
		var f Forecast
		observe(t, &f, 0, 149, func(m int) float64 {
			switch {
			case m >= 125:
				return x.now
			case m%60 >= 30 && m%60 < 40:
				return 5 * x.before
			}
			return x.before
		})
		if got := f.hourly(2); got < x.least || got > x.most+1e-9 {
			t.Errorf("%s: other hours lead to %v, want %v to %v", name, got, x.least, x.most)
		}
	}
}

// If requests vary a lot, each minute rises in some hours. That says nothing of the next hour, and only minutes that rise by more count.
func TestForecastTakesNoNoiseForAnHour(t *testing.T) {
	for name, jump := range map[string]float64{"noise alone": 1, "noise and a jump at each half hour": 3} {
		var f Forecast
		rises := map[bool]int{}
		for m := range 48 * 60 {
			x := math.Abs(math.Sin(float64(m)*12.9898)) * 43758.5453
			rate := 100 * (1 + x - math.Floor(x))
			if m%60 == 30 {
				rate *= jump
			}
			observe(t, &f, m, 1, always(rate))
			if m > 24*60 && f.hourly(0) > 0 {
				rises[m%60 >= 28 && m%60 <= 30]++
			}
		}
		if rises[false] > 24 {
			t.Errorf("%s: in %d minutes of a day other hours count", name, rises[false])
		}
		if jump > 1 && rises[true] != 3*24 {
			t.Errorf("%s: before %d of 72 minutes the jump is expected", name, rises[true])
		}
	}
}
