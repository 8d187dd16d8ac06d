package gpugang

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const (
	// reportEvery is the time between two looks at the elastic gangs. A shorter time tells the controller sooner why a
	// target cannot be reached, and costs a walk over these gangs.
	reportEvery = 5 * time.Second
	// reportTimeout bounds the request of one report. A longer one delays the others where the API server does not answer.
	reportTimeout = 5 * time.Second
	// maxReport bounds the message of a report, in bytes: the schema of the object has no bound.
	maxReport = 1024
)

// reports tells in the ElasticTargets why members within their targets have no node. Only one goroutine uses it.
type reports struct {
	client dynamic.Interface
	// written are the last reports by gang.
	written map[podgroup.Ref]v1alpha1.ElasticTargetAdmission
}

// report runs the reports until ctx ends.
func (p *Plugin) report(ctx context.Context, client dynamic.Interface) {
	r := &reports{client: client, written: map[podgroup.Ref]v1alpha1.ElasticTargetAdmission{}}
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if p.active.Load() {
				p.reportAll(ctx, r)
			}
		}
	}
}

// reportAll writes the reports that have changed.
func (p *Plugin) reportAll(ctx context.Context, r *reports) {
	written := make(map[podgroup.Ref]v1alpha1.ElasticTargetAdmission, len(r.written))
	for _, ref := range p.gangs.Elastic() {
		now, has := p.admission(ref)
		before, known := r.written[ref]
		if known {
			written[ref] = before
		}
		if !has || known && before == now {
			continue
		}
		switch err := r.write(ctx, ref, now); {
		case err == nil:
			written[ref] = now
		case !apierrors.IsNotFound(err): // the next look tries again
			klog.FromContext(ctx).Error(err, "Telling a target what the scheduler does failed", "gang", ref.String())
		}
	}
	r.written = written
}

// admission returns what the scheduler has to tell of a gang; false where it has no target.
func (p *Plugin) admission(ref podgroup.Ref) (a v1alpha1.ElasticTargetAdmission, has bool) {
	pg, _ := p.gangs.Gang(ref)
	if pg == nil || !pg.Targeted {
		return a, false
	}
	a.Workers = int32(pg.Workers)
	waits := false
	for _, pod := range pg.Members {
		waits = waits || pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil
	}
	if !waits {
		return a, true
	}
	a.Message = p.unplaced.reason(ref)
	p.machine.Lock(func(l machine.Locked) {
		if refusal, refused := l.State.Refusal(ref); refused {
			a.Message = refusal.Why
		}
	})
	a.Message = strings.ToValidUTF8(a.Message[:min(len(a.Message), maxReport)], "")
	return a, true
}

// write writes one report.
func (r *reports) write(ctx context.Context, ref podgroup.Ref, a v1alpha1.ElasticTargetAdmission) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"scheduler": map[string]any{"workers": a.Workers, "message": a.Message}}})
	if err != nil {
		return fmt.Errorf("write a report: %w", err)
	}
	_, err = r.client.Resource(v1alpha1.ElasticTargets).Namespace(ref.Namespace).
		Patch(ctx, ref.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "tandem-scheduler"}, "status")
	return err
}
