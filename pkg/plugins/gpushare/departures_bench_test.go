package gpushare

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// departures are the departures that BenchmarkDepartures measures beside each number of waiting pods.
const departures = 10

// betweenDepartures is longer than the back-off of a pod, a second: a shorter time would spare the scheduler attempts that it owes.
const betweenDepartures = 1100 * time.Millisecond

// BenchmarkDepartures measures how long a pod waits that fits into the room of a pod that leaves, beside pods that wait for more room
// than becomes free: from the request to delete the one to the bind of the other, which is created right after that request. The
// scheduler is the real one, on ten nodes of eight GPUs that pods of half a GPU fill. "ms" is the median of ten departures, and
// "cpu-ms" the CPU time of the whole process per departure, with that of the API in memory. The benchmark fails where the median
// exceeds twice that beside no waiting pods, in the same run. The 20,000 pods take minutes to come and to be refused.
func BenchmarkDepartures(b *testing.B) {
	alone := 0.
	for _, waiting := range []int{0, 200, 2000, 20000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			for b.Loop() {
				took, cpu := leaveBeside(b, waiting)
				b.ReportMetric(took, "ms")
				b.ReportMetric(cpu, "cpu-ms")
				if waiting == 0 {
					alone = took
				}
				if alone > 0 && took > 2*alone {
					b.Errorf("a fitting pod is bound after %.1f ms beside %d waiting pods, %.1f ms beside none", took, waiting, alone)
				}
			}
		})
	}
}

// leaveBeside returns the median time in ms until a fitting pod is bound, and the CPU time per departure.
func leaveBeside(b *testing.B, waiting int) (took, cpu float64) {
	gpuNodes := make([]*v1alpha1.GPUNode, 10)
	for i := range gpuNodes {
		gpuNodes[i] = gpuNode(fmt.Sprintf("n%d", i), 8)
	}
	c := newCluster(b, gpuNodes...)
	defer c.stop()
	pods, err := c.client.CoreV1().Pods("default").Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer pods.Stop()
	running := 2 * 8 * len(gpuNodes)
	for i := range running {
		c.createPod(pod(fmt.Sprintf("runs-%d", i), 5))
	}
	awaitPods(b, pods, running, isBound)
	for i := range waiting {
		c.createPod(pod(fmt.Sprintf("waits-%d", i), 10))
	}
	awaitPods(b, pods, waiting, func(p *v1.Pod) bool { return p.Spec.NodeName == "" && len(p.Status.Conditions) > 0 })
	before := cpuTime(b)
	var all []float64
	pace := time.NewTicker(betweenDepartures)
	defer pace.Stop()
	for i := range departures {
		<-pace.C
		c.deletePod(fmt.Sprintf("runs-%d", i))
		began := time.Now()
		name := fmt.Sprintf("runs-%d", running+i)
		c.createPod(pod(name, 5))
		awaitPods(b, pods, 1, func(p *v1.Pod) bool { return p.Name == name && isBound(p) })
		all = append(all, 1000*time.Since(began).Seconds())
	}
	return median(all), 1000 * (cpuTime(b) - before).Seconds() / departures
}

// awaitPods waits until events show so many different pods as they are wanted.
func awaitPods(b *testing.B, events watch.Interface, count int, wanted func(*v1.Pod) bool) {
	seen := map[string]bool{}
	for len(seen) < count {
		e, ok := <-events.ResultChan()
		if !ok {
			b.Fatal("the watch ended")
		}
		if p, ok := e.Object.(*v1.Pod); ok && wanted(p) {
			seen[p.Name] = true
		}
	}
}
