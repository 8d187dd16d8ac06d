package fleets

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// The only fleet of a namespace does not wait for all fleets of another one.
func TestFleetsTakeTurns(t *testing.T) {
	var fleets []*v1alpha1.InferenceFleet
	for _, name := range []string{"many/a", "many/b", "many/c", "few/x", "some/p", "some/q"} {
		namespace, name, _ := strings.Cut(name, "/")
		fleets = append(fleets, &v1alpha1.InferenceFleet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	got := ""
	for _, f := range inTurn(fleets) {
		got += nameOf(f) + " "
	}
	if want := "many/a few/x some/p many/b some/q many/c "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
