package traffic

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Forecast is what is known of the requests that arrive: how many now, and when in a day there are many. The zero value knows
// nothing. It is data: it can be written and read.
type Forecast struct {
	// Recent are the rates of the last minutes, the newest last: at most recentMinutes.
	Recent []float64 `json:"recent,omitempty"`
	// Last is the minute of the newest one since 1970.
	Last int64 `json:"last,omitempty"`
	// Newest is the highest rate that was noticed since then, where that is more than was expected; 0 for none.
	Newest float64 `json:"newest,omitempty"`
	// Day is the usual peak of each span of five minutes of a day in UTC, 0 for unknown. Peak is that of the span at hand, so far.
	Day  []float64 `json:"day,omitempty"`
	Peak float64   `json:"peak,omitempty"`
	// Today is how today's peaks compare with the usual ones: 1 for as usual, 0 for unknown.
	Today float64 `json:"today,omitempty"`
	// Hour is by how much each minute of an hour exceeds the level before it: what starts at the full hour, or at the half.
	Hour []Rise `json:"hour,omitempty"`
	// Expected is what was forecast for the next minutes.
	Expected Expected `json:"expected"`
	// SteadyMargin is the part that is added to a forecast by the last minutes, RiseMargin to one by other hours and days.
	SteadyMargin float64 `json:"steadyMargin,omitempty"`
	RiseMargin   float64 `json:"riseMargin,omitempty"`
	// SinceMiss is how many minutes ago the margin rose.
	SinceMiss int `json:"sinceMiss,omitempty"`
	// Misses is the part of the minutes that may bring more than the forecast with its margin; 0 stands for DefaultMisses.
	Misses float64 `json:"misses,omitempty"`
	// Window is of how many seconds the rates are, by which chance is judged; 0 is a minute.
	Window float64 `json:"window,omitempty"`
}

// Expected is the highest rate that was forecast, without a margin.
type Expected struct {
	Rate float64 `json:"rate,omitempty"`
	// Rises says that other hours or days lead to clearly more than the last minutes do.
	Rises bool `json:"rises,omitempty"`
}

const (
	// recentMinutes are what the short window sees. A longer one follows a trend later, a shorter one takes noise for a trend.
	recentMinutes = 10
	daySpans      = 288
	spanMinutes   = 5
	// dayForgets is the part by which a usual peak falls towards a lower one, each day. A higher one counts at once.
	dayForgets = .3
	// todayLearns is the part of a span that goes into how today compares. The bounds keep one odd hour from ruling the day.
	todayLearns           = .2
	leastToday, mostToday = .5, 1.5
	// clearly is how many times more a rise is than what the last minutes lead to.
	clearly = 1.25
	// DefaultMisses is a thousandth of the minutes. A margin rises by marginRises with each minute that was missed, and falls so slowly that it
	// rests where just that part is (adaptive conformal inference, Gibbs and Candès, 2021).
	DefaultMisses           = .001
	marginRises             = .1
	leastMargin, mostMargin = .05, 3
	// mostTrend bounds a trend by the highest rate of the short window.
	mostTrend = 2
	// leastNew is the least part of a window that new requests are taken to fill: less takes noise for a spike, more sees spikes late.
	leastNew = .25
	// byChance is how many standard deviations of requests that come by chance (Poisson) are no sign of more, and trendByChance how many those of a slope
	// are none. A day has 1,440 minutes, and four windows in each: with less, chance makes a fleet of few requests grow in hours.
	byChance, trendByChance = 4, 2
	// soon is how far ahead the margin is judged, in minutes: until another replica has loaded, mostly.
	soon = 2
)

// Observe takes in the rate of requests of the minute that ends at a time, in requests a second. It refuses rates that are no numbers,
// and times before the last one; minutes that are missing in between are taken to be like the last ones.
func (f *Forecast) Observe(rate float64, at time.Time) error {
	minute := at.Unix() / 60
	switch {
	case !(rate >= 0 && rate <= MaxRate):
		return fmt.Errorf("rate %v: legal are numbers from 0 to %g", rate, float64(MaxRate))
	case minute <= f.Last:
		return fmt.Errorf("minute %d is not after the last one, %d: did the clock go back?", minute, f.Last)
	}
	if f.Last == 0 {
		f.SteadyMargin, f.RiseMargin, f.SinceMiss = 2*leastMargin, 2*leastMargin, recentMinutes
		f.Today, f.Day, f.Hour = 1, make([]float64, daySpans), make([]Rise, 60)
	} else {
		f.judge(rate)
		for range min(minute-f.Last-1, recentMinutes-1) {
			f.push(f.now())
		}
	}
	f.rise(rate, minute)
	f.push(rate)
	f.endSpan(minute)
	f.Peak, f.Last, f.Newest = max(f.Peak, rate), minute, 0
	f.Expected = f.highest(soon)
	return nil
}

// Notice takes in the rate of a window that ends within the minute after the last one that was taken in. If it is more than was expected
// with the margin, it raises what is expected until that minute is over: to the rate of its new requests alone, since the window holds older
// ones too. It teaches nothing: Observe does that, once a minute. Other rates and times change nothing.
//
// Example: 100 a second arrived in the last minutes, and 150 in the minute that ends 15 s later. A quarter of that is new: 300 a second.
func (f *Forecast) Notice(rate float64, at time.Time, window time.Duration) {
	minute, second := at.Unix()/60, at.Unix()%60
	if !(rate <= MaxRate) || f.Last == 0 || minute != f.Last || rate <= max(f.usual(0), f.now()+f.chance(f.now())) {
		return
	}
	last := f.Recent[len(f.Recent)-1]
	gone := min(last, f.Recent[max(0, len(f.Recent)-2)]) // the rate of the requests that the window has left behind
	part := min(1, max(leastNew, float64(second)/window.Seconds()))
	if byNew := max(last, rate) * part; rate-last < chance(2*byNew, window.Seconds()) { // of the new requests, and of those that they replace
		f.Newest = max(f.Newest, rate)
		return
	}
	f.Newest = min(max(f.Newest, rate, gone+(rate-last)/part), MaxRate)
}

// judge takes in how right the last forecast was.
//
// A jump is one miss, however many minutes it takes: those after the first one in recentMinutes teach nothing. The first minutes of all teach nothing
// either: there was no forecast yet. Chance makes misses too: a rule that left them out kept too few replicas for the promise.
func (f *Forecast) judge(rate float64) {
	margin := &f.SteadyMargin
	if f.Expected.Rises {
		margin = &f.RiseMargin
	}
	if f.SinceMiss++; rate > f.Expected.Rate*(1+*margin) {
		if f.SinceMiss >= recentMinutes && len(f.Recent) >= recentMinutes/2 {
			*margin = min(mostMargin, *margin+marginRises)
			f.SinceMiss = 0
		}
	} else {
		missed := cmp.Or(f.Misses, DefaultMisses)
		*margin = max(leastMargin, *margin-marginRises*missed/(1-missed))
	}
}

func (f *Forecast) push(rate float64) {
	f.Recent = append(f.Recent, rate)
	if over := len(f.Recent) - recentMinutes; over > 0 {
		f.Recent = append(f.Recent[:0:0], f.Recent[over:]...)
	}
}

// endSpan takes in the peak of a span that is over at a minute.
func (f *Forecast) endSpan(minute int64) {
	if f.Last == 0 || minute/spanMinutes == f.Last/spanMinutes {
		return
	}
	usual := &f.Day[span(f.Last)]
	if *usual > 0 {
		today := min(max(f.Peak / *usual, leastToday), mostToday)
		f.Today += todayLearns * (today - f.Today)
	}
	*usual = max(f.Peak, *usual+dayForgets*(f.Peak-*usual))
	f.Peak = 0
}

func span(minute int64) int { return int(minute / spanMinutes % daySpans) }

// now returns the rate of the last three minutes.
func (f *Forecast) now() float64 {
	sum, n := 0.0, min(3, len(f.Recent))
	for _, r := range f.Recent[len(f.Recent)-n:] {
		sum += r
	}
	return sum / max(1, float64(n))
}

// chance returns by how much a rate of requests that come by chance may differ from its mean in so many seconds, without being a sign of another one.
func chance(rate, seconds float64) float64 { return byChance * math.Sqrt(rate/seconds) }

// chance is that of the rates that are taken in.
func (f *Forecast) chance(rate float64) float64 { return chance(rate, cmp.Or(f.Window, 60)) }

// trend returns what the short window says of so many minutes from now: the least that lines by least squares through all of it, its half and its
// last three minutes lead to. A rise that is over is no trend, nor is a jump, nor what was seen for a few minutes only, nor one that chance explains.
// It leads to no more than twice of what arrived.
func (f *Forecast) trend(minutes float64) float64 {
	n := len(f.Recent)
	if n < recentMinutes/2 || !f.rises() {
		return f.now()
	}
	return min(line(f.Recent, minutes), line(f.Recent[n-recentMinutes/2:], minutes), line(f.Recent[n-3:], minutes), mostTrend*slices.Max(f.Recent))
}

// rises reports whether the last minutes rise by more than chance explains.
func (f *Forecast) rises() bool {
	last := float64(len(f.Recent)-1) / 2
	mean, squares := line(f.Recent, -last), last*(last+1)*(2*last+1)/3
	return line(f.Recent, 1-last)-mean > trendByChance/byChance*f.chance(mean)/math.Sqrt(squares)
}

// line returns what a line by least squares through rates leads to.
func line(rates []float64, minutes float64) float64 {
	n, sumX, sumY, sumXY, sumXX := float64(len(rates)), 0.0, 0.0, 0.0, 0.0
	for i, y := range rates {
		x := float64(i)
		sumX, sumY, sumXY, sumXX = sumX+x, sumY+y, sumXY+x*y, sumXX+x*x
	}
	slope := (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
	return max(0, sumY/n+slope*((n-1)/2+minutes))
}

// highest returns the highest rate to expect in so many minutes.
func (f *Forecast) highest(minutes float64) Expected {
	if len(f.Recent) == 0 {
		return Expected{}
	}
	steady, rise := max(f.now(), f.Recent[len(f.Recent)-1], f.trend(min(minutes, recentMinutes))), f.hourly(minutes)
	for m := int64(0); m <= int64(minutes)+2; m++ {
		rise = max(rise, f.Today*f.Day[span(f.Last+m)])
	}
	return Expected{Rate: max(steady, rise), Rises: rise > clearly*steady}
}

// Highest returns the highest rate to expect from now until a time ahead: the highest of what arrives now, of what the trend of the last
// minutes leads to, of what the same minutes brought in other hours and on other days; and a margin, by which all but a small part of
// the minutes were right so far. The rate that was noticed since the last minute is the least. A fall is not forecast.
func (f *Forecast) Highest(ahead time.Duration) float64 {
	return max(f.usual(ahead.Minutes()), f.Newest*(1+f.SteadyMargin))
}

// usual returns the highest rate to expect by whole minutes, with the margin.
func (f *Forecast) usual(minutes float64) float64 {
	e := f.highest(minutes)
	if e.Rises {
		return e.Rate * (1 + f.RiseMargin)
	}
	return e.Rate * (1 + f.SteadyMargin)
}
