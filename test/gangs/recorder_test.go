package gangs

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
)

// recorder writes events into the log of the history, each once in a row for an object.
type recorder struct {
	api  *api
	last map[string]string
}

func newRecorder(a *api) *recorder { return &recorder{api: a, last: map[string]string{}} }

// Eventf notes an event.
func (r *recorder) Eventf(about, _ runtime.Object, _, reason, _, note string, args ...any) {
	if reason == "Scheduled" {
		return
	}
	name := "?"
	if object, err := meta.Accessor(about); err == nil {
		name = object.GetName()
	}
	text := fmt.Sprintf(note, args...)
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	if r.last[name] != text {
		r.last[name] = text
		r.api.sayLocked("%s: %s: %s", name, reason, text)
	}
}

// WithLogger returns the same recorder.
func (r *recorder) WithLogger(klog.Logger) events.EventRecorderLogger { return r }
