// Package verdict makes the statuses that plugins give to the scheduler's framework.
//
// The framework takes the message of a status for the format of an event. A user's "200%" would come out as "200%!(MISSING)", so
// New and Failed double each percent sign, and the event has what the user wrote. The condition PodScheduled, which the framework
// writes without formatting, shows it doubled.
package verdict

import (
	"strings"

	fwk "k8s.io/kube-scheduler/framework"
)

// New returns a status with reasons in plain words.
func New(code fwk.Code, reasons ...string) *fwk.Status {
	formats := make([]string, len(reasons))
	for i, reason := range reasons {
		formats[i] = escaped(reason)
	}
	return fwk.NewStatus(code, formats...)
}

// Failed returns the status of an error; that of none is success.
func Failed(err error) *fwk.Status {
	if err == nil {
		return nil
	}
	return fwk.AsStatus(format{err})
}

// format is an error whose text is a format: the framework wraps the errors of some plugins into others.
type format struct{ error }

// Error returns the text with doubled percent signs.
func (f format) Error() string { return escaped(f.error.Error()) }

// Unwrap returns the error as it was.
func (f format) Unwrap() error { return f.error }

func escaped(text string) string { return strings.ReplaceAll(text, "%", "%%") }

// Text returns the reasons of a status in plain words, for use in another one. If New did not make the status, Text may take one of
// two percent signs.
func Text(s *fwk.Status) string { return strings.ReplaceAll(s.Message(), "%%", "%") }
