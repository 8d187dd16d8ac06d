package gang_test

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// unlikeGang has members of so many unlike containers.
func unlikeGang(members, containers int) *gang.Group {
	g := benchGang(members, 1, nil, nil)
	for i := range g.Members {
		r := &g.Members[i].Request
		r.Host, r.Containers = vgpu.Room{}, nil
		for k := range containers {
			r.Containers = append(r.Containers, vgpu.ContainerRequest{Name: fmt.Sprint("c", k), Slots: vgpu.Slots(1 + k%9), Memory: vgpu.Bytes(2+k) * vgpu.GiB / 2})
		}
	}
	return g
}

// BenchmarkExtremes is one plan for gangs at the bounds of what is legal: of as many members as the cluster has devices, with the most levels, and with
// members of the most containers.
func BenchmarkExtremes(b *testing.B) {
	c := &gang.Cluster{}
	for i := range 1000 {
		c.Nodes = append(c.Nodes, testkit.Node(b, fmt.Sprintf("n%04d", i), testkit.A100, 8))
	}
	var keys []string
	for k := range 8 {
		l := gang.Level{Key: fmt.Sprint("level-", k)}
		for i := range c.Nodes {
			at := int32(i) >> k
			if l.Domain = append(l.Domain, at); int(at) == len(l.Names) {
				l.Names = append(l.Names, fmt.Sprintf("d%04d", at))
			}
		}
		keys, c.Levels = append(keys, l.Key), append(c.Levels, l)
	}
	large, levels := withoutHostRequests(benchGang(8000, 10, nil, nil)), withoutHostRequests(benchGang(1000, 10, nil, keys))
	for _, bc := range []struct {
		name string
		g    *gang.Group
	}{
		{"gang/8000-members/1000-nodes", large},
		{"gang/1000-members/8-preferred-levels/1000-nodes", levels},
		{"gang/100-members/16-containers/1000-nodes", unlikeGang(100, 16)},
		{"gang/1000-members/16-containers/1000-nodes", unlikeGang(1000, 16)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := gang.Place(c, bc.g, gang.Config{SkipExplanation: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDrainExtremes is one choice of room to wait for, on 1,000 nodes that are full of pods, each with an end of its own: as many as slots.
func BenchmarkDrainExtremes(b *testing.B) {
	c, ends := &gang.Cluster{}, map[vgpu.UID]int64{}
	for i := range 1000 {
		n := testkit.Node(b, fmt.Sprintf("n%04d", i), testkit.A100, 8)
		for g := range 8 {
			for k := range 10 {
				a := testkit.Assignment(b, n, g, fmt.Sprintf("old-%d-%d-%d", i, g, k), 1)
				must.OK(b, n.Add(a))
				ends[a.UID] = int64(1_800_000_000 + (i*7919+g*3137+k*1777)%100_000)
			}
		}
		c.Nodes = append(c.Nodes, n)
	}
	c.Ends = func(uid vgpu.UID, _ string) int64 { return ends[uid] }
	for _, members := range []int{100, 1000, 8000} {
		g := withoutHostRequests(benchGang(members, 10, nil, nil))
		b.Run(fmt.Sprintf("drain/%d-members/1000-nodes/80000-pods-that-end", members), func(b *testing.B) {
			before := cpuTime(b)
			for b.Loop() {
				if plan, err := gang.Drain(c, g, gang.Config{SkipExplanation: true}); err != nil || plan.Places == nil {
					b.Fatal(err, plan.Refused)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}
