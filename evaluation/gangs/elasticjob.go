package gangs

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// elasticJob is a job whose number of workers changes.
type elasticJob struct {
	gangJob
	name  string
	sizes []int
	// left is the part of its work that is left, at most 1. The job does rate of it in a second, after delay seconds.
	left, rate, delay float64
	places            []vgpu.Assignment
	// started and completed are times in seconds, 0 before. moved are the times of its changes of size.
	started, completed float64
	moved              []int64
	// changes counts changes of size, and starts after the first one.
	changes int
	// known are its measured speeds, once they were computed.
	known elastic.Curve
}

// sizesOf returns the numbers of workers from 1 to most with a measurement of the application, at which the batch of a
// job is legal.
func (a *gangApp) sizesOf(batch int64, most int) []int {
	counts := map[int]bool{}
	for _, of := range a.steps.counted {
		for n := range of {
			counts[n] = true
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(counts)), func(n int) bool {
		return n > most || a.legal(batch, n) != nil
	})
}

// legalSizes returns the numbers of workers that the job may have: up to twice as many as it asks for, and from its least one
// on, or from the next measured one below that.
func (j *gangJob) legalSizes(gpus int) []int {
	sizes := j.app.sizesOf(j.batch, min(2*j.workers, gpus))
	least := largest(sizes, j.least)
	return slices.DeleteFunc(sizes, func(n int) bool { return n < least })
}

// speed returns which part of a job its workers do in a second.
func (j *gangJob) speed(nodes []int) float64 {
	return 1 / (j.work(len(nodes)) * j.app.stepTime(j.batch, nodes))
}

// worker is the request of a worker: a whole GPU.
func (j *elasticJob) worker(rank int) gang.Member {
	return gang.Member{Rank: rank, Request: vgpu.Request{
		UID: vgpu.UID(fmt.Sprintf("%s-%d", j.name, rank)), Pod: fmt.Sprintf("%s-%d", j.name, rank),
		Containers: []vgpu.ContainerRequest{{Name: "main", Slots: slotsOfGPU}},
	}}
}

// measuredCurve is the curve that a profile would declare: the measured rates of all sizes on as few nodes as possible,
// and on one node more.
func (j *elasticJob) measuredCurve(perNode int) elastic.Curve {
	var c elastic.Curve
	for _, n := range j.sizes {
		few := int(ceil(int64(n), int64(perNode)))
		for on := few; on <= min(few+1, n); on++ {
			c.Points = append(c.Points, elastic.Point{Workers: n, Hosts: on, Rate: j.speed(evenly(n, on, perNode))})
		}
	}
	return c
}

// evenly returns nodes for workers on so many nodes, of which each but the last is full where they are as few as possible.
func evenly(workers, on, perNode int) []int {
	if on*perNode < workers+perNode {
		return compactly(workers, perNode)
	}
	nodes := make([]int, workers)
	for rank := range nodes {
		nodes[rank] = rank * on / workers
	}
	return nodes
}
