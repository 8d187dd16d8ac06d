package parking

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestIsStale(t *testing.T) {
	of := schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"none":          {nil, false},
		"another":       {errors.New("gone"), false},
		"not allowed":   {apierrors.NewForbidden(of, "nb", errors.New("no role")), false},
		"a failed test": {apierrors.NewInvalid(schema.GroupKind{Kind: "Scale"}, "nb", nil), true},
		"a conflict":    {fmt.Errorf("scale: %w", apierrors.NewConflict(of, "nb", errors.New("changed"))), true},
		"gone":          {fmt.Errorf("scale: %w", apierrors.NewNotFound(of, "nb")), true},
	} {
		if got := IsStale(test.err); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
