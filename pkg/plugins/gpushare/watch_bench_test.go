package gpushare

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// BenchmarkKeptGPUNode reports the bytes that the informer keeps for a node of 8 linked devices: of the GPUNode as it is
// decoded from the API server's answer, and of what is left of it.
func BenchmarkKeptGPUNode(b *testing.B) {
	for name, keep := range map[string]func(any) (any, error){
		"whole": func(o any) (any, error) { return o, nil }, "condensed": condense,
	} {
		b.Run(name, func(b *testing.B) {
			raw := linkedGPUNode(b)
			kept := make([]any, b.N)
			before := liveHeap()
			for i := range kept {
				u := &unstructured.Unstructured{}
				must.OK(b, json.Unmarshal(raw, &u.Object))
				var err error
				if kept[i], err = keep(u); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(liveHeap()-before)/float64(b.N), "B/node")
			runtime.KeepAlive(kept)
		})
	}
}

func liveHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func linkedGPUNode(b *testing.B) []byte {
	g := gpuNode("n1", 8)
	for i := range g.Status.Devices {
		for j := range g.Status.Devices {
			if i != j {
				g.Status.Devices[i].Links = append(g.Status.Devices[i].Links,
					v1alpha1.GPULink{Peer: fmt.Sprintf("GPU-n1-%d", j), Type: v1alpha1.LinkNVLink, Lanes: 12})
			}
		}
	}
	raw, err := json.Marshal(g)
	must.OK(b, err)
	return raw
}
