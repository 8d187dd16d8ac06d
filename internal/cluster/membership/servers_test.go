package membership

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

func wishIn(rate, servers string) map[string]string {
	all := map[string]string{}
	if rate != "-" {
		all[v1alpha1.AnnotationElasticRate] = rate
	}
	if servers != "-" {
		all[v1alpha1.AnnotationElasticServers] = servers
	}
	return all
}

func TestWishOf(t *testing.T) {
	for _, tc := range []struct {
		rate, servers string
		want          *Wish
	}{
		{"-", "-", nil},
		{"500", "-", &Wish{Rate: 500}},
		{"0.000001", "-", &Wish{Rate: .000001}},
		{"500", "statefulset/ps 1-4", &Wish{Rate: 500, Servers: &Servers{"StatefulSet", "ps", []int{1, 2, 3, 4}}}},
		{"500", "deployment/ps.v2 1,2,256", &Wish{Rate: 500, Servers: &Servers{"Deployment", "ps.v2", []int{1, 2, 256}}}},
		{"500", "statefulset/ps 2", &Wish{Rate: 500, Servers: &Servers{"StatefulSet", "ps", []int{2}}}},
	} {
		got, err := WishOf(wishIn(tc.rate, tc.servers))
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s, %s: %v %s", tc.rate, tc.servers, err, diff)
		}
	}
}

func TestWishOfRefuses(t *testing.T) {
	const rate, servers = v1alpha1.AnnotationElasticRate, v1alpha1.AnnotationElasticServers
	for _, tc := range []struct{ rate, servers, field, says string }{
		{"", "-", rate, "decimal above 0"}, {"0", "-", rate, "decimal above 0"}, {"-1", "-", rate, "decimal above 0"},
		{"5k", "-", rate, "decimal above 0"}, {"NaN", "-", rate, "decimal above 0"}, {"1000000000001", "-", rate, "decimal above 0"},
		{"-", "statefulset/ps 1-4", servers, "states a rate"},
		{"500", "", servers, "statefulset/NAME"}, {"500", "ps 1-4", servers, "statefulset/NAME"}, {"500", "statefulset/ps", servers, "statefulset/NAME"},
		{"500", "StatefulSet/ps 1-4", servers, "statefulset/NAME"}, {"500", "job/ps 1-4", servers, "statefulset/NAME"}, {"500", "statefulset/ 1-4", servers, "statefulset/NAME"},
		{"500", "statefulset/a/b 1-4", servers, "statefulset/NAME"}, {"500", "statefulset/ps 0-4", servers, "statefulset/NAME"},
		{"500", "statefulset/ps 1-257", servers, "statefulset/NAME"}, {"500", "statefulset/ps 4,2", servers, "statefulset/NAME"},
	} {
		_, err := WishOf(wishIn(tc.rate, tc.servers))
		var f *kube.FieldError
		if !errors.As(err, &f) || f.Field != kube.AnnotationPath(tc.field) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%q, %q: %v, want %s and %q", tc.rate, tc.servers, err, tc.field, tc.says)
		}
	}
}
