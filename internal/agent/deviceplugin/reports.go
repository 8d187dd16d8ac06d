package deviceplugin

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/reported"
)

// reporter has the rates read that the pods of the node report of themselves.
type reporter struct {
	reader *reported.Reader
	pods   *podWatch
	every  time.Duration
	beat   func()
}

// run reads until ctx ends.
func (r *reporter) run(ctx context.Context) {
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for {
		r.beat()
		r.read(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// read asks the pods that hold shares. While the kubelet does not tell its pods, nobody is asked: an address may have
// become another pod's.
func (r *reporter) read(ctx context.Context) {
	pods, _, err := r.pods.snapshot()
	if err != nil {
		return
	}
	var there []*v1.Pod
	for _, t := range pods {
		if t.err == nil && !ended(t.pod) {
			there = append(there, t.pod)
		}
	}
	r.reader.Read(ctx, there)
}
