package kube

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const legalCheckpoint = "it must be a time with date and zone as in RFC 3339, for example 2026-01-31T12:00:00Z: when the work was last saved"

// maxCheckpoint bounds the length of a checkpoint's time: nine decimals of a second and a zone. The admission policy of deploy/
// has the same form.
const maxCheckpoint = len("2026-01-31T12:00:00.123456789+01:00")

// CheckpointTime returns when the work of a pod was last saved, and false where the pod does not say. The error is a
// *FieldError.
func CheckpointTime(pod *v1.Pod) (time.Time, bool, error) {
	raw, ok := pod.Annotations[v1alpha1.AnnotationCheckpointTime]
	if !ok {
		return time.Time{}, false, nil
	}
	at, err := time.Parse(time.RFC3339, raw)
	if err != nil || !isStrict(raw) {
		return time.Time{}, true, Malformed(v1alpha1.AnnotationCheckpointTime, raw, legalCheckpoint)
	}
	return at, true, nil
}

// isStrict reports whether a time that time.Parse reads as RFC 3339 is just that: it also takes hours of one digit, commas, and
// zones of 24 hours or 60 minutes.
func isStrict(raw string) bool {
	if len(raw) > maxCheckpoint || raw[len("2026-01-31T12")] != ':' || strings.Contains(raw, ",") {
		return false
	}
	zone := raw[len(raw)-len("01:00"):]
	return raw[len(raw)-1] == 'Z' || zone[:2] < "24" && zone[3:] < "60"
}
