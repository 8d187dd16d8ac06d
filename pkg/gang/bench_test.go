package gang_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// benchCluster returns nodes of eight devices with NVSwitch in racks. Pods use every other node: some nodes wholly,
// some in part.
func benchCluster(tb testing.TB, nodes, racks int) *gang.Cluster {
	tb.Helper()
	c := &gang.Cluster{Levels: []gang.Level{{Key: "rack"}, {Key: "host"}}}
	for r := range racks {
		c.Levels[0].Names = append(c.Levels[0].Names, fmt.Sprintf("r%02d", r))
	}
	for i := range nodes {
		name := fmt.Sprintf("n%04d", i)
		var devices []vgpu.Device
		for g := range 8 {
			d := testkit.A100.Device(name, g)
			for j := range g {
				d.Links = append(d.Links, vgpu.Link{Peer: testkit.DeviceID(name, j), Class: vgpu.LinkNVLink, Lanes: 12})
			}
			devices = append(devices, d)
		}
		n, err := vgpu.NewNode(name, devices)
		must.OK(tb, err)
		n.SetRoom(vgpu.Room{MilliCPU: 128_000, Memory: 1024 * vgpu.GiB})
		occupy(tb, n, i)
		c.Nodes = append(c.Nodes, n)
		c.Levels[0].Domain = append(c.Levels[0].Domain, int32(i*racks/nodes))
		c.Levels[1].Domain = append(c.Levels[1].Domain, int32(i))
		c.Levels[1].Names = append(c.Levels[1].Names, name)
	}
	return c
}

// occupy books pods on half of the devices of the cluster.
func occupy(tb testing.TB, n *vgpu.Node, i int) {
	taken := []int{0, 8, 0, 8, 4, 4, 3, 5}[i%8]
	for g := range taken {
		slots := vgpu.Slots(10)
		if g%3 == 2 {
			slots = 5
		}
		a := testkit.Assignment(tb, n, g, fmt.Sprintf("old-%s-%d", n.Name(), g), slots)
		must.OK(tb, n.Add(a))
		n.SetRoom(n.Room().Minus(vgpu.Room{MilliCPU: 8000, Memory: 64 * vgpu.GiB}))
	}
}

// benchGang returns a gang of as many members with as many slots each.
func benchGang(members int, slots vgpu.Slots, required, preferred []string) *gang.Group {
	g := &gang.Group{Name: "team/train", MinCount: members, Wishes: gang.Wishes{Required: required, Preferred: preferred}}
	for i := range members {
		r := testkit.Request(fmt.Sprintf("team/train-%04d", i), slots)
		r.Host = vgpu.Room{MilliCPU: 8000, Memory: 32 * vgpu.GiB}
		g.Members = append(g.Members, gang.Member{Request: *r, Rank: i})
	}
	return g
}

// tandemConfig returns the policy tandem with usual requests such as the traces have.
func tandemConfig(tb testing.TB) gang.Config {
	tb.Helper()
	mix, err := testkit.ParseMix("slots=1 cpu=4 memory=16Gi weight=20\nslots=5 cpu=8 memory=32Gi weight=30\nslots=10 cpu=8 memory=64Gi weight=40\n" +
		"slots=20 cpu=16 memory=128Gi weight=5\nslots=80 cpu=96 memory=800Gi weight=5")
	must.OK(tb, err)
	p, err := placement.ByName("tandem")
	must.OK(tb, err)
	return gang.Config{Policy: p.With(mix, 1)}
}

// cpuTime returns the processor time of this process: the cost of a decision where others use the processors as well.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var use syscall.Rusage
	must.OK(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

type benchCase struct {
	name         string
	nodes, racks int
	group        *gang.Group
}

// BenchmarkPlace is the cost of one decision. The targets are 50 ms for 512 members on 500 nodes and 3 ms for 4 members on
// 5,000 nodes. cpu-ms/op is what it costs where others use the processors as well.
func BenchmarkPlace(b *testing.B) {
	for _, bc := range []benchCase{
		{"members=512/nodes=500", 500, 10, benchGang(512, 10, nil, []string{"host", "rack"})},
		{"members=512/nodes=500/islands", 500, 10, benchGang(512, 10, nil, []string{"nvlink", "host", "rack"})},
		{"members=512/nodes=500/halves", 500, 10, benchGang(512, 5, nil, []string{"host", "rack"})},
		{"members=150/nodes=500/rack required", 500, 10, benchGang(150, 10, []string{"rack"}, []string{"host"})},
		{"members=4/nodes=5000", 5000, 50, benchGang(4, 10, nil, []string{"host", "rack"})},
		{"members=4/nodes=5000/rack required", 5000, 50, benchGang(4, 10, []string{"rack"}, []string{"host"})},
		{"members=4/nodes=5000/8 devices each", 5000, 50, benchGang(4, 80, []string{"rack"}, []string{"host"})},
		{"members=2000/nodes=5000", 5000, 50, benchGang(2000, 10, nil, []string{"host", "rack"})},
	} {
		b.Run(bc.name, func(b *testing.B) { bc.run(b, gang.Place, true) })
	}
}

// BenchmarkRefuse is the cost of a refusal with its nearest miss. The target is 50 ms.
func BenchmarkRefuse(b *testing.B) {
	for _, bc := range []benchCase{
		{"members=512/nodes=500", 500, 5, benchGang(512, 10, []string{"rack"}, []string{"host"})},
		{"members=512/nodes=500/never", 500, 10, benchGang(512, 10, []string{"rack"}, []string{"host"})},
		{"members=3000/nodes=500", 500, 10, benchGang(3000, 10, nil, []string{"host", "rack"})},
		{"members=500/nodes=5000", 5000, 50, benchGang(500, 10, []string{"rack"}, []string{"host"})},
	} {
		b.Run(bc.name, func(b *testing.B) { bc.run(b, gang.Place, false) })
	}
}

// BenchmarkDrain is the cost of choosing room to wait for.
func BenchmarkDrain(b *testing.B) {
	for _, bc := range []benchCase{
		{"members=512/nodes=500", 500, 5, benchGang(512, 10, []string{"rack"}, []string{"host"})},
	} {
		b.Run(bc.name, func(b *testing.B) { bc.run(b, gang.Drain, true) })
	}
}

func (bc *benchCase) run(b *testing.B, decide func(*gang.Cluster, *gang.Group, gang.Config) (gang.Plan, error), fits bool) {
	c, cfg := benchCluster(b, bc.nodes, bc.racks), tandemConfig(b)
	b.ReportAllocs()
	var plan gang.Plan
	before := cpuTime(b)
	for b.Loop() {
		var err error
		if plan, err = decide(c, bc.group, cfg); err != nil || (plan.Places != nil) != fits {
			b.Fatal(err, plan.Refused)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(plan.Stats.Tried), "domains")
	b.ReportMetric(float64(plan.Stats.Fits), "fits")
}
