package sharedmemory

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
	"github.com/tandem-gpu/tandem/test/must"
)

// The cleaner removes files that are older than every living tenant; all others stay, and all files while the pods are
// not known.
func TestLeftoversInSharedMemory(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "tandem-test-")
	if err != nil {
		t.Skip("this machine has no /dev/shm, where the test needs files of a tmpfs: ", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m, err := metrics.NewAgent(prometheus.NewRegistry())
	must.OK(t, err)
	watch := &knownPods{err: podsource.ErrPodsUnknown}
	c := &Cleaner{Dir: dir, Pods: watch, Metrics: m, Beat: func() {}}
	wrote := time.Now()
	later := wrote.Add(time.Hour)
	tenants := func(created ...time.Time) {
		pods := map[types.UID]*podsource.Tenant{}
		for i, at := range created {
			pod := fixture.Placed(t, string(rune('a'+i)), fixture.App(fixture.G0, 1))
			pod.CreationTimestamp = metav1.NewTime(at)
			pods[pod.UID] = podsource.NewTenant(pod)
		}
		watch.pods, watch.err = pods, nil
	}
	left := filepath.Join(dir, "left")
	check := func(when string, now time.Time, stays bool) {
		t.Helper()
		must.OK(t, os.WriteFile(left, []byte("x"), 0o600))
		_ = c.clean(t.Context(), now)
		if _, err := os.Stat(left); (err == nil) != stays {
			t.Errorf("%s: %v, want it to stay: %t", when, err, stays)
		}
	}
	check("before the pods are known", later, true)
	tenants(wrote.Add(-time.Minute), later)
	check("with a tenant that is older than the file", later, true)
	tenants(later.Add(-time.Minute))
	check("with a tenant that is younger than the file", later, false)
	tenants(wrote.Add(cleanMargin / 2))
	check("with a tenant that is hardly younger", later, true)
	tenants(wrote.Add(-time.Minute))
	watch.pods["uid-a"].Pod.Status.Phase = v1.PodSucceeded
	check("with a tenant that has ended", later, false)
	watch.err = podsource.ErrPodsUnknown
	check("while the pods are not known", later, true)

	if os.Geteuid() != 0 {
		t.Log("files of other users are not tried: this user cannot make any")
		return
	}
	pipe := filepath.Join(dir, "pipe") // of another user and no regular file: nobody can say whether it is in use
	must.OK(t, unix.Mkfifo(pipe, 0o600))
	must.OK(t, os.Chown(pipe, 1000, 1000))
	for _, step := range []struct {
		tenants []time.Time
		now     time.Time
		stays   bool
	}{
		{[]time.Time{later}, later, true},
		{nil, later, true},
		{[]time.Time{later}, later.Add(time.Minute), true},
		{nil, later.Add(2 * time.Minute), true},
		{nil, later.Add(2*time.Minute + cleanMargin), false},
	} {
		tenants(step.tenants...)
		must.OK(t, c.clean(t.Context(), step.now))
		if _, err := os.Stat(pipe); (err == nil) != step.stays {
			t.Errorf("after %v, with %d tenants: %v, want it to stay: %t", step.now.Sub(later), len(step.tenants), err, step.stays)
		}
	}
}

// knownPods are the pods of a node as a test sets them.
type knownPods struct {
	pods map[types.UID]*podsource.Tenant
	err  error
}

func (k *knownPods) Snapshot() (map[types.UID]*podsource.Tenant, <-chan struct{}, error) {
	return k.pods, nil, k.err
}
