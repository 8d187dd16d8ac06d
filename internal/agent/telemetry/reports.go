package telemetry

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/podsource"
	"github.com/tandem-gpu/tandem/internal/agent/reported"
)

// Reporter has the rates read that the pods of the node report of themselves.
type Reporter struct {
	Reader *reported.Reader
	Pods   Pods
	Every  time.Duration
	Beat   func()
}

// Run reads until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	tick := time.NewTicker(r.Every)
	defer tick.Stop()
	for {
		r.Beat()
		r.read(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// read scrapes the pods that hold shares. While the kubelet does not list its pods it scrapes none: an address may have
// become another pod's.
func (r *Reporter) read(ctx context.Context) {
	pods, _, err := r.Pods.Snapshot()
	if err != nil {
		return
	}
	var there []*v1.Pod
	for _, t := range pods {
		if t.Err == nil && !podsource.Ended(t.Pod) {
			there = append(there, t.Pod)
		}
	}
	r.Reader.Read(ctx, there)
}
