package traffic

import (
	"fmt"
	"math"
	"time"
)

// Forecast is what is known of the requests that arrive: how many now, and when in a day there are many. The zero value knows
// nothing. It is data: it can be written and read.
type Forecast struct {
	// Recent are the rates of the last minutes, the newest last: at most recentMinutes.
	Recent []float64 `json:"recent,omitempty"`
	// Last is the minute of the newest one since 1970.
	Last int64 `json:"last,omitempty"`
	// Day is the usual rate for each span of five minutes of a day in UTC, 0 for unknown.
	Day []float64 `json:"day,omitempty"`
	// Error is the usual part by which a minute differs from what was forecast one minute before.
	Error float64 `json:"error,omitempty"`
}

const (
	// recentMinutes are what the short window sees. A longer one follows a trend later, a shorter one takes noise for a trend.
	recentMinutes = 10
	daySpans      = 288
	spanMinutes   = 5
	// dayLearns is the part of a span's new rate that goes into the usual one. At .3 an unusual day is forgotten after a week.
	dayLearns = .3
	// errorLearns is the part of a new error that goes into the usual one.
	errorLearns = .02
	// margin is how many usual errors are added to a forecast. Errors of arrivals have short tails: with 3, one minute in some thousands has more
	// requests than forecast.
	margin = 3
)

// Observe takes in the rate of requests of the minute that ends at a time, in requests a second. It refuses rates that are no numbers,
// and times before the last one; minutes that are missing in between are taken to be like the last one.
func (f *Forecast) Observe(rate float64, at time.Time) error {
	minute := at.Unix() / 60
	switch {
	case !(rate >= 0 && rate <= MaxRate):
		return fmt.Errorf("rate %v: legal are numbers from 0 to %g", rate, float64(MaxRate))
	case minute <= f.Last:
		return fmt.Errorf("minute %d is not after the last one, %d: did the clock go back?", minute, f.Last)
	}
	if missed := minute - f.Last - 1; f.Last > 0 && missed > 0 {
		for range min(missed, recentMinutes-1) {
			f.push(f.now())
		}
	}
	if f.Last > 0 {
		expected := f.trend(1)
		f.Error += errorLearns * (math.Abs(rate-expected)/max(expected, rate, 1e-9) - f.Error)
	}
	f.push(rate)
	f.Last = minute
	f.observeDay(rate, minute)
	return nil
}

func (f *Forecast) push(rate float64) {
	f.Recent = append(f.Recent, rate)
	if over := len(f.Recent) - recentMinutes; over > 0 {
		f.Recent = append(f.Recent[:0:0], f.Recent[over:]...)
	}
}

func (f *Forecast) observeDay(rate float64, minute int64) {
	if f.Day == nil {
		f.Day = make([]float64, daySpans)
	}
	usual := &f.Day[span(minute)]
	if *usual == 0 {
		*usual = rate
		return
	}
	*usual += dayLearns / spanMinutes * (rate - *usual)
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

// slope returns by how much the rate grows in a minute, by least squares over the short window.
func (f *Forecast) slope() float64 {
	n := float64(len(f.Recent))
	if n < 3 {
		return 0
	}
	sumX, sumY, sumXY, sumXX := 0.0, 0.0, 0.0, 0.0
	for i, y := range f.Recent {
		x := float64(i)
		sumX, sumY, sumXY, sumXX = sumX+x, sumY+y, sumXY+x*y, sumXX+x*x
	}
	return (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
}

// trend returns what the short window says of so many minutes from now.
func (f *Forecast) trend(minutes float64) float64 {
	n := float64(len(f.Recent))
	if n == 0 {
		return 0
	}
	sum := 0.0
	for _, r := range f.Recent {
		sum += r
	}
	return max(0, sum/n+f.slope()*((n-1)/2+minutes))
}

// Peak returns the highest rate to expect from now until a time ahead, with a margin for what forecasts usually miss: the highest of
// what arrives now, what the trend of the last minutes leads to, and what the same hours brought on other days, as far as today is like them.
// A fall is not forecast.
func (f *Forecast) Peak(ahead time.Duration) float64 {
	if len(f.Recent) == 0 {
		return 0
	}
	minutes := ahead.Minutes()
	peak := max(f.now(), f.Recent[len(f.Recent)-1], f.trend(minutes))
	if f.Day != nil {
		today := 1.0
		if usual := f.Day[span(f.Last)]; usual > 0 {
			today = min(max(f.now()/usual, 1), 2)
		}
		for m := int64(0); m <= int64(minutes)+spanMinutes; m += spanMinutes {
			peak = max(peak, min(today*f.Day[span(f.Last+m)], f.now()*mostRise(minutes)))
		}
	}
	return peak * (1 + margin*f.Error)
}

// mostRise bounds by which factor the usual day may raise a forecast: the double of now in ten minutes, no bound in an hour. A day that
// is unlike the others would have far too many replicas otherwise.
func mostRise(minutes float64) float64 { return math.Exp2(max(1, minutes/10)) }
