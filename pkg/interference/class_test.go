package interference

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClassNames(t *testing.T) {
	names := ClassNames()
	if diff := cmp.Diff([]string{"unknown", "light", "training", "inference", "prefill", "decode"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	for i, name := range names {
		c, err := ClassByName(name)
		if err != nil || c != Class(i) || c.String() != name {
			t.Errorf("%s is class %d (%v), %v, want %d", name, c, c, err, i)
		}
	}
	names[0] = "spoiled"
	if got := ClassNames()[0]; got != "unknown" {
		t.Errorf("a caller changed the first name to %s", got)
	}
	if c, err := ClassByName("unknown"); c != ClassUnknown || err != nil {
		t.Errorf("the zero class is not the unknown one: %v, %v", c, err)
	}
}

// TestClassByNameRefuses: an error names what was asked for and all that is legal.
func TestClassByNameRefuses(t *testing.T) {
	for _, name := range []string{"", "Training", "training ", "inference-small-batch"} {
		c, err := ClassByName(name)
		if err == nil || c != ClassUnknown {
			t.Fatalf("%q is %v, %v", name, c, err)
		}
		for _, want := range append(ClassNames(), `"`+name+`"`) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %s", err, want)
			}
		}
	}
}

// TestClassThatIsNone: a number without a class is taken for unknown work, and says its number.
func TestClassThatIsNone(t *testing.T) {
	for _, c := range []Class{classes, 255} {
		if got := c.Curve(); got != ClassUnknown.Curve() {
			t.Errorf("%v has the curve %v", c, got)
		}
		if got := c.Speed(250); got != .25 {
			t.Errorf("%v has the speed %v on a quarter, want .25", c, got)
		}
	}
	for c, want := range map[Class]string{classes: "class(6)", 9: "class(9)"} {
		if got := c.String(); got != want {
			t.Errorf("%s is called %s", want, got)
		}
	}
}
