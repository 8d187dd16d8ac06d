// Package decisions turns the events of a cluster into what Tandem's programs decided and why.
//
// It is about single events: it asks nobody, and keeps nothing but which events were told already.
package decisions

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	events "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
)

// Decision is what a program decided of an object.
type Decision struct {
	// At is when it was told last.
	At        time.Time `json:"at"`
	Component string    `json:"component"`
	// Type is Normal or Warning.
	Type      string `json:"type"`
	Reason    string `json:"reason"`
	Namespace string `json:"namespace"`
	// Object is the kind and the name of what it is about, for example Pod/train-0.
	Object  string `json:"object"`
	Message string `json:"message"`
	// Count is how often it was told.
	Count int `json:"count"`

	uid types.UID
}

// Of returns the decision of an event.
func Of(e *events.Event) Decision {
	d := Decision{
		At: e.EventTime.Time, Component: cmp.Or(e.ReportingController, e.DeprecatedSource.Component), Type: e.Type, Reason: e.Reason,
		Namespace: cmp.Or(e.Regarding.Namespace, e.Namespace), Object: e.Regarding.Kind + "/" + e.Regarding.Name, Message: e.Note,
		Count: max(1, int(e.DeprecatedCount)), uid: e.UID,
	}
	if e.Series != nil {
		d.At, d.Count = e.Series.LastObservedTime.Time, max(d.Count, int(e.Series.Count))
	}
	for _, other := range []time.Time{e.DeprecatedLastTimestamp.Time, e.CreationTimestamp.Time} {
		if d.At.IsZero() {
			d.At = other
		}
	}
	return d
}

// Filter says which decisions are told.
type Filter struct {
	// Components are the programs whose decisions are told.
	Components []string
	// Kind and Name of the object, "" for any. The kind gang stands for the PodGroup of the name and for what is said of the gang elsewhere.
	Kind, Name string
	// Reasons to tell, none for all; Type is Normal, Warning or "" for both.
	Reasons []string
	Type    string
	// After is the time before which nothing is told.
	After time.Time
}

// Gang is the kind that stands for gangs.
const Gang = "gang"

// Lets reports whether a filter lets a decision through.
func (f *Filter) Lets(d *Decision) bool {
	return slices.Contains(f.Components, d.Component) && (f.Type == "" || f.Type == d.Type) &&
		(len(f.Reasons) == 0 || slices.Contains(f.Reasons, d.Reason)) && !d.At.Before(f.After) && f.isAbout(d)
}

func (f *Filter) isAbout(d *Decision) bool {
	kind, name, _ := strings.Cut(d.Object, "/")
	switch {
	case f.Name == "":
		return true
	case f.Kind == Gang:
		return kind == "PodGroup" && name == f.Name || slices.Contains(strings.FieldsFunc(d.Message, isBetween), d.Namespace+"/"+f.Name)
	}
	return name == f.Name && (f.Kind == "" || strings.EqualFold(kind, f.Kind))
}

// isBetween reports whether a letter is between the words of a message.
func isBetween(r rune) bool { return strings.ContainsRune(" ,;:()\"'", r) }

// Sort sorts decisions, the newest last.
func Sort(all []Decision) {
	slices.SortFunc(all, func(a, b Decision) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Object, b.Object), cmp.Compare(a.uid, b.uid))
	})
}

// Told knows which decisions were told.
type Told struct{ counts map[types.UID]int }

// New reports whether a decision is told for the first time, or more often than before.
func (t *Told) New(d *Decision) bool {
	if t.counts == nil {
		t.counts = map[types.UID]int{}
	}
	if t.counts[d.uid] >= d.Count {
		return false
	}
	t.counts[d.uid] = d.Count
	return true
}

// Line writes a decision for people. With all it has the namespace, the component and the exact time.
func (d *Decision) Line(now time.Time, all bool) string {
	said := d.Message
	if d.Count > 1 {
		said += fmt.Sprintf(" (%d times)", d.Count)
	}
	if all {
		return wording.Plain(fmt.Sprintf("%s  %-7s  %-17s  %s  %s  %s", d.At.UTC().Format(time.RFC3339), d.Type, d.Component, d.Reason, d.Namespace+"/"+d.Object, said))
	}
	return wording.Plain(fmt.Sprintf("%5s  %-20s  %s: %s", duration.HumanDuration(max(0, now.Sub(d.At))), d.Reason, d.Object, said))
}
