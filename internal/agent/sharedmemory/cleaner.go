package sharedmemory

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/loop"
	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
)

const (
	// cleanEvery is the time between two sweeps of the shared memory.
	cleanEvery = 30 * time.Second
	// cleanMargin is by how much a file has to be older than the oldest tenant. Files of other users go once there has
	// been no tenant for that long. The API server's clock, by which pods have their creation time, may be ahead of the
	// node's, and a pod may be gone from the API server before its processes.
	cleanMargin = 5 * time.Minute
)

// Pods knows the pods of the node that request vGPUs.
type Pods interface {
	// Snapshot returns the pods by UID and a channel that is closed at the next change, or an error where they are not
	// known.
	Snapshot() (map[types.UID]*podsource.Tenant, <-chan struct{}, error)
}

// Cleaner removes what tenants left in the memory that they share with their MPS servers. No container's memory limit
// counts these files.
type Cleaner struct {
	Dir     string
	Pods    Pods
	Metrics *metrics.Agent
	Beat    func()
	// alone is since when no tenant lives; zero while one does.
	alone time.Time
	// cut is that the last round did not see all of the folder.
	cut bool
}

// Run makes rounds until ctx ends.
func (c *Cleaner) Run(ctx context.Context) {
	for ctx.Err() == nil {
		c.Beat()
		if err := c.clean(ctx, time.Now()); err != nil {
			klog.FromContext(ctx).V(2).Info("Leaving the shared memory as it is", "why", err.Error())
		}
		loop.Pause(ctx, cleanEvery)
	}
}

// clean makes one round. The cleaner removes nothing while the pods are unknown.
func (c *Cleaner) clean(ctx context.Context, now time.Time) error {
	pods, _, err := c.Pods.Snapshot()
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
	swept, err := mps.SweepSharedMemory(ctx, c.Dir, before.Add(-cleanMargin), !c.alone.IsZero() && now.Sub(c.alone) >= cleanMargin)
	if err != nil {
		return err
	}
	if swept.Files > 0 {
		klog.FromContext(ctx).Info("Removed what tenants that are gone left in shared memory", "files", swept.Files, "bytes", swept.Bytes, "folder", c.Dir)
	}
	if swept.Cut && !c.cut {
		klog.FromContext(ctx).Info("Left a part of the shared memory as it is: it has more entries than one round looks at. The next round begins anew", "entries", mps.MaxSweptEntries, "folder", c.Dir)
	}
	c.cut = swept.Cut
	usage, err := mps.SharedMemoryUsage(c.Dir)
	if err != nil {
		return err
	}
	c.Metrics.SharedMemory(usage.Used, usage.Size-usage.Used, swept.UnjudgedBytes)
	c.Metrics.SharedMemorySwept(swept.Bytes)
	return nil
}

// oldest returns the creation time of the oldest running tenant, else now.
func oldest(pods map[types.UID]*podsource.Tenant, now time.Time) (created time.Time, some bool) {
	created = now
	for _, t := range pods {
		if podsource.Ended(t.Pod) {
			continue
		}
		some = true
		if at := t.Pod.CreationTimestamp.Time; at.Before(created) {
			created = at
		}
	}
	return created, some
}
