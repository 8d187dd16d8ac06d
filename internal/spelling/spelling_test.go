package spelling_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/spelling"
)

func TestNearest(t *testing.T) {
	for _, test := range []struct {
		written string
		legal   []string
		want    string
	}{
		{"Max_Slowdwn", []string{"max-latency", "max-slowdown"}, "max-slowdown"},
		{"bert-servng", []string{"bert-serving", "bert-training"}, "bert-serving"},
		{"GPU MEMORY", []string{"gpu_memory_bytes", "gpu_memory"}, "gpu_memory"},
		{"a1", []string{"a2", "a0"}, "a0"},          // both are one letter off
		{"cat", []string{"dog", "cow"}, ""},         // two letters of three
		{"cat", []string{"car"}, "car"},             // one letter of three
		{"ab", []string{"ac"}, "ac"},                // one letter is always allowed
		{"resnet", []string{"resnet-training"}, ""}, // it only begins alike
		{"größen", []string{"grössen", "groessen"}, "grössen"},
		{"bert", nil, ""},
		{"", []string{"bert"}, ""},
		{strings.Repeat("a", 100_000), []string{"a", strings.Repeat("b", 63)}, ""},
	} {
		got, some := spelling.Nearest(test.written, test.legal)
		if got != test.want || some != (test.want != "") {
			t.Errorf("nearest to %.40q of %.80q is %q (%v), want %q", test.written, test.legal, got, some, test.want)
		}
	}
}

// A legal name is nearest to itself, in whatever case, the order of the names does not matter, and the answer is legal.
func TestLaws(t *testing.T) {
	name := rapid.StringMatching(`[a-c]{1,4}(-[a-c]{1,4}){0,2}`)
	rapid.Check(t, func(t *rapid.T) {
		legal := rapid.SliceOfN(name, 1, 8).Draw(t, "legal")
		itself := rapid.SampledFrom(legal).Draw(t, "itself")
		if got, _ := spelling.Nearest(strings.ToUpper(itself), legal); got != itself {
			t.Errorf("nearest to %q itself is %q", itself, got)
		}
		written := name.Draw(t, "written")
		got, some := spelling.Nearest(written, legal)
		if some != slices.Contains(legal, got) {
			t.Errorf("nearest to %q of %q is %q (%v)", written, legal, got, some)
		}
		if again, _ := spelling.Nearest(written, rapid.Permutation(legal).Draw(t, "shuffled")); again != got {
			t.Errorf("nearest to %q of %q is %q, and in another order %q", written, legal, got, again)
		}
	})
}
