package wording

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tandem-gpu/tandem/pkg/why"
)

// fewKnown pods that ended say less of the next one than what holds for pods of any kind: the strength of predictions in package lifetime.
const fewKnown = 8

// likely says when enough pods have probably ended, and how much that is worth.
func likely(c *why.Change, at time.Time) string {
	in := func(unix int64) string { return about(time.Unix(unix, 0).Sub(at)) }
	said := fmt.Sprintf("probably in %s to %s (80 %% of such cases), when %s ended%s, unless other pods take the room",
		in(c.From), in(c.To), ended(c.Leave), running(c.Leave, at))
	if c.Rivals > 0 {
		said += fmt.Sprintf(": %s of no lower priority wait%s too", Count(c.Rivals, "pod"), third(c.Rivals))
	}
	if c.Known < fewKnown {
		said += "; this is a guess by how long they have run, since few pods of their namespaces have ended so far"
	}
	return said
}

// running says how long pods have run, "" where that is known of none.
func running(pods []why.Leaving, at time.Time) string {
	least, most := time.Duration(-1), time.Duration(-1)
	for i := range pods {
		if pods[i].Since == 0 {
			continue
		}
		ran := max(0, at.Sub(time.Unix(pods[i].Since, 0)))
		if most < 0 || ran < least {
			least = ran
		}
		most = max(most, ran)
	}
	if most < 0 {
		return ""
	}
	from, to, have := about(least), about(most), "have"
	if len(pods) == 1 {
		have = "has"
	}
	if from == to {
		return fmt.Sprintf(", which %s run for %s", have, to)
	}
	return fmt.Sprintf(", which %s run for %s to %s", have, from, to)
}

// about writes a time in whole minutes where it is longer than some of them.
func about(d time.Duration) string {
	if d > 3*time.Minute {
		d = d.Round(time.Minute)
	}
	return duration.HumanDuration(max(0, d))
}
