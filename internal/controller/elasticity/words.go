package elasticity

import (
	"fmt"
	"math"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

const annotationName = v1alpha1.AnnotationElasticWorkers

// reasonNotAdmitted is the reason of a target that went back to what runs, because the scheduler found no places.
const reasonNotAdmitted = "NotAdmitted"

// reasonMissing is the reason of a target of whose gang fewer members exist than must run.
const reasonMissing = "MembersMissing"

// reasonGone is the reason of a target whose gang does not exist.
const reasonGone = "Gone"

// reasonFixed is the reason of a target that the controller may not change.
const reasonFixed = "NotResizable"

// because says why a gang has its target, as the second half of a sentence.
func because(t *elastic.Target) string {
	switch t.Why {
	case elastic.Steady:
		return "another size would not be worth what a change costs"
	case elastic.Idle:
		return "GPUs are idle that no waiting job can use"
	case elastic.Faster:
		return "it uses the GPUs better than another job"
	case elastic.ForWaiting:
		return named(t.For, "waits for a place")
	case elastic.ForFaster:
		return named(t.For, "uses the GPUs better")
	case elastic.Lent:
		return "GPUs are idle until inference needs them"
	case elastic.ForReserved:
		return "inference will need the GPUs"
	case elastic.Starts:
		return "there is room for it, or there will be once others have shrunk"
	case elastic.Waits:
		return "there is no room for its least number of members"
	case elastic.AtMost:
		return "it has its largest number of members"
	case elastic.NoRoom:
		return "no node has the GPUs, the CPU and the memory for further members"
	case elastic.Settling:
		return "it has changed its size too often within the last hour"
	case elastic.Invalid:
		return fmt.Sprint(t.Err)
	}
	return string(t.Why)
}

// named says what another job does, if it is one.
func named(job, does string) string {
	switch {
	case job == "":
		return "another job " + does
	case strings.Contains(job, " "):
		return job + " " + does
	}
	return "gang " + job + " " + does
}

// changed says what a change does, for the event: "grew from 4 to 8 members: GPUs are idle that no waiting job can use;
// expected rate +71 %".
func changed(from, to int, t *elastic.Target) string {
	return changedFor(from, to, because(t)) + expected(t)
}

func changedFor(from, to int, why string) string {
	verb := "grows"
	if to < from {
		verb = "shrinks"
	}
	return fmt.Sprintf("%s from %d to %d members: %s", verb, from, to, why)
}

// expected says how the rate of a job is expected to change, "" where nothing is known.
func expected(t *elastic.Target) string {
	if t.Before <= 0 || t.After <= 0 || t.Before == t.After {
		return ""
	}
	return fmt.Sprintf("; expected rate %+.0f %%", math.Round(100*(t.After/t.Before-1)))
}
