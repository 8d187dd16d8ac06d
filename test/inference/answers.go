package inference

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Quantile returns the latency within which a part of the requests was answered, 0 without requests. One that failed counts with the time
// until it failed.
func Quantile(answers []Answer, part float64) time.Duration {
	if len(answers) == 0 {
		return 0
	}
	latencies := make([]time.Duration, len(answers))
	for i := range answers {
		latencies[i] = answers[i].Latency
	}
	slices.Sort(latencies)
	return latencies[min(int(part*float64(len(latencies))), len(latencies)-1)]
}

// Windows counts the windows of a time, and says when those begin that broke a promise, from the first request on: in them more than a part of
// 1-quantile of the requests failed or took longer than promised. A window has at least so many requests: it goes on for more spans of that
// time until it has them, and the last one is left out if it does not.
func Windows(answers []Answer, span time.Duration, least int, promised time.Duration, quantile float64) (broken []time.Duration, all int) {
	if len(answers) == 0 {
		return nil, 0
	}
	began, begins, at, requests, late := answers[0].Due, 0, 0, 0, 0
	end := func(next int) {
		if requests < least {
			return
		}
		if all++; float64(late) > (1-quantile)*float64(requests)+1e-9 { // what rounding adds to a tenth of 20
			broken = append(broken, time.Duration(begins)*span)
		}
		begins, requests, late = next, 0, 0
	}
	for i := range answers { // in the order of arrival
		a := &answers[i]
		if now := int(a.Due.Sub(began) / span); now > at {
			end(now)
			at = now
		}
		if requests++; a.Failed() || a.Latency > promised {
			late++
		}
	}
	end(0)
	return broken, all
}

// Parts returns which part of the requests each variant answered.
func Parts(answers []Answer) map[string]float64 {
	parts := map[string]float64{}
	for i := range answers {
		parts[answers[i].Variant] += 1 / float64(len(answers))
	}
	return parts
}

// Failures describes the requests that failed, the first few of them in words; "" where none did.
func Failures(answers []Answer) string {
	var said []string
	count := 0
	for i := range answers {
		if a := &answers[i]; a.Failed() {
			if count++; count <= 5 {
				said = append(said, fmt.Sprintf("%s after %v: status %d of %q, %v", a.Due.Format("15:04:05.000"), a.Latency, a.Status, a.Replica, a.Err))
			}
		}
	}
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d requests failed: %s", count, len(answers), strings.Join(said, "; "))
}
