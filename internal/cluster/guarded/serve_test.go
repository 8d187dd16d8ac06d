package guarded

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/tandem-gpu/tandem/test/must"
)

// Flags that were given count, lists and maps too; flags of other names and those that were not given do not.
func TestCopyFlags(t *testing.T) {
	from, to := pflag.NewFlagSet("from", pflag.ContinueOnError), pflag.NewFlagSet("to", pflag.ContinueOnError)
	from.String("name", "default", "")
	from.Bool("only-here", false, "")
	from.StringSlice("list", nil, "")
	from.StringToString("map", nil, "")
	from.Int("left", 1, "")
	name, list := to.String("name", "", ""), to.StringSlice("list", []string{"default"}, "")
	pairs, left := to.StringToString("map", nil, ""), to.Int("left", 2, "")
	must.OK(t, from.Parse([]string{"--name=n", "--only-here", "--list=a,b", "--list=c", "--map=k=v,l=w"}))
	must.OK(t, copyFlags(from, to))
	if diff := cmp.Diff([]string{"a", "b", "c"}, *list) + cmp.Diff(map[string]string{"k": "v", "l": "w"}, *pairs); diff != "" {
		t.Error(diff)
	}
	if *name != "n" || *left != 2 {
		t.Errorf("name %q and left %d, want n and 2", *name, *left)
	}
}
