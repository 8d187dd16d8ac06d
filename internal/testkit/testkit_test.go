package testkit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestParse reads a drawing with all that a drawing can have, and draws it again.
func TestParse(t *testing.T) {
	c, err := Parse(`
		model T4 slots=5 memory=10Gi contexts=2   # five slots for once
		n2 cpu=64 memory=256Gi: g1 T4 [x:2] | g0 T4 20G
		n1: g0 A100 [a:5, b:2/8Gi c:1] (d:3@100) | g1 A100 sick [a:8~]
		links n1: g0-g1 NV12
		n3 cpu=1500m:`)
	must.OK(t, err)
	want := `n1: g0 A100 [a:5 b:2 c:1] (d:3@100) | g1 A100 sick [a:8~]
n2 cpu=64 memory=256Gi: g0 T4 | g1 T4 [x:2]
n3 cpu=1500m: 
`
	if diff := cmp.Diff(want, Draw(c)); diff != "" {
		t.Errorf("drawing (-want +got):\n%s", diff)
	}
	if got := c.Node("n1").Link(1, 0).Lanes; got != 12 {
		t.Errorf("%d lanes between g1 and g0 of n1, want 12", got)
	}
	if d := c.Node("n2").Devices()[0]; d.Slots != 5 || d.Memory.String() != "20Gi" || d.Contexts != 2 {
		t.Errorf("device %+v, want 5 slots, 20Gi, 2 contexts", d)
	}
}

func TestParseErrors(t *testing.T) {
	for drawing, want := range map[string]string{
		"n1 g0 A100":                           "line 1: want",
		"n1: g0":                               "want an index and a model",
		"n1: 0 A100":                           "want a device such as g0",
		"n1: g0 B7":                            "unknown model B7",
		"n1: g0 A100 40X":                      "read memory",
		"n1: g0 A100 [a]":                      `owner "a"`,
		"n1: g0 A100 [a:11]":                   "no share of device n1/g0",
		"n1: g0 A100 [a:6 b:6]":                "add assignment of pod b",
		"n1: g0 A100 [a:6":                     "want [owners]",
		"n1: g0 A100 (a:6@x)":                  "owner",
		"n1: g0 A100 | g0 A100":                "appears twice",
		"n1: g0 A100\nn1: g1 A100":             "line 2: node n1 is drawn twice",
		"n1: g0 A100\nlinks n1: g1-g0 NV2":     "unknown device g1",
		"n1: g0 A100\nlinks n1: g0-g1 ROPE":    `unknown link "ROPE"`,
		"model A100 slots=many":                "model A100: slots",
		":":                                    "a node has a name",
		"n1 cpu=many: g0 A100":                 `node n1: read CPU "many"`,
		"n1 memory=4X: g0 A100":                `node n1: read memory "4X"`,
		"n1 colour=3: g0 A100":                 `node n1: unknown key "colour"`,
		"model A100 colour=3":                  `unknown key "colour"`,
		"n1: g0 A100 [a:1]\nn2: g0 A100 [a:1]": "it is assigned to node n1",
	} {
		if _, err := Parse(drawing); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("drawing %q: error %v, want %q", drawing, err, want)
		}
	}
}

// TestScriptMistakes: a mistake in a script is told, not passed over.
func TestScriptMistakes(t *testing.T) {
	s := &Script{cluster: Cluster(t, Node(t, "n1", A100, 1))}
	script := "jump\nadd a 3\nadd a 3 on=n1/g9\nadd a x on=n1/g0\nplace a 3 colour=red\nplace a 3 policy=tetris\nsick n1/g0"
	want := `error: unknown command "jump"
error: name devices with on=
error: unknown device "n1/g9"
error: read share "x": expected integer
error: unknown argument "colour"
error: choose policy: unknown name "tetris", known are ` + strings.Join(placement.Policies(), ", ") + `
error: sick makes another cluster, which no what-if undoes
`
	if diff := cmp.Diff(want, s.Command("whatif", nil, script)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// TestCandidateMistakes: a mistake about candidates is told.
func TestCandidateMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"b":                  `error: "b": no such pod`,
		"gang job":           `error: "gang job": no such pod`,
		"gang job min=x":     `error: "gang job min=x": strconv.Atoi: parsing "x": invalid syntax`,
		"a gang=job":         `error: "a gang=job": no line before says what gang=job is`,
		"a budget=web":       `error: "a budget=web": no line before says what budget=web is`,
		"a colour=red":       `error: "a colour=red": unknown word "colour=red"`,
		"a lost=all":         `error: "a lost=all": strconv.ParseInt: parsing "all": invalid syntax`,
		"web node=n1 cpu=4Q": `error: "web node=n1 cpu=4Q": read CPU "4Q": strconv.ParseInt: parsing "4Q": invalid syntax`,
		"\na stays":          "0 pods, 0 gangs, 0 budgets",
	} {
		c, err := Parse("n1: g0 A100 [a:5]")
		must.OK(t, err)
		s := &Script{cluster: c}
		if got := s.Command("candidates", nil, text); got != want+"\n" {
			t.Errorf("%q says %q, want %q", text, got, want)
		}
	}
}

// TestDrawProperty: a drawing of shares reads back as the same drawing.
func TestDrawProperty(t *testing.T) {
	models := ""
	for _, m := range RandomModels {
		models += fmt.Sprintf("model %s slots=%d memory=%d contexts=%d\n", m.Name, m.Slots, m.Memory, m.Contexts)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := RandomCluster(t, 2, 3)
		Furnish(t, c)
		for i := range 4 {
			r := RandomRequest(t, fmt.Sprintf("p%d", i), 1)
			if a, ok := RandomAssignment(t, uniform(t, "node", c.Nodes()...), r); ok && a.Containers[0].Share.Devices == 1 {
				_ = c.Add(a) // what is too large stays out
			}
		}
		again, err := Parse(models + Draw(c))
		must.OK(t, err)
		if diff := cmp.Diff(Draw(c), Draw(again)); diff != "" {
			t.Fatalf("drawing (-first +again):\n%s", diff)
		}
	})
}
