package gpushare

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/lifetime"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// keepsFor is the least time for which a prediction stands. A shorter one predicts the ends of young pods anew more often.
	keepsFor = time.Minute
	// keepsPart: a prediction stands for an eighth of the pod's age, in which what is known of it hardly changes. A larger part costs more: a
	// node whose pods are predicted anew is written anew in the snapshot.
	keepsPart = 8
)

// forecast is when a pod probably ends, and from when on that is too old.
type forecast struct {
	ends *snapshot.Ends
	due  time.Time
}

// foresee adds to the pods of a node when they probably end. It keeps forecasts that are not too old.
func (p *Plugin) foresee(n *shownNode, pods map[vgpu.UID]*v1.Pod, before map[vgpu.UID]forecast, now time.Time) {
	if p.lifetimes == nil || n.from.ledger == nil {
		return
	}
	n.forecasts = make(map[vgpu.UID]forecast, len(n.node.Pods))
	for i := range n.node.Pods {
		shown := &n.node.Pods[i]
		pod := pods[shown.UID]
		if pod == nil || pod.Status.StartTime == nil || !ends(pod) {
			continue
		}
		f, known := before[shown.UID]
		if !known || !now.Before(f.due) {
			of := lifetimeOf(pod, modelOn(n.from.ledger, shown.Containers[0].Devices[0]))
			of.Projected = p.lifetimes.projected(pod.UID)
			f = p.lifetimes.forecast(of, pod.Status.StartTime.Time, now)
		}
		shown.Ends, n.forecasts[shown.UID] = f.ends, f
		if n.due.IsZero() || f.due.Before(n.due) {
			n.due = f.due
		}
	}
}

// forecast predicts the end of a pod that has run since a time.
func (l *lifetimes) forecast(p lifetime.Pod, since, now time.Time) forecast {
	age := max(0, now.Sub(since))
	f := forecast{due: now.Add(max(keepsFor, age/keepsPart))}
	l.mu.Lock()
	defer l.mu.Unlock()
	curve, err := l.learner.Predict(p, age.Seconds())
	if err != nil { // it declares an end in more than 34 years
		return f
	}
	most := math.Inf(1)
	if p.Declared > 0 {
		most = max(0, p.Declared-age.Seconds())
	}
	f.ends = &snapshot.Ends{At: now.UTC().Truncate(time.Second), Known: l.learner.Known(p)}
	for _, part := range snapshot.EndParts() {
		f.ends.AfterSeconds = append(f.ends.AfterSeconds, int64(math.Ceil(min(curve.Quantile(part), most))))
	}
	return f
}
