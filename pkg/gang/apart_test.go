package gang_test

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Members that have a place are apart where a required level has several domains of them, whatever is preferred.
func TestApart(t *testing.T) {
	nodes := []*vgpu.Node{testkit.Node(t, "n1", testkit.A100, 2), testkit.Node(t, "n2", testkit.A100, 2)}
	c := &gang.Cluster{Nodes: nodes, Levels: []gang.Level{{Key: "rack", Domain: []int32{0, 1}, Names: []string{"r1", "r2"}}}}
	on := func(node, device int) vgpu.Assignment {
		return testkit.Assignment(t, testkit.Node(t, nodes[node].Name(), testkit.A100, 2), device, fmt.Sprintf("ns/p-%d-%d", node, device), 10)
	}
	for _, test := range []struct {
		name   string
		wishes gang.Wishes
		places []vgpu.Assignment
		want   bool
	}{
		{"two racks", gang.Wishes{Required: []string{"rack"}}, []vgpu.Assignment{on(0, 0), on(1, 0)}, true},
		{"one rack", gang.Wishes{Required: []string{"rack"}}, []vgpu.Assignment{on(0, 0), on(0, 1)}, false},
		{"one member", gang.Wishes{Required: []string{"rack"}}, []vgpu.Assignment{on(1, 1)}, false},
		{"two racks, which it only prefers not to", gang.Wishes{Preferred: []string{"rack"}}, []vgpu.Assignment{on(0, 0), on(1, 0)}, false},
		{"two devices without NVLink", gang.Wishes{Required: []string{gang.NVLink}}, []vgpu.Assignment{on(0, 0), on(0, 1)}, true},
		{"one device", gang.Wishes{Required: []string{gang.NVLink}}, []vgpu.Assignment{on(0, 0)}, false},
	} {
		got, err := gang.Apart(c, &gang.Group{Name: "g", Placed: test.places, MinCount: 1, Wishes: test.wishes}, gang.Config{})
		if err != nil || got != test.want {
			t.Errorf("%s: %v, %v", test.name, got, err)
		}
	}
	if _, err := gang.Apart(c, &gang.Group{Name: "g"}, gang.Config{MaxDomains: -1}); err == nil {
		t.Error("a wrong bound is no error")
	}
}
