package gang_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// TestClasses: the members that must get a place are those with the lowest ranks; like members are together.
func TestClasses(t *testing.T) {
	member := func(pod string, rank, kind int, slots ...vgpu.Slots) gang.Member {
		return gang.Member{Request: *testkit.Request(pod, slots...), Rank: rank, Kind: kind}
	}
	for name, c := range map[string]struct {
		group gang.Group
		least [][]int
		alike bool
	}{
		"alike":                    {gang.Group{MinCount: 2, Members: []gang.Member{member("a", 0, 0, 5), member("b", 1, 0, 5)}}, [][]int{{0, 1}}, true},
		"by rank":                  {gang.Group{MinCount: 2, Members: []gang.Member{member("a", 9, 0, 5), member("b", 1, 0, 5), member("c", 0, 0, 5)}}, [][]int{{2, 1}}, true},
		"of two sizes":             {gang.Group{MinCount: 3, Members: []gang.Member{member("a", 0, 0, 5), member("b", 1, 0, 6), member("c", 2, 0, 5)}}, [][]int{{0, 2}, {1}}, false},
		"of two kinds":             {gang.Group{MinCount: 2, Members: []gang.Member{member("a", 0, 0, 5), member("b", 1, 1, 5)}}, [][]int{{0}, {1}}, false},
		"other beyond":             {gang.Group{MinCount: 1, Members: []gang.Member{member("a", 0, 0, 5), member("b", 1, 0, 6)}}, [][]int{{0}}, false},
		"others placed":            {gang.Group{MinCount: 2, Placed: make([]vgpu.Assignment, 1), Members: []gang.Member{member("a", 0, 0, 5), member("b", 1, 0, 5)}}, [][]int{{0}}, true},
		"enough placed":            {gang.Group{MinCount: 1, Placed: make([]vgpu.Assignment, 2), Members: []gang.Member{member("a", 0, 0, 5)}}, [][]int{{0}}, true},
		"all members have a place": {gang.Group{MinCount: 1, Placed: make([]vgpu.Assignment, 1)}, nil, true},
	} {
		least, alike := c.group.Classes()
		if diff := cmp.Diff(c.least, least); diff != "" || alike != c.alike {
			t.Errorf("%s: alike %v, classes (-want +got):\n%s", name, alike, diff)
		}
	}
}
