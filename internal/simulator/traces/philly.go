package traces

import "time"

// phillyJob reads a row of the trace of Microsoft's Philly cluster in the form of the Pollux artifact. Arrivals count from
// the earliest timestamp of the file, which is not sorted; the Tenant is the virtual cluster; each of the num_gpus GPUs
// counts as a worker, since the trace does not say how they were spread.
func phillyJob(t *table, all *Trace) {
	j := t.nameless()
	// Timestamps have no zone. All of them are taken for the same one.
	at, err := time.Parse(time.DateTime, t.field("timestamp"))
	if err != nil || at.Year() < 2000 || at.Year() > 2099 {
		t.fail("timestamp", "a time of the years 2000 to 2099 such as 2017-10-09 07:01:55")
	}
	j.Arrive = time.Duration(at.UnixNano())
	j.Duration = lasting(t.time("duration", time.Second), time.Second)
	t.gang(&j, "num_gpus")
	j.Tenant = t.textOr("cluster")
	all.Jobs = append(all.Jobs, j)
}

// phillyOrigin: the first job arrives at time 0.
func phillyOrigin(_ *table, all *Trace) {
	first := all.Jobs[0].Arrive
	for i := range all.Jobs {
		first = min(first, all.Jobs[i].Arrive)
	}
	for i := range all.Jobs {
		all.Jobs[i].Arrive -= first
	}
}
