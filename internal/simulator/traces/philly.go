package traces

import (
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
)

// phillyJob reads a row of the trace of Microsoft's Philly cluster in the form of the Pollux artifact. Arrivals count
// from the earliest timestamp of the file, in any order. The Tenant is the virtual cluster. Each of the num_gpus GPUs
// counts as a worker, since the trace has no distribution over nodes.
func phillyJob(t *csvtable.Table, all *Trace) {
	j := nameless(t)
	// Timestamps have no zone. phillyJob takes all of them for the same one.
	at, err := time.Parse(time.DateTime, t.Field("timestamp"))
	if err != nil || at.Year() < 2000 || at.Year() > 2099 {
		t.Fail("timestamp", "a time of the years 2000 to 2099 such as 2017-10-09 07:01:55")
	}
	j.Arrive = time.Duration(at.UnixNano())
	j.Duration = csvtable.Lasting(t.Time("duration", time.Second), time.Second)
	gang(t, &j, "num_gpus")
	j.Tenant = t.TextOr("cluster")
	all.Jobs = append(all.Jobs, j)
}

// phillyOrigin: the first job arrives at time 0.
func phillyOrigin(_ *csvtable.Table, all *Trace) {
	first := all.Jobs[0].Arrive
	for i := range all.Jobs {
		first = min(first, all.Jobs[i].Arrive)
	}
	for i := range all.Jobs {
		all.Jobs[i].Arrive -= first
	}
}
