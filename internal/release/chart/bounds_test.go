package chart

import (
	"reflect"
	"slices"
	"testing"

	agent "github.com/tandem-gpu/tandem/internal/agent/config"
)

// The ends of numbers and the words are those that the programs take.
func TestBounds(t *testing.T) {
	properties := func(s schema, name string) schema { return s["properties"].(schema)[name].(schema) }
	slots := properties(properties(bounded(reflect.TypeFor[agent.Config](), asksAgent), "slots"), "default")
	if slots["minimum"] != int64(1) || slots["maximum"] != int64(1000) {
		t.Errorf("slots.default: %v, want from 1 to 1000", slots)
	}
	share := properties(arguments(), "GPUShare")
	if seed := properties(share, "seed"); seed["minimum"] != nil || seed["maximum"] != nil {
		t.Errorf("seed: %v, want no bounds", seed)
	}
	if words, _ := properties(share, "sharing")["enum"].([]any); !slices.Equal(words, []any{"Always", "WhenScarce"}) {
		t.Errorf("sharing: %v, want Always and WhenScarce", words)
	}
}
