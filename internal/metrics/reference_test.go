package metrics

import (
	"io"
	"strings"
	"testing"
)

// A label without a meaning is an error that names it.
func TestReferenceWantsMeanings(t *testing.T) {
	strange := []Section{{Families: []Family{{Name: "x", Labels: []string{"whence"}}}}}
	if err := WriteReference(io.Discard, strange); err == nil || !strings.Contains(err.Error(), "whence") {
		t.Errorf("a label without a meaning: %v, want an error that names it", err)
	}
}
