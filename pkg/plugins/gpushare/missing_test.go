package gpushare

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// recorder keeps the events of a desk: "pod: note".
type recorder struct{ told []string }

func (r *recorder) Eventf(about, _ runtime.Object, kind, reason, _, note string, args ...any) {
	r.told = append(r.told, fmt.Sprintf("%s %s %s: %s", about.(*v1.Pod).Name, kind, reason, fmt.Sprintf(note, args...)))
}
func (r *recorder) WithLogger(klog.Logger) events.EventRecorderLogger { return r }

// recording is a handle that has a recorder.
type recording struct {
	*deskHandle
	recorder *recorder
}

func (r *recording) EventRecorder() events.EventRecorderLogger { return r.recorder }

// profileDesk is a desk of a scheduler that leads and has read the profiles, with a clock that stands.
func profileDesk(t *testing.T) (d *desk, told func(after time.Duration) []string) {
	t.Helper()
	d = newDesk(t)
	events, now := &recorder{}, time.Now()
	d.plugin.handle = &recording{d.plugin.handle.(*deskHandle), events}
	d.plugin.now = func() time.Time { return now.Add(d.later) }
	d.plugin.leads.Store(true)
	d.plugin.profilesKnown.Store(true)
	return d, func(after time.Duration) []string {
		t.Helper()
		d.later += after
		d.plugin.reportMissing(t.Context())
		all := events.told
		events.told = nil
		slices.Sort(all)
		return all
	}
}

// enqueued has the pod tried, as the queue does, and seen by the informer.
func (d *desk) enqueued(p *v1.Pod) *v1.Pod {
	d.t.Helper()
	must.OK(d.t, d.indexer.Add(p))
	if status := d.plugin.PreEnqueue(d.t.Context(), p); !status.IsSuccess() {
		d.t.Fatal(status)
	}
	return p
}

// A pod that names a profile which does not exist gets one event, whatever happens to it then, with the nearest name and what the
// scheduler does without it.
func TestMissingProfileIsReportedOnce(t *testing.T) {
	d, told := profileDesk(t)
	d.declare(declared("bert-serving", 50, 50))
	d.declare(declared("resnet", 50, 50))
	elsewhere := declared("bert-servings", 50, 50)
	elsewhere.Namespace = "other"
	d.declare(elsewhere)
	typo := d.enqueued(tenant("typo", "bert-servng", 1))
	d.enqueued(tenant("right", "bert-serving", 1))
	d.enqueued(tenant("unnamed", "", 1))
	d.enqueued(with(tenant("host", "nothing-like-it", 1), func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits = nil }))
	fast := d.enqueued(with(tenant("fast", "whisper-large", 1), func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationMaxLatency] = "40ms" }))
	if got := told(missingGrace - 1); len(got) > 0 {
		t.Errorf("told before the grace is over: %q", got)
	}
	want := []string{
		"fast Warning WorkloadProfileNotFound: metadata.labels[tandem-gpu.io/profile]: the WorkloadProfile default/whisper-large does " +
			"not exist: the pod waits, since the scheduler looks up there which share keeps its tandem-gpu.io/max-latency; correct " +
			"the label, or create the WorkloadProfile",
		"typo Warning WorkloadProfileNotFound: metadata.labels[tandem-gpu.io/profile]: the WorkloadProfile default/bert-servng does " +
			"not exist, the nearest that does is bert-serving: the scheduler places the pod as one of an unknown workload, which is " +
			"taken to use all SMs that it may, and forgets what it learns of it when it restarts; correct the label, or create the " +
			"WorkloadProfile",
	}
	if diff := cmp.Diff(want, told(1)); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	for range 3 {
		d.enqueued(typo)
		if got := told(missingGrace); len(got) > 0 {
			t.Errorf("told again: %q", got)
		}
	}
	d.enqueued(tenant("typo", "bert-seving", 1))
	if got := told(missingGrace); len(got) != 1 || !strings.Contains(got[0], "default/bert-seving does not exist, the nearest that does is bert-serving") {
		t.Errorf("another wrong name is told as %q", got)
	}
	d.tell(event{typo, nil}, event{fast, nil})
	if left := d.plugin.missing.pods; len(left) > 0 {
		t.Errorf("of the pods that are gone are kept %v", left)
	}
}

// No event is written about a profile that is created soon after the pod, that the arguments know, or whose pod is gone.
func TestProfileThatComesIsNotMissing(t *testing.T) {
	d, told := profileDesk(t)
	rates, err := placement.NewRates([]placement.Throughput{{Profile: "of-the-arguments", Model: "T4", Share: vgpu.WholeGPU, Rate: 1}}, map[string]int64{"T4": 1})
	must.OK(t, err)
	d.plugin.state.curves.Rates = rates
	d.enqueued(tenant("early", "late", 1))
	d.enqueued(tenant("rated", "of-the-arguments", 1))
	gone := d.enqueued(tenant("gone", "bert", 1))
	must.OK(t, d.indexer.Delete(gone))
	d.plugin.readProfile(t.Context(), nil, declared("late", 50, 50), false)
	if got := told(missingGrace); len(got) > 0 || len(d.plugin.missing.pods) > 0 {
		t.Errorf("told %q, and kept %v", got, d.plugin.missing.pods)
	}
	d.plugin.forgetProfile(t.Context(), declared("late", 50, 50))
	d.enqueued(tenant("early", "late", 1))
	if got := told(missingGrace); len(got) != 1 || !strings.HasPrefix(got[0], "early") {
		t.Errorf("told %q of the pod whose profile is gone", got)
	}
}

// A scheduler that has not read the profiles, or that waits for its turn, writes no event.
func TestReportOfMissingProfilesNeedsTheLead(t *testing.T) {
	d, told := profileDesk(t)
	d.enqueued(tenant("typo", "bert", 1))
	for _, part := range []interface{ Store(bool) }{&d.plugin.profilesKnown, &d.plugin.leads} {
		part.Store(false)
		if got := told(missingGrace); len(got) > 0 {
			t.Errorf("told %q", got)
		}
		part.Store(true)
	}
	if got := told(0); len(got) != 1 {
		t.Errorf("told %q in the end", got)
	}
}

// The event reaches the API server, one for a pod that is tried many times.
func TestEventOfMissingProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 1))
		c.createPod(tenant("typo", "bert-servng", 13))
		reasons := func() (reasons []string) {
			list, err := c.client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
			must.OK(t, err)
			for i := range list.Items {
				if e := &list.Items[i]; e.Regarding.Name == "typo" && e.Reason == "WorkloadProfileNotFound" {
					reasons = append(reasons, e.Note)
				}
			}
			return reasons
		}
		c.awaitPending("typo", "13")
		c.await("typo", "told", func(*v1.Pod) bool { return len(reasons()) > 0 })
		c.createNode("n2") // has pods of this plugin tried again
		c.createPod(tenant("other", "bert-servng", 10))
		c.awaitBound("other")
		if got := reasons(); len(got) != 1 || !strings.Contains(got[0], "default/bert-servng does not exist: the scheduler places the pod as one") {
			t.Errorf("the events are %q", got)
		}
	})
}
