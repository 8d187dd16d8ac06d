package gpushare

import (
	"bytes"
	"compress/gzip"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/test/must"
)

// BenchmarkSnapshot measures the snapshot of 5,000 nodes of eight linked devices, with one to three pods on each, telemetry of all
// and predictions: to make it, to write it, to compress it, and to leave the names of most namespaces out.
func BenchmarkSnapshot(b *testing.B) {
	f := newKnownFleet(b, 5000)
	f.measure(b)
	f.cycle(b, newcomers()[0])
	made := func() *snapshot.Snapshot {
		return &snapshot.Snapshot{Source: snapshot.FromScheduler, Nodes: f.plugin.SnapshotNodes(noGang)}
	}
	s, writer := made(), &snapshotjson.Writer{}
	raw, err := snapshotjson.Write(s)
	must.OK(b, err)
	pods := 0
	for i := range s.Nodes {
		pods += len(s.Nodes[i].Pods)
	}
	for _, part := range []struct {
		name string
		do   func() int
	}{
		{"make", func() int {
			f.plugin.shown.nodes = nil
			return len(made().Nodes)
		}},
		{"make without changes", func() int { return len(made().Nodes) }},
		{"write", func() int {
			out, err := snapshotjson.Write(s)
			must.OK(b, err)
			return len(out)
		}},
		{"write without changes", func() int {
			out, err := writer.Write(s)
			must.OK(b, err)
			return len(out)
		}},
		{"compress", func() int {
			var out bytes.Buffer
			w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
			_, _ = w.Write(raw)
			_ = w.Close()
			return out.Len()
		}},
		{"redact", func() int {
			return len(s.Redact(func(namespace string) bool { return strings.HasPrefix(namespace, "x") }).Nodes)
		}},
	} {
		b.Run(part.name, func(b *testing.B) {
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				size = part.do()
			}
			b.ReportMetric(float64(size), "size")
			b.ReportMetric(float64(pods), "pods")
		})
	}
}

// measure gives all devices links, and their pods a use that the agent measured.
func (f *fleet) measure(b *testing.B) {
	percent := int32(40)
	for _, info := range f.nodes {
		name := info.Node().Name
		g := gpuNode(name, 8)
		for _, at := range info.GetPods() {
			f.plugin.placed.add(at.GetPod())
		}
		for i := range g.Status.Devices {
			d := &g.Status.Devices[i]
			d.Usage = &v1alpha1.GPUUsage{SMUtilizationPercent: 50, MemoryUsed: d.Memory}
			for _, at := range info.GetPods() {
				if strings.Contains(at.GetPod().Annotations[v1alpha1.AnnotationAssignment], d.ID) {
					d.Tenants = append(d.Tenants, v1alpha1.GPUTenant{UID: string(at.GetPod().UID), SMUtilizationPercent: &percent, MemoryUsed: &d.Memory})
				}
			}
			for k := range i {
				d.Links = append(d.Links, v1alpha1.GPULink{Peer: g.Status.Devices[k].ID, Type: "NVLink"})
			}
		}
		f.setGPUNode(g)
		must.OK(b, f.plugin.gpuNodes.Add(&condensed{ObjectMeta: metav1.ObjectMeta{Name: name}, use: useOf(g)}))
	}
}

// BenchmarkSnapshotBeside measures what somebody who polls costs the scheduling of 5,000 nodes: cycles of pods alone, and beside snapshots
// that are made, written and compressed one after the other without a pause, in twenty turns of a second each. Nobody gets snapshots so
// often: the pause after one that took a time t is the longest of a second and 100 t, a minute at most (internal/scheduler/snapshots).
// "percent" is what is left of the loss with that pause, and "ms/snapshot" is t; both are medians. The benchmark fails above 1 %.
func BenchmarkSnapshotBeside(b *testing.B) {
	f := newKnownFleet(b, 5000)
	f.measure(b)
	pods := newcomers()
	for i, p := range pods {
		named(p, i%20, i)
	}
	next := 0
	cycles := func(until func() bool) (perSecond float64) {
		began, n := time.Now(), 0
		for ; !until(); n++ {
			p := pods[next%len(pods)]
			f.turnOver(p, f.cycle(b, p))
			next++
		}
		return float64(n) / time.Since(began).Seconds()
	}
	writer := &snapshotjson.Writer{}
	writeSnapshot(b, f, writer) // the first one writes all nodes; the others those that have changed
	var alone, losses, took []float64
	for b.Loop() {
		for range 10 {
			second := time.Now().Add(time.Second)
			alone = append(alone, cycles(func() bool { return time.Now().After(second) }))
			var enough, done atomic.Bool
			go func() {
				defer done.Store(true)
				for !enough.Load() {
					began := time.Now()
					writeSnapshot(b, f, writer)
					took = append(took, time.Since(began).Seconds())
				}
			}()
			second = time.Now().Add(time.Second)
			beside := cycles(func() bool {
				enough.Store(time.Now().After(second))
				return done.Load()
			})
			losses = append(losses, 1-beside/alone[len(alone)-1])
		}
	}
	t := median(took)
	percent := 100 * median(losses) * t / (t + max(1, min(100*t, 60)))
	b.ReportMetric(median(alone), "alone/s")
	b.ReportMetric(100*median(losses), "loss-percent")
	b.ReportMetric(1000*t, "ms/snapshot")
	b.ReportMetric(percent, "percent")
	if percent > 1 {
		b.Errorf("somebody who polls costs %.2f %% of the pods per second, at most 1 %% is allowed", percent)
	}
}

// writeSnapshot makes a snapshot as callers get it.
func writeSnapshot(b *testing.B, f *fleet, writer *snapshotjson.Writer) {
	raw, err := writer.Write(&snapshot.Snapshot{Source: snapshot.FromScheduler, Nodes: f.plugin.SnapshotNodes(noGang)})
	if err != nil {
		b.Error(err)
		return
	}
	w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	_, _ = w.Write(raw)
	_ = w.Close()
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
