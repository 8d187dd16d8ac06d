package gpupreempt

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/preemption"
)

// maxText bounds the text on a preemption: events hold 1,024 characters in all, with the texts of the other plugins.
const maxText = 600

// shorten cuts a text that is too long for an event.
func shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText-len("…")], "") + "…"
}

// wordsOf describes a plan, and the bound that cut the search for it.
func wordsOf(plan *preemption.Plan, from *preemption.Candidates) string {
	if plan.Stats.Cut && len(plan.Evict) > 0 {
		return plan.Words(from) + " (the search was cut: others might cost less)"
	}
	return plan.Words(from)
}

// textOf says why the plugin evicts no pod, and which bound cut the search.
func textOf(r *preemption.Refusal) string {
	if r.Cut {
		return r.Text + " (the search was cut: there might be room that was not found)"
	}
	return r.Text
}

// inConditional puts what a plan does, in the words of Plan.Words, in the conditional.
func inConditional(words string) string {
	return strings.Replace(strings.Replace(words, "evicts ", "would evict ", 1), ", waits for ", ", would wait for ", 1)
}

// groupEvent writes an event of a PodGroup of Kubernetes about the result of an attempt: the members' own events say
// only why the scheduler refused each by itself.
func (p *Plugin) groupEvent(w *podgroup.RoomRequest, a *outcome) {
	recorder := p.handle.EventRecorder()
	if recorder == nil || w.Object == nil {
		return
	}
	kind, reason := v1.EventTypeWarning, "NotPreempting"
	if a.code() == fwk.Success {
		kind, reason = v1.EventTypeNormal, "Preempting"
	}
	// The numbers of the text change at each attempt, and its kind with the result.
	recorder.Eventf(w.Object, nil, kind, reason, "Scheduling-"+a.result, "%s", shorten("preemption: "+a.text))
}

// refused explains why the plugin evicts no pod for a pod, and activates the pod when that may have changed.
func (p *Plugin) refused(q *question, r *preemption.Refusal, filtered string) outcome {
	a := outcome{resultNeverHelps, textOf(r), nominate("")}
	switch {
	case filtered != "":
		a.result = resultFiltered
		a.text = "other plugins refuse the nodes where room could be made: " + filtered
	case r.Reason == preemption.Guarded:
		a.result = resultGuarded
		p.tryAgain(q.pod, p.oldEnough(q, r), false)
	case r.Reason == preemption.Budgeted:
		a.result = resultBudgeted
		p.tryAgain(q.pod, time.Time{}, true)
	}
	return a
}

// oldEnough returns when the first pods of a refusal have run long enough for an eviction, zero for never.
func (p *Plugin) oldEnough(q *question, r *preemption.Refusal) time.Time {
	var first time.Time
	for _, i := range r.Guards {
		if q.from.Pods[i].Guard != preemption.TooYoung {
			continue
		}
		if at := p.guards.OldEnough(q.pods[i]); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// maxNamed bounds how many pods a message names.
const maxNamed = 4
