package traffic

import "slices"

// Rise is how far a minute of an hour was above the level before it, of late.
type Rise struct {
	// Factor is how many times the level it was, and More how many requests a second it was above it.
	Factor Highest `json:"factor"`
	More   Highest `json:"more"`
}

// Highest is the two highest values of late. The second one counts: a rise that happened once need not come again.
type Highest struct {
	First  float64 `json:"first,omitempty"`
	Second float64 `json:"second,omitempty"`
}

const (
	// hourForgets is the part by which rises fall each hour. A higher one than mostRise is taken for that.
	hourForgets, mostRise = .02, 5
	// settled is how many of the last minutes may be part of a rise, and so are no level.
	settled = 3
	// fewRequests is how many requests are added to both sides of a rise: of few requests, chance makes any number.
	fewRequests = 20
	// standsOut is how many times the rise of half of the minutes a rise is that counts. If requests vary a lot, all minutes rise in some hours,
	// and that says nothing of the next hour. With less, noise makes fleets larger; with more, they miss what starts at the same minute.
	standsOut = 1.25
)

func (h *Highest) observe(x float64) {
	h.First *= 1 - hourForgets
	h.Second *= 1 - hourForgets
	if x > h.First {
		h.First, h.Second = x, h.First
	} else {
		h.Second = max(h.Second, x)
	}
}

// rise takes in how a minute compares with the level before it.
func (f *Forecast) rise(rate float64, minute int64) {
	if len(f.Recent) < recentMinutes {
		return
	}
	usual, level := &f.Hour[minute%60], f.level()
	usual.Factor.observe(min(mostRise, (60*rate+fewRequests)/(60*level+fewRequests)))
	usual.More.observe(rate - level)
}

// hourly returns the highest rate that the rises of other hours lead to in so many minutes, 0 for none. A rise is neither more times the level
// nor more requests a second than it was: ten times the requests of a quiet night are a small part of those at noon.
func (f *Forecast) hourly(minutes float64) (highest float64) {
	factors := make([]float64, len(f.Hour))
	for i := range f.Hour {
		factors[i] = f.Hour[i].Factor.Second
	}
	slices.Sort(factors)
	level, least := f.level(), standsOut*factors[len(factors)/2]
	for m := int64(0); m <= int64(minutes)+2; m++ {
		if r := &f.Hour[(f.Last+m)%60]; r.Factor.Second >= least {
			highest = max(highest, min(level*r.Factor.Second, level+r.More.Second))
		}
	}
	return highest
}

// level returns the rate before the last minutes.
func (f *Forecast) level() float64 {
	sum, n := 0.0, max(1, len(f.Recent)-settled)
	for _, r := range f.Recent[:min(n, len(f.Recent))] {
		sum += r
	}
	return sum / float64(n)
}
