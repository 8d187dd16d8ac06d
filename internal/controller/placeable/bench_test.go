package placeable

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/test/must"
)

// benchObjects returns nodes of eight devices in racks of twenty, of which four in five devices have two pods of a low priority.
func benchObjects(b *testing.B, nodes int) snapshot.Objects {
	b.Helper()
	o := snapshot.Objects{At: noon}
	for i := range nodes {
		name := fmt.Sprintf("n%04d", i)
		n, g := nodeOf(name, fmt.Sprintf("r%d", i/20), 8)
		o.Nodes, o.GPUNodes = append(o.Nodes, n), append(o.GPUNodes, g)
		for d := range 8 {
			for k := range 2 {
				if (i+d)%5 > 0 {
					o.Pods = append(o.Pods, runs(b, fmt.Sprintf("%s-%d-%d", name, d, k), name, d, 5, 0))
				}
			}
		}
	}
	return o
}

// BenchmarkDecide answers about Workloads of 64 pods on 5,000 nodes with 64,000 pods. The bound is 200 ms an answer; each sub-benchmark has what it
// took on two cores. "read" is what a pass reads once for all answers.
func BenchmarkDecide(b *testing.B) {
	o := benchObjects(b, 5000)
	var r snapshot.Reader
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			r.Read(o)
		}
	})
	for name, w := range map[string]*Workload{
		"fits":       work("w", set("main", 64, template(10))),
		"gang":       work("w", set("main", 64, template(5, inGang("train", "64", topology, rack)))),
		"refused":    work("w", set("main", 64, template(10, inGang("train", "64", topology, rack)))),
		"preemption": work("w", set("main", 64, template(10, inGang("train", "64", topology, rack), class("high")))),
		"two sets":   work("w", set("a", 64, template(5)), set("b", 64, template(10))),
	} {
		b.Run(name, func(b *testing.B) {
			v := viewOf(b, o)
			of := v.Cluster
			var answer Answer
			began := used(b)
			n := 0
			for b.Loop() {
				v.Cluster = of
				answer = v.Decide(w)
				n++
			}
			b.ReportMetric(float64((used(b)-began).Milliseconds())/float64(n), "ms/answer") // of one core, whatever else the machine does
			b.Log(answer.State, answer.Message)
		})
	}
}

// used returns the time of cores that this process has used.
func used(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	must.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
