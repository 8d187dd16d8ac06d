package fragmentation

import "fmt"

const (
	// Pause is the longest time, in seconds, that an arrival stays out of the usual requests while the scheduler places
	// pods. Every new mix makes the scheduler score all nodes again, which takes some milliseconds at 5,000 nodes. A
	// longer pause scores less often.
	Pause = 60
	// materialPart makes arrivals count at once when they are this part of the earlier pods: an eighth. A larger number
	// follows a cluster that starts to fill more closely, and scores more often.
	materialPart = 8
	// unseenPods is the weight of the requests that nobody has seen yet, in pods of now. A larger number keeps untouched
	// devices and nodes for longer; a smaller one lets the first pods of a new cluster spoil its nodes for a large job that
	// comes later. On made-up clusters 1 to 4 gave nearly the same (docs/decisions/0037).
	unseenPods = 2
)

// Learner learns the usual requests from the pods that arrive. Scheduler and simulator use the same one. Times are
// seconds since any fixed moment. Concurrent use is not safe.
type Learner struct {
	step    int64 // seconds
	pause   int64 // seconds
	counter Counter
	// mix is the last mix, made at the time `made` of `used` pods. fresh is the number of pods since then.
	mix         *Mix
	made        int64
	used, fresh int64
}

// NewLearner returns a Learner for which a pod counts half after halfLife seconds. A half-life below StepsPerHalfLife
// seconds counts as that many.
func NewLearner(halfLife int64) *Learner {
	return &Learner{step: max(1, halfLife/StepsPerHalfLife), pause: Pause}
}

// RenewEvery sets the longest time, in seconds, that an arrival stays out of the usual requests, Pause before.
func (l *Learner) RenewEvery(pause int64) { l.pause = pause }

// Observe counts a pod of an owner, its namespace, with the pod's kind and creation time. Its weight depends on that
// time, so that pods from before the start of a scheduler count as if it had seen them arrive. All pods without GPUs
// are of one kind, whatever their CPU, since each of them loses all free GPU. A pod that no Mix may have does not
// count.
func (l *Learner) Observe(owner string, k Kind, created int64) {
	k.Weight = 1
	if k.Slots == 0 {
		k = Kind{Weight: 1}
	}
	if k.validate() != nil {
		return
	}
	l.counter.Observe(owner, k, created/l.step)
	l.fresh++
}

// Usual returns the mix at a time. The mix is new when an eighth of the pods is new, or when any pod is new and the
// last mix is as old as the pause. Otherwise it is the same as before.
func (l *Learner) Usual(now int64) *Mix {
	if l.mix != nil && (l.fresh == 0 || l.fresh*materialPart < l.used && now-l.made < l.pause) {
		return l.mix
	}
	all, err := l.counter.Mix(now / l.step)
	if err != nil {
		panic(fmt.Sprintf("make the mix of countable requests: %v", err))
	}
	l.mix, l.made, l.used, l.fresh = all.balanced().Expecting(unseenPods*stepWeights[0]), now, l.used+l.fresh, 0
	return l.mix
}

// balanced returns the mix in which pods without GPUs weigh at most as much as all others. If nearly all pods need no
// GPU, the rest would hardly make a difference between nodes.
func (m *Mix) balanced() *Mix {
	kinds, without := make([]Kind, 0, len(m.kinds)), Kind{}
	for _, k := range m.kinds {
		if k.Slots == 0 {
			without.Weight += k.Weight
		} else {
			kinds = append(kinds, k)
		}
	}
	if without.Weight = min(without.Weight, m.weight-without.Weight); without.Weight > 0 {
		kinds = append(kinds, without)
	}
	out, err := NewMix(kinds)
	if err != nil {
		panic(fmt.Sprintf("balance a mix of %d kinds: %v", len(kinds), err)) // fewer kinds of less weight are legal
	}
	return out
}
