package passes

import (
	"strings"
	"testing"
)

// The only thing of a namespace does not wait for all of another one.
func TestInTurn(t *testing.T) {
	got := InTurn(strings.Fields("many/a many/b many/c few/x some/p some/q"), func(name string) string {
		namespace, _, _ := strings.Cut(name, "/")
		return namespace
	})
	if want := "many/a few/x some/p many/b some/q many/c"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", got, want)
	}
}
