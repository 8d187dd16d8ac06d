package plots

// Allocation is the allocation curve: the allocated part of the GPUs, by the requested part.
func Allocation(series []Series) Figure {
	return Figure{
		File: "allocation", Title: "GPUs allocated as requests arrive",
		X: "GPUs asked for so far (% of all GPUs)", Y: "GPUs allocated (% of all GPUs)", Series: series, Top: 100,
	}
}

// Fragmentation is the idle part of the GPUs that the usual requests cannot use, over the same arrivals.
func Fragmentation(series []Series) Figure {
	return Figure{
		File: "fragmentation", Title: "Idle GPUs that the usual pods cannot use",
		X: "GPUs asked for so far (% of all GPUs)", Y: "fragmentation (% of all GPUs)", Series: series,
	}
}

// Utilisation is the allocated part of the GPUs over time. X of the series is in seconds.
func Utilisation(series []Series) Figure {
	series, unit := inUnit(series)
	return Figure{
		File: "utilisation", Title: "GPUs allocated over time",
		X: "time (" + unit + ")", Y: "GPUs allocated (% of all GPUs)", Series: series, Steps: true, Top: 100,
	}
}

// FragmentationOverTime is the idle part of the GPUs that the usual requests cannot use, where jobs come and go. X of the
// series is in seconds.
func FragmentationOverTime(series []Series) Figure {
	series, unit := inUnit(series)
	return Figure{
		File: "fragmentation", Title: "Idle GPUs that the usual pods cannot use",
		X: "time (" + unit + ")", Y: "fragmentation (% of all GPUs)", Series: series, Steps: true,
	}
}

// Wait is the distribution of the time that placed jobs waited. X of the series is in seconds.
func Wait(series []Series) Figure {
	return distribution(series, Figure{File: "wait_cdf", Title: "Time from arrival to start", X: "wait", Y: "jobs that waited at most so long (%)"})
}

// GangWait is the distribution of the time that placed gangs waited. X of the series is in seconds.
func GangWait(series []Series) Figure {
	return distribution(series, Figure{File: "gang_wait_cdf", Title: "Time from arrival to start of gangs", X: "wait", Y: "gangs that waited at most so long (%)"})
}

// Lost is the work that evictions have undone so far, over time. X of the series is in seconds.
func Lost(series []Series) Figure {
	series, unit := inUnit(series)
	return Figure{
		File: "lost", Title: "Work undone by evictions so far",
		X: "time (" + unit + ")", Y: "work lost (GPU-hours)", Series: series, Steps: true,
	}
}

// Completion is the distribution of the time from a job's arrival to its end. X of the series is in seconds.
func Completion(series []Series) Figure {
	return distribution(series, Figure{File: "jct_cdf", Title: "Time from arrival to end (job completion time)", X: "job completion time", Y: "jobs that took at most so long (%)"})
}

// distribution is a figure of what part of all took at most so long. X of the series is in seconds, and f.X lacks its unit.
func distribution(series []Series, f Figure) Figure {
	series, unit := inUnit(series)
	f.X, f.Series, f.Steps, f.Top = f.X+" ("+unit+")", series, true, 100
	return f
}

// maxPoints bounds the points of a distribution: more are finer than a screen, and make files of megabytes.
const maxPoints = 2000

// Cumulative turns values in ascending order into the points of their distribution, in percent of total, which counts also
// those that have no value.
//
// Example: 10 and 30 of 4 jobs give (0, 0), (10, 25), (30, 50): half of the jobs did not end. If there are very many
// points, it gives maxPoints, evenly taken with the first and the last.
func Cumulative(values []float64, total int) []Point {
	if len(values) == 0 {
		return nil
	}
	points := []Point{{}}
	for i, v := range values {
		y := 100 * float64(i+1) / float64(total)
		if last := &points[len(points)-1]; last.X == v {
			last.Y = y
			continue
		}
		points = append(points, Point{v, y})
	}
	if len(points) <= maxPoints {
		return points
	}
	thin := make([]Point, maxPoints)
	for i := range thin {
		thin[i] = points[i*(len(points)-1)/(maxPoints-1)]
	}
	return thin
}

// units of time, each with the span from which it reads better than the one before.
var units = []struct {
	name         string
	from, second float64
}{{"s", 0, 1}, {"min", 300, 60}, {"h", 3 * 3600, 3600}, {"days", 4 * 86400, 86400}}

// inUnit returns the series with X in the unit that suits the longest of them, and that unit.
func inUnit(series []Series) ([]Series, string) {
	most := 0.0
	for _, s := range series {
		for _, p := range s.Points {
			most = max(most, p.X)
		}
	}
	unit := units[0]
	for _, u := range units {
		if most >= u.from {
			unit = u
		}
	}
	scaled := make([]Series, len(series))
	for i, s := range series {
		scaled[i] = Series{Name: s.Name, Points: make([]Point, len(s.Points))}
		for k, p := range s.Points {
			scaled[i].Points[k] = Point{p.X / unit.second, p.Y}
		}
	}
	return scaled, unit.name
}
