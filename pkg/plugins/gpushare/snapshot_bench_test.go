package gpushare

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
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
	s := made()
	raw, err := snapshotjson.Write(s)
	if err != nil {
		b.Fatal(err)
	}
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
			if err != nil {
				b.Fatal(err)
			}
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
		if err := f.plugin.gpuNodes.Add(&condensed{ObjectMeta: metav1.ObjectMeta{Name: name}, use: useOf(g)}); err != nil {
			b.Fatal(err)
		}
	}
}
