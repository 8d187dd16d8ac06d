package podgroup

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOriginOf(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pod  *v1.Pod
		want Origin
	}{
		"a Job":           {made(pod("a"), "Job", "train", "1"), Origin{"Job", "train"}},
		"no controller":   {pod("a"), Origin{}},
		"a JobSet's Job":  {made(pod("a", "label "+jobSetName, "set"), "Job", "set-workers-0", "1"), Origin{"JobSet", "set"}},
		"a replica's set": {made(pod("a", "label "+leaderWorkerSetName, "serve"), "StatefulSet", "serve-3", "1"), Origin{"LeaderWorkerSet", "serve"}},
		"a revision":      {made(pod("a", "label pod-template-hash", "5f7d"), "ReplicaSet", "web-5f7d", "1"), Origin{"Deployment", "web"}},
		"a ReplicaSet":    {made(pod("a"), "ReplicaSet", "web", "1"), Origin{"ReplicaSet", "web"}},
	}
	for name, tc := range tests {
		if got := OriginOf(tc.pod); got != tc.want {
			t.Errorf("%s: the origin is %v, want %v", name, got, tc.want)
		}
	}
}

// TestBegan lets the first pod of a launcher fail and come again: the launcher began with the first one, until the gang has no members.
func TestBegan(t *testing.T) {
	t.Parallel()
	w := newWorld(Served{})
	of := func(name, job string, second int64) *v1.Pod {
		return with(made(labelled(name, "train", "2"), "Job", job, "uid-"+job), func(p *v1.Pod) { p.CreationTimestamp = metav1.Unix(second, 0) })
	}
	expect := func(want int64, wantSeveral bool) {
		t.Helper()
		at, several := w.Began(Ref{Source: Label, Namespace: "ns", Name: "train"}, Origin{"Job", "launcher"})
		if several != wantSeveral || want == 0 && !at.IsZero() || want != 0 && !at.Equal(time.Unix(want, 0)) {
			t.Errorf("the launcher began at %v, several %v; want %d, %v", at, several, want, wantSeveral)
		}
	}
	expect(0, false)
	launcher, worker := of("l", "launcher", 5), of("w", "workers", 5)
	w.put(t, launcher)
	expect(5, false)
	w.put(t, worker)
	expect(5, true)
	w.drop(t, launcher)
	w.put(t, of("again", "launcher", 99))
	expect(5, true)
	w.drop(t, of("again", "launcher", 99), worker)
	expect(0, false)
}
