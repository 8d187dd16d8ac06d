package elastic_test

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// BenchmarkWorkers is the cost of one decision for 1,000 jobs of up to 64 workers on 5,000 nodes with eight GPUs each. The
// target is 2 s. Half of the GPUs are idle at first, so that as many jobs as MaxPlacements allows grow; then the jobs have
// what they may have, and a tenth of them waits.
func BenchmarkWorkers(b *testing.B) {
	for _, tc := range []struct {
		name    string
		nodes   int
		jobs    int
		workers int
		waiting int
	}{
		{"idle", 5000, 1000, 20, 0},
		{"waiting", 5000, 1000, 40, 100},
		{"steady", 5000, 1000, 40, 0},
		{"small", 16, 40, 1, 0},
	} {
		for _, policy := range elastic.Policies() {
			b.Run(tc.name+"/"+policy, func(b *testing.B) {
				w := benchWorld(b, tc.nodes, tc.jobs, tc.workers, tc.waiting)
				b.ReportAllocs()
				for b.Loop() {
					w.decide(b, elastic.Config{Policy: policy})
				}
			})
		}
	}
}

// benchWorld returns jobs of up to 64 workers with so many each, on nodes in their order, and a few jobs that wait.
func benchWorld(b *testing.B, nodes, jobs, workers, waiting int) *world {
	list := make([]*vgpu.Node, 0, nodes)
	for i := range nodes {
		list = append(list, testkit.Node(b, fmt.Sprintf("n%04d", i), testkit.A100, 8))
	}
	w := &world{Cluster: clusterOf(list...), now: 1_000_000}
	at := 0
	for i := range jobs + waiting {
		sizes, err := elastic.Steps(1, 64, 1)
		if err != nil {
			b.Fatal(err)
		}
		j := elastic.Job{
			Name: fmt.Sprintf("team/job-%04d", i), Arrived: w.now - 60, Sizes: sizes, Worker: worker(10), Cost: 30,
			Wishes: gang.Wishes{Preferred: []string{hostname}}, Curve: elastic.Curve{Growth: .6 + float64(i%40)/100},
		}
		if i < jobs {
			j.Started = w.now - int64(1000+17*i)
			for rank := range workers {
				n, device := list[at/8], at%8
				a := testkit.Assignment(b, n, device, fmt.Sprintf("%s-%d", j.Name, rank), 10)
				mustAdd(b, n, a)
				j.Placed = append(j.Placed, a)
				at++
			}
		}
		w.jobs = append(w.jobs, j)
	}
	return w
}
