package membership

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/api/config"
)

func TestTopology(t *testing.T) {
	const (
		required  = "tandem-gpu.io/required-topology"
		preferred = "tandem-gpu.io/preferred-topology"
		zone      = "topology.kubernetes.io/zone"
		host      = "kubernetes.io/hostname"
		legal     = "it must be a list of up to 8 keys of node labels or nvlink, each once, separated by commas, for example topology.kubernetes.io/zone,kubernetes.io/hostname" +
			"; correct the annotation and the pod is tried again"
		again = "; correct the annotation and the pod is tried again"
	)
	tests := []struct {
		name                string
		required, preferred *string
		declared            []string
		all, wished         []string
		err                 string
	}{
		{name: "none"},
		{name: "declared elsewhere", declared: []string{"rack"}, all: []string{"rack"}},
		{name: "both, with blanks", required: new(zone), preferred: new(" example.com/rack , nvlink"), all: []string{zone}, wished: []string{"example.com/rack", "nvlink"}},
		{name: "declared and required: each once, the declared first", declared: []string{"rack"}, required: new(zone + ",rack"), all: []string{"rack", zone}},
		{name: "eight", preferred: new("a,b,c,d,e,f,g,h"), wished: strings.Split("abcdefgh", "")},
		{name: "nvlink within a required host", required: new(host), preferred: new("nvlink"), all: []string{host}, wished: []string{"nvlink"}},
		{name: "a wider level is required", required: new(zone), preferred: new(host), all: []string{zone}, wished: []string{host}},
		{name: "nine", preferred: new("a,b,c,d,e,f,g,h,i"), err: preferred + `]: "a,b,c,d,e,f,g,h,i" is not legal, ` + legal},
		{name: "empty", required: new(""), err: required + `]: it is empty, ` + legal},
		{name: "an empty part", required: new("a,,b"), err: required + `]: "a,,b" is not legal, ` + legal},
		{name: "a comma at the end", preferred: new("a,"), err: preferred + `]: "a," is not legal, ` + legal},
		{name: "no key", required: new("rack=3"), err: required + `]: "rack=3" is not legal, ` + legal},
		{name: "twice", required: new("a, b,a"), err: required + `]: "a, b,a" is not legal, ` + legal},
		{
			name: "required and preferred", required: new("a,b"), preferred: new("c,b"),
			err: preferred + `]: "c,b" is not legal, it must not list b: the level is required` + again,
		},
		{
			name: "declared elsewhere and preferred", declared: []string{"b"}, preferred: new("b"),
			err: preferred + `]: "b" is not legal, it must not list b: the level is required` + again,
		},
		{
			name: "nvlink required", required: new("nvlink"), preferred: new(host),
			err: preferred + `]: "kubernetes.io/hostname" is not legal, it must not list kubernetes.io/hostname: nvlink is required, and nothing is closer` + again,
		},
		{
			name: "a host required", required: new(host), preferred: new("nvlink," + zone),
			err: preferred + `]: "nvlink,topology.kubernetes.io/zone" is not legal, it must not list topology.kubernetes.io/zone: ` +
				`kubernetes.io/hostname is required, and only nvlink is closer` + again,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			annotations := map[string]string{}
			if test.required != nil {
				annotations[required] = *test.required
			}
			if test.preferred != nil {
				annotations[preferred] = *test.preferred
			}
			declared := slices.Grow(test.declared, 8)
			all, wished, err := Topology(annotations, declared...)
			if len(test.declared) == 0 && len(all) == 0 {
				all = nil
			}
			if test.err != "" {
				if err == nil || err.Error() != "metadata.annotations["+test.err {
					t.Fatalf("got  %v\nwant metadata.annotations[%s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([][]string{test.all, test.wished}, [][]string{all, wished}); diff != "" {
				t.Errorf("required and preferred (-want +got):\n%s", diff)
			}
			if written := declared[:len(declared)+1]; !slices.Equal(declared, test.declared) || written[len(declared)] != "" {
				t.Errorf("the declared levels were changed to %q", written)
			}
		})
	}
}

func FuzzTopology(f *testing.F) {
	f.Add("topology.kubernetes.io/zone", "kubernetes.io/hostname, nvlink")
	f.Add("nvlink", "")
	f.Add("a,a", ",")
	f.Add("kubernetes.io/hostname", "nvlink")
	f.Fuzz(func(t *testing.T, required, preferred string) {
		all, wished, err := Topology(map[string]string{
			"tandem-gpu.io/required-topology": required, "tandem-gpu.io/preferred-topology": preferred,
		})
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, key := range append(slices.Clone(all), wished...) {
			if !config.IsLevel(key) || seen[key] {
				t.Fatalf("%q and %q give %q", required, preferred, key)
			}
			seen[key] = true
		}
		if len(all) > config.MaxLevels || len(wished) > config.MaxLevels || len(all) == 0 || len(wished) == 0 {
			t.Fatalf("%q and %q give %d and %d levels", required, preferred, len(all), len(wished))
		}
	})
}
