package fleets

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// changed says what a change of size does, for the event: "grows a100 from 2 to 3 replicas: 120 requests a second are expected, 90 are served
// within 200ms".
func (v *visit) changed(i, from, to int) string {
	verb := "grows"
	if to < from {
		verb = "shrinks"
	}
	why := v.because()
	if v.isHeldUp(i) {
		why = fmt.Sprintf("another writer's weights give it %.0f %% of %s requests a second", 100*v.fleet.Variants[i].Part, short(v.plan.Demand))
	}
	return fmt.Sprintf("%s %s from %d to %d replicas: %s", verb, v.fleet.Variants[i].Name, from, to, why)
}

// reasonFor is the reason of the event about a change of a variant.
func (v *visit) reasonFor(i, from, to int) traffic.Reason {
	switch {
	case v.isHeldUp(i) && to > from:
		return traffic.Grows
	case v.isHeldUp(i):
		return traffic.Shrinks
	}
	return v.plan.Reason
}

// isHeldUp reports whether a variant has its size by the weights of another writer, and not by the plan.
func (v *visit) isHeldUp(i int) bool { return v.heldUp != nil && v.heldUp[i] }

// because says why a fleet gets its sizes, as the second half of a sentence.
func (v *visit) because() string {
	if v.plan.Cut {
		return v.reason() + "; the search for cheaper sizes ended at its bound: with fewer variants, classes or maxReplicas it goes further"
	}
	return v.reason()
}

func (v *visit) reason() string {
	within := v.within()
	switch v.plan.Reason {
	case traffic.Grows:
		if len(v.fleet.Classes) > 0 {
			return fmt.Sprintf("%s requests a second of such a mix of classes are expected, more than the replicas serve %s", short(v.plan.Demand), within)
		}
		return fmt.Sprintf("%s requests a second are expected, %s are served %s", short(v.plan.Demand), short(v.served()), within)
	case traffic.AtMost:
		helps := "raise maxReplicas"
		if q := v.quotaExceeded(); q != nil {
			helps = q.message // of the variant that has it
		}
		return fmt.Sprintf("%s requests a second are expected, and the largest numbers of replicas serve %s %s: %s", short(v.plan.Demand), short(v.plan.Capacity), within, helps)
	case traffic.Shrinks:
		return fmt.Sprintf("fewer replicas have been enough for %v, and it has not grown in that time", v.plan.Patience)
	case traffic.Cheaper:
		return fmt.Sprintf("cheaper replicas would have been enough for %v", v.plan.Patience)
	case traffic.Paused:
		if math.IsNaN(v.measured.rate) {
			return "it is unknown how many requests arrive"
		}
		return fmt.Sprintf("%s requests a second are expected, and the replicas serve %s %s", short(v.plan.Demand), short(v.plan.Capacity), within)
	case traffic.Steady:
		return fmt.Sprintf("%s requests a second are expected, and the replicas serve %s %s", short(v.plan.Demand), short(v.plan.Capacity), within)
	case traffic.PromiseTooShort:
		return fmt.Sprintf("no number of replicas answers %s of the requests %s: the shortest latency that the fleet can promise is %v", quantileOf(v), within, rounded(v.plan.Best))
	case traffic.NoMetrics:
		return "it is unknown how many requests arrive, so the sizes stay as they are, within minReplicas and maxReplicas"
	case traffic.AllFail:
		return "all variants answer errors, so the sizes stay as they are, within minReplicas and maxReplicas"
	}
	return string(v.plan.Reason)
}

// within says what is promised of the requests that are served: "within 200ms", or "with the first token within 500ms and each further token
// within 40ms".
func (v *visit) within() string {
	of := ""
	if v.object.Spec.Promise.Of == v1alpha1.PromiseOfFirstToken {
		of = "with the first token "
	}
	text := fmt.Sprintf("%swithin %v", of, v.fleet.Promise.Within)
	if each := v.fleet.Promise.PerToken; each > 0 {
		text += fmt.Sprintf(" and each further token within %v", each)
	}
	return text
}

// served is how many requests a second the wanted replicas serve within the promise before the change.
func (v *visit) served() (sum float64) {
	for i := range v.fleet.Variants {
		sum += float64(v.fleet.Variants[i].Wanted) * v.plan.Variants[i].Capacity
	}
	return sum
}

func quantileOf(v *visit) string { return strconv.FormatFloat(v.fleet.Promise.Quantile, 'f', -1, 64) }

// short writes a number with three digits: 0.0123, 12.3, 12300.
func short(x float64) string {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64)
	if err != nil {
		return ""
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// rounded leaves the digits of a time that say something.
func rounded(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
