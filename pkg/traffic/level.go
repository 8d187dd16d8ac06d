package traffic

import "math"

// Level is the mean of a noisy number that is constant for a long time and then changes. In between it is the mean of all that was measured, so that
// noise moves it less and less; a change is found by two cumulative sums (Page's CUSUM, 1954), and begins another mean. No single measurement
// is taken for a change. The zero value knows nothing and takes the number to be 0. It is data: it can be written and read.
type Level struct {
	Mean float64 `json:"mean,omitempty"`
	// Noise is the standard deviation of a measurement, 0 for unknown.
	Noise float64 `json:"noise,omitempty"`
	// Count is how many measurements are in the mean, and Changed says that it began with a change: then nothing that was believed before is in it.
	Count   int  `json:"count,omitempty"`
	Changed bool `json:"changed,omitempty"`
	// Before was the mean before the last change to more, while it may still prove to have been none, and Rose says that there is one. Doubt is how many
	// were none of late: each doubles what the next change takes. Calm is how many measurements there were since the last change.
	Before float64 `json:"before,omitempty"`
	Rose   bool    `json:"rose,omitempty"`
	Doubt  int     `json:"doubt,omitempty"`
	Calm   int     `json:"calm,omitempty"`
	// Above and Below are the sums of what was measured above and below the mean since there was more of it than noise explains.
	Above Run `json:"above"`
	Below Run `json:"below"`
}

// Run is a number of measurements on one side of a mean.
type Run struct {
	// Steps is how far they were from the mean in sum, in standard deviations, each but for those that noise explains.
	Steps float64 `json:"steps,omitempty"`
	// Sum is that of the measurements themselves, Count how many they are.
	Sum   float64 `json:"sum,omitempty"`
	Count int     `json:"count,omitempty"`
}

const (
	// noiseExplains is how many standard deviations a measurement may be off without being counted, changed the sum of the others at which the
	// number has changed, and mostSteps the most that one measurement counts for. With normal noise a change is seen wrongly once in some hundred
	// thousand measurements; one of four standard deviations is seen with the second measurement, one of two with the sixth.
	noiseExplains, changed, mostSteps = 1, 6, 4
	// mostCount bounds the measurements in a mean: four hours of minutes. More follows slow drifts later.
	mostCount = 240
	// noiseCount does so for the standard deviation, and noiseFirst is how many measurements its first guess counts for.
	noiseCount, noiseFirst = 60, 8
	// takenBack is within how many measurements a change to more proves to have been none, when the mean is again what it was but for the noise, mostDoubt bounds the doubt, and forgetDoubt is how many
	// measurements without a change take away one: a day of minutes.
	takenBack, mostDoubt, forgetDoubt = 60, 2, 1440
	// cut is how many standard deviations a measurement may move the mean by.
	cut = 3
)

// Observe takes in a measurement, and reports whether it shows that the number has changed.
func (l *Level) Observe(x float64) (isOther bool) {
	if l.Noise == 0 {
		l.Noise = usualNoise
	}
	steps := min(max((x-l.Mean)/l.Noise, -mostSteps), mostSteps)
	l.Above.add(steps, x)
	l.Below.add(-steps, x)
	l.Calm++
	if l.Rose = l.Rose && l.Calm < takenBack; l.Calm >= forgetDoubt && l.Doubt > 0 {
		l.Doubt, l.Calm = l.Doubt-1, 0
	}
	for _, run := range []*Run{&l.Above, &l.Below} {
		if run.Steps >= float64(int(changed)<<l.Doubt) {
			before := l.Mean
			l.Mean, l.Count, l.Changed, l.Calm = run.Sum/float64(run.Count), run.Count, true, 0
			if l.doubt(); run == &l.Above {
				l.Rose, l.Before = true, before
			}
			l.Above, l.Below = Run{}, Run{}
			return true
		}
	}
	l.Count = min(l.Count+1, mostCount)
	off := min(max(x-l.Mean, -cut*l.Noise), cut*l.Noise)
	weight := l.Count
	if !l.Changed {
		weight += firstWeight
	}
	l.Mean += off / float64(weight)
	const deviation = 1.2533 // of a normal distribution, for each mean distance
	l.Noise += (deviation*math.Abs(off) - l.Noise) / float64(min(l.Count+noiseFirst, noiseCount))
	l.Noise = max(l.Noise, leastNoise)
	l.doubt()
	return false
}

// doubt looks whether the last change to more was none.
func (l *Level) doubt() {
	if l.Rose && l.Mean < l.Before+l.Noise {
		l.Doubt, l.Rose = min(l.Doubt+1, mostDoubt), false
	}
}

// add takes a measurement into a run, which ends where nothing is left of it.
func (r *Run) add(steps, x float64) {
	r.Steps, r.Sum, r.Count = r.Steps+steps-noiseExplains, r.Sum+x, r.Count+1
	if r.Steps <= 0 {
		*r = Run{}
	}
}
