package gpumap

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// Nodes of one place stand together, in the order of the places and then of the names; those without a place come last.
func TestPlaces(t *testing.T) {
	node := func(name string, labels ...string) snapshot.Node {
		n := snapshot.Node{Name: name, Devices: []snapshot.Device{}, Pods: []snapshot.Pod{}, Holds: []snapshot.Hold{}}
		for _, l := range labels {
			if n.Topology == nil {
				n.Topology = map[string]string{}
			}
			key, value, _ := strings.Cut(l, "=")
			n.Topology[key+".topology.example.com"] = value
		}
		return n
	}
	for name, x := range map[string]struct {
		nodes []snapshot.Node
		want  []string
	}{
		"without labels": {[]snapshot.Node{node("a"), node("b")}, []string{"a: ", "b: "}},
		// Racks are fewer than nodes and more than zones; the label host names the node.
		"racks in zones": {
			[]snapshot.Node{
				node("a", "zone=z2", "rack=r3", "host=a"), node("b", "zone=z1", "rack=r1", "host=b"), node("c", "zone=z1", "rack=r2", "host=c"),
				node("d"), node("e", "zone=z1", "rack=r1", "host=e"), node("f", "zone=z2", "host=f"),
			},
			[]string{"b: z1 / r1", "e: z1 / r1", "c: z1 / r2", "f: z2", "a: z2 / r3", "d: "},
		},
		"one node": {[]snapshot.Node{node("a", "zone=z1")}, []string{"a: z1"}},
	} {
		p, err := Of(&snapshot.Snapshot{Source: snapshot.FromScheduler, At: time.Unix(1_800_000_000, 0).UTC(), Nodes: x.nodes})
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, n := range p.Nodes {
			got = append(got, n.Name+": "+n.Place)
		}
		if diff := cmp.Diff(x.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
