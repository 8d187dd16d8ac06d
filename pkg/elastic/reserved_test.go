package elastic

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReservedFor(t *testing.T) {
	for _, tc := range []struct {
		name  string
		needs []Need
		want  []Reserved
	}{
		{"nothing", nil, nil},
		{"as many as now", []Need{{2, 100}}, nil},
		{"more and more", []Need{{4, 100}, {5, 200}}, []Reserved{{Model: "A100", Amount: 1000, From: 100}, {Model: "A100", Amount: 500, From: 200}}},
		{"in another order", []Need{{5, 200}, {4, 100}}, []Reserved{{Model: "A100", Amount: 1000, From: 100}, {Model: "A100", Amount: 500, From: 200}}},
		{"fewer later", []Need{{4, 100}, {3, 200}}, []Reserved{{Model: "A100", Amount: 1000, From: 100}}},
		{"two at a time", []Need{{5, 100}, {3, 100}}, []Reserved{{Model: "A100", Amount: 500, From: 100}, {Model: "A100", Amount: 1000, From: 100}}},
	} {
		if diff := cmp.Diff(tc.want, ReservedFor("A100", 500, 2, tc.needs)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
