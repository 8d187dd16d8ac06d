package integration

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/klog/v2/textlogger"
)

// rejectedEvent is an event that a program sent and the API server did not take. The program logs such an event and does not send it again, although
// the API server may just have been too slow.
type rejectedEvent struct{ namespace, name, reason, note string }

// rejection finds what klog writes of an event that client-go gives up: in quotes, or on lines of their own where the note has several.
var rejection = regexp.MustCompile(`(?s)Server rejected event \(will not retry!\).*?,Reason:(\S*?),Regarding:\{\S* (\S*) (\S*) .*?,Note:(.*?),Type:`)

func rejectedEvents(log string) (all []rejectedEvent) {
	unquote := strings.NewReplacer(`\"`, `"`, "\n\t", "\n")
	for _, match := range rejection.FindAllStringSubmatch(log, -1) {
		all = append(all, rejectedEvent{match[2], match[3], match[1], unquote.Replace(match[4])})
	}
	return all
}

func TestRejectedEvents(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
	var want []rejectedEvent
	for _, note := range []string{"Preempted by pod a/b", `profile "a" is unknown, and so on`, "one line\nanother line"} {
		want = append(want, rejectedEvent{"team-1", "train-0", "Preempted", note})
		pod := v1.ObjectReference{Kind: "Pod", Namespace: "team-1", Name: "train-0", UID: "1", APIVersion: "v1"}
		logger.Info("Attempting to schedule pod", "pod", "team-1/train-0")
		logger.Error(errors.New("etcdserver: request timed out"), "Server rejected event (will not retry!)",
			"event", &eventsv1.Event{Reason: "Preempted", Note: note, Regarding: pod, Type: v1.EventTypeNormal})
	}
	if diff := cmp.Diff(want, rejectedEvents(log.String()), cmp.AllowUnexported(rejectedEvent{})); diff != "" {
		t.Errorf("the events of the log (-want +got):\n%s\n%s", diff, log.String())
	}
}
