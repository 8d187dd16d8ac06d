package elasticity

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/controller/sizefield"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// admitted says whether as many members run as the target wants, and if not, what that waits for.
func (d *decision) admitted() (yes bool, why string) {
	has, leaving := len(d.running), 0
	for _, pod := range d.all {
		if pod.DeletionTimestamp != nil && pod.Spec.NodeName != "" {
			leaving++
		}
	}
	switch {
	case has == d.workers && leaving == 0:
		return true, haveNodes(has)
	case has > d.workers:
		return false, fmt.Sprintf("%s, and %d of them must leave", haveNodes(has), has-d.workers)
	case leaving > 0:
		return false, fmt.Sprintf("%s; still ending: %d", haveNodes(has), leaving)
	case d.target != nil && d.target.Status.Scheduler != nil && d.target.Status.Scheduler.Message != "":
		return false, fmt.Sprintf("%s: %s", haveNodes(has), d.target.Status.Scheduler.Message)
	}
	if o := d.resizable.owner; o != nil && len(d.all) < d.workers {
		return false, fmt.Sprintf("%s: %s has made %d", haveNodes(has), o, len(d.all))
	}
	return false, haveNodes(has) + ": the scheduler has not placed the others yet"
}

func haveNodes(members int) string {
	if members == 1 {
		return "1 member has a node"
	}
	return fmt.Sprintf("%d members have a node", members)
}

// maxMessage bounds the messages of conditions, in bytes: the schema of the API allows no more.
const maxMessage = 32768

// setCondition sets a condition, with the time of its status and its reason. By this time a new process knows how long it leaves alone what somebody
// else changes back, and whether a worker of these members completed.
func setCondition(s *v1alpha1.ElasticTargetStatus, kind string, yes bool, reason, message string, now metav1.Time) {
	switch c := meta.FindStatusCondition(s.Conditions, kind); {
	case c == nil:
	case c.Reason != reason:
		c.Status = "" // else a new reason alone would keep the time
	case reason == reasonOtherWriter:
		now = c.LastTransitionTime // a rate that is reached now and then does not make the contest begin anew
	}
	status := metav1.ConditionFalse
	if yes {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message[:min(len(message), maxMessage)], LastTransitionTime: now,
	})
}

// remembers reports whether the condition Resizable says what a later process has to know of the owner, also after a pause.
func remembers(s *v1alpha1.ElasticTargetStatus) bool {
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionResizable)
	return c != nil && slices.Contains([]string{reasonWorkerCompleted, sizefield.ChangeRefused, reasonNotFollowed, reasonOtherWriter}, c.Reason)
}

// maxRates bounds the learned rates in a status: the schema allows no more. Those of the fewest workers stay.
const maxRates = 64

// ratesIn returns what a learner knows, for a status.
func ratesIn(l *elastic.Learner) []v1alpha1.ElasticRate {
	if len(l.Seen) == 0 {
		return nil
	}
	rates := make([]v1alpha1.ElasticRate, 0, len(l.Seen))
	for _, s := range l.Seen {
		rate := rateQuantity(roundTo3(s.Rate))
		if rate == nil || len(rates) == maxRates {
			continue
		}
		rates = append(rates, v1alpha1.ElasticRate{
			Workers: int32(s.Workers), Hosts: int32(s.Hosts), Servers: int32(s.Servers), Rate: *rate, Reports: int32(min(s.Reports, maxReports)),
		})
	}
	return rates
}

// rateQuantity returns a rate for a status, nil where it is no number.
func rateQuantity(rate float64) *resource.Quantity {
	q, err := resource.ParseQuantity(strconv.FormatFloat(rate, 'f', -1, 64))
	if err != nil {
		return nil
	}
	return &q
}

// maxReports is where the number of reports in a status ends, so that it does not change with each report for ever.
const maxReports = 100

// roundTo3 rounds a rate to three digits: the mean moves with each report, and each change of the status is a request.
func roundTo3(rate float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(rate))-2)
	return math.Round(rate/unit) * unit
}
