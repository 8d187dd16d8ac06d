package deviceplugin

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/internal/metrics"
)

const (
	// cleanEvery is the time between two sweeps of the shared memory.
	cleanEvery = 30 * time.Second
	// cleanMargin is by how much a file has to be older than the oldest tenant, and for how long there has to be none for the
	// files of other users to go: the API server's clock, by which pods are created, may be ahead of the node's, and a pod
	// may be gone from the API server before its processes.
	cleanMargin = 5 * time.Minute
)

// cleaner removes what tenants left in the memory that they share with their MPS servers. No container's memory limit
// counts what is left there.
type cleaner struct {
	dir     string
	pods    *podWatch
	metrics *metrics.Agent
	beat    func()
	// alone is since when no tenant lives; zero while one does.
	alone time.Time
	// cut is that the last round did not see all of the folder.
	cut bool
}

func (c *cleaner) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.beat()
		if err := c.clean(ctx, time.Now()); err != nil {
			klog.FromContext(ctx).V(2).Info("Leaving the shared memory as it is", "why", err.Error())
		}
		pause(ctx, cleanEvery)
	}
}

// clean makes one round. Nothing is removed while the pods are not known.
func (c *cleaner) clean(ctx context.Context, now time.Time) error {
	pods, _, err := c.pods.snapshot()
	if err != nil {
		c.alone = time.Time{}
		return err
	}
	before, some := oldest(pods, now)
	switch {
	case some:
		c.alone = time.Time{}
	case c.alone.IsZero():
		c.alone = now
	}
	swept, err := mps.SweepSharedMemory(ctx, c.dir, before.Add(-cleanMargin), !c.alone.IsZero() && now.Sub(c.alone) >= cleanMargin)
	if err != nil {
		return err
	}
	if swept.Files > 0 {
		klog.FromContext(ctx).Info("Removed what tenants that are gone left in shared memory", "files", swept.Files, "bytes", swept.Bytes, "folder", c.dir)
	}
	if swept.Cut && !c.cut {
		klog.FromContext(ctx).Info("Left a part of the shared memory as it is: it has more entries than one round looks at. The next round begins anew", "entries", mps.MaxSweptEntries, "folder", c.dir)
	}
	c.cut = swept.Cut
	usage, err := mps.SharedMemoryUsage(c.dir)
	if err != nil {
		return err
	}
	c.metrics.SharedMemory(usage.Used, usage.Size-usage.Used, swept.UnjudgedBytes)
	c.metrics.SharedMemorySwept(swept.Bytes)
	return nil
}

// oldest returns when the oldest tenant that lives was created, else now.
func oldest(pods map[types.UID]*tenant, now time.Time) (created time.Time, some bool) {
	created = now
	for _, t := range pods {
		if ended(t.pod) {
			continue
		}
		some = true
		if at := t.pod.CreationTimestamp.Time; at.Before(created) {
			created = at
		}
	}
	return created, some
}
