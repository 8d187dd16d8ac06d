package deploy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const byCheckpoint = "ValidatingAdmissionPolicy 'tandem-checkpoint'"

// savedAt returns a change that says when the work of a pod was last saved.
func savedAt(raw string, subresources ...string) request {
	return patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationCheckpointTime, raw), subresources...)
}

// The policy admits what internal/cluster/kube reads.
func TestCheckpointTimes(t *testing.T) {
	c := client(t.Context(), t, jane)
	p := create(t.Context(), t, c, pod("trains"))
	for _, raw := range []string{
		"2026-01-31T12:00:00Z", "2026-01-31T12:00:00+01:00", "2026-01-31T12:00:00.123456789-23:59", "2024-02-29T23:59:59Z", "0001-01-01T00:00:00Z",
		"9999-12-31T23:59:59Z", "2026-01-31T12:00:00.12345678901234Z",
		"", "now", "1769860800", "2026-01-31", "2026-01-31 12:00:00Z", "2026-01-31T12:00:00", "2026-01-31T12:00Z", "2026-01-31t12:00:00z",
		"2026-02-29T12:00:00Z", "2026-13-01T12:00:00Z", "2026-00-01T12:00:00Z", "2026-01-00T12:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T12:00:60Z",
		"2026-01-31T2:00:00Z", "2026-01-31T12:00:00,5Z", "2026-01-31T12:00:00.Z", "2026-01-31T12:00:00+0100", "2026-01-31T12:00:00+24:00",
		"2026-01-31T12:00:00+01:60", " 2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z ", "2026-01-31T12:00:00Z\n", "2026-01-31T12:00:00.1234567890+01:00",
	} {
		t.Run(raw, func(t *testing.T) {
			fresh := pod("fresh")
			metav1.SetMetaDataAnnotation(&fresh.ObjectMeta, v1alpha1.AnnotationCheckpointTime, raw)
			_, _, malformed := kube.CheckpointTime(fresh)
			_, onCreate := c.CoreV1().Pods(team).Create(t.Context(), fresh, dryRun)
			onUpdate := savedAt(raw)(t.Context(), c, p)
			for _, err := range []error{onCreate, onUpdate} {
				if malformed != nil {
					wantRefusal(t, err, byCheckpoint, "metadata.annotations[tandem-gpu.io/checkpoint-time]: ", "in RFC 3339, for example 2026-01-31T12:00:00Z")
				}
				if malformed != nil && !strings.Contains(raw, "\n") { // of which the API server makes no message
					wantRefusal(t, err, fmt.Sprintf("%q is not legal, it must be a time with date and zone", raw))
				}
				if malformed == nil && err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A running pod's owner says anew when work was saved, as often as it likes; nobody gets a value in that cannot be read.
func TestCheckpointOfRunningPods(t *testing.T) {
	p := createBound(t.Context(), t, genuine)
	plain := create(t.Context(), t, client(t.Context(), t, jane), plainPod())
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for i, who := range []account{jane, jane, admin, jane} {
		want := now.Add(time.Duration(i) * time.Minute).Format(time.RFC3339)
		for _, p := range []*corev1.Pod{p, plain} {
			if err := savedAt(want)(t.Context(), client(t.Context(), t, who), p); err != nil {
				t.Fatal(err)
			}
			if got := get(t.Context(), t, p).Annotations[v1alpha1.AnnotationCheckpointTime]; got != want {
				t.Errorf("the pod says %q, want %q", got, want)
			}
			for _, who := range []account{jane, admin} {
				err := savedAt("12:05")(t.Context(), client(t.Context(), t, who), p)
				wantRefusal(t, err, byCheckpoint, `"12:05" is not legal`)
			}
			wantRefusal(t, savedAt("12:05", "status")(t.Context(), client(t.Context(), t, admin), p), byCheckpoint)
		}
	}
	long := strings.Repeat("9", 10_000)
	wantRefusal(t, savedAt(long)(t.Context(), client(t.Context(), t, jane), p), byCheckpoint, strings.Repeat("9", 64)+"…")
	remove := patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationCheckpointTime))
	if err := remove(t.Context(), client(t.Context(), t, jane), p); err != nil {
		t.Error(err)
	}
}

// A pod that got a malformed value before the policy was there stays usable.
func TestOldCheckpointsStay(t *testing.T) {
	p := pod("old")
	p.Annotations = map[string]string{v1alpha1.AnnotationCheckpointTime: "yesterday"}
	p = createOld(t, p, "tandem-checkpoint")
	for _, step := range []struct {
		name string
		who  account
		send request
		want string
	}{
		{"the kubelet writes the status", kubelet, patch(types.StrategicMergePatchType, `{"status":{"phase":"Running"}}`, "status"), ""},
		{"a user sets another annotation", jane, patch(types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`), ""},
		{"a user changes it to another that cannot be read", jane, savedAt("today"), byCheckpoint},
		{"a user corrects it", jane, savedAt("2026-01-31T12:00:00Z"), ""},
		{"a user sets it again", jane, savedAt("yesterday"), byCheckpoint},
	} {
		err := step.send(t.Context(), client(t.Context(), t, step.who), p)
		if step.want != "" {
			wantRefusal(t, err, step.want)
		} else if err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}
