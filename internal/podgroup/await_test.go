package podgroup

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	k8stesting "k8s.io/client-go/testing"
)

// apis is an API server with the resources of a test; it fails while err is set.
type apis struct {
	mu     sync.Mutex
	served []*metav1.APIResourceList
	err    error
	asked  int
}

func (a *apis) set(err error, versions ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err, a.served = err, nil
	for _, version := range versions {
		name, resource, _ := strings.Cut(version, " ")
		a.served = append(a.served, &metav1.APIResourceList{GroupVersion: name, APIResources: []metav1.APIResource{{Name: "others"}, {Name: resource}}})
	}
}

func (a *apis) client() discovery.DiscoveryInterface {
	fake := &fakediscovery.FakeDiscovery{Fake: &k8stesting.Fake{}}
	fake.PrependReactor("*", "*", func(k8stesting.Action) (bool, runtime.Object, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked++
		fake.Resources = a.served
		return a.err != nil, nil, a.err
	})
	return fake
}

const (
	nativeAPI = "scheduling.k8s.io/v1beta1 podgroups"
	xk8sAPI   = "scheduling.x-k8s.io/v1alpha1 podgroups"
)

func TestDiscover(t *testing.T) {
	tests := []struct {
		name   string
		served []string
		want   Served
	}{
		{"nothing", nil, Served{}},
		{"another version", []string{"scheduling.k8s.io/v1 priorityclasses", "scheduling.k8s.io/v1alpha3 podgroups"}, Served{}},
		{"another resource", []string{"scheduling.k8s.io/v1beta1 workloads", "scheduling.x-k8s.io/v1alpha1 elasticquotas"}, Served{}},
		{"Kubernetes' own", []string{nativeAPI}, Served{Native: true}},
		{"the scheduler plugins'", []string{xk8sAPI}, Served{XK8s: true}},
		{"both", []string{nativeAPI, xk8sAPI}, both},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a := &apis{}
			a.set(nil, test.served...)
			got, err := Discover(t.Context(), a.client())
			if err != nil || got != test.want {
				t.Errorf("%+v, %v; want %+v", got, err, test.want)
			}
		})
	}
	a := &apis{}
	a.set(errors.New("connection refused"))
	if _, err := Discover(t.Context(), a.client()); err == nil || err.Error() != "discover podgroups of scheduling.k8s.io/v1beta1: connection refused" {
		t.Errorf("error %v", err)
	}
}

func TestAwait(t *testing.T) {
	patience := Patience{Within: time.Minute, First: time.Second, Most: 10 * time.Second}
	t.Run("answers in the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, began := &apis{}, time.Now()
			a.set(errors.New("connection refused"))
			var pauses []time.Duration
			p := patience
			p.Note = func(err error, pause time.Duration) {
				if pauses = append(pauses, pause); len(pauses) == 6 {
					a.set(nil, xk8sAPI)
				}
			}
			got, err := Await(t.Context(), a.client(), p)
			if err != nil || got != (Served{XK8s: true}) {
				t.Errorf("%+v, %v", got, err)
			}
			want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second}
			if diff := cmp.Diff(want, pauses); diff != "" || time.Since(began) != 35*time.Second {
				t.Errorf("it took %v; pauses (-want +got):\n%s", time.Since(began), diff)
			}
		})
	})
	t.Run("never answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, began := &apis{}, time.Now()
			a.set(errors.New("connection refused"))
			var last time.Duration
			p := patience
			p.Note = func(_ error, pause time.Duration) { last = pause }
			_, err := Await(t.Context(), a.client(), p)
			// After 0, 1, 3, 7, 15, 25, 35, 45 and 55 s; the next would be after 65.
			const want = "ask the API server 9 times within 1m0s: discover podgroups of scheduling.k8s.io/v1beta1: connection refused"
			if err == nil || err.Error() != want || time.Since(began) != 55*time.Second || last != 0 {
				t.Errorf("after %v, last pause %v: %v", time.Since(began), last, err)
			}
		})
	})
	t.Run("is told to end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, began := &apis{}, time.Now()
			a.set(errors.New("connection refused"))
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			if _, err := Await(ctx, a.client(), patience); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 4*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	})
}

func TestAppeared(t *testing.T) {
	tests := []struct {
		name   string
		before Served
		// after are what is served from the third question on, which is after 90 to 108 s.
		after []string
		err   error
		want  Served
		// never: nothing appears that was absent.
		never bool
	}{
		{name: "Kubernetes' own appears", after: []string{nativeAPI}, want: Served{Native: true}},
		{name: "the scheduler plugins' appears", before: Served{Native: true}, after: []string{nativeAPI, xk8sAPI}, want: both},
		{name: "one goes and one comes", before: Served{Native: true}, after: []string{xk8sAPI}, want: Served{XK8s: true}},
		{name: "nothing appears", before: Served{XK8s: true}, after: []string{xk8sAPI}, never: true},
		{name: "one goes", before: Served{XK8s: true}, never: true},
		{name: "the server does not answer", err: errors.New("connection refused"), after: []string{nativeAPI}, never: true},
		{name: "nothing is absent", before: both, after: []string{nativeAPI, xk8sAPI}, never: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, began := &apis{}, time.Now()
				if test.before.Native {
					a.set(nil, nativeAPI)
				}
				time.AfterFunc(75*time.Second, func() { a.set(test.err, test.after...) })
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				got, ok := Appeared(ctx, a.client(), test.before, 30*time.Second)
				took := time.Since(began)
				switch {
				case got != test.want || ok == test.never:
					t.Errorf("%+v, %v", got, ok)
				case ok && (took < 90*time.Second || took > 108*time.Second):
					t.Errorf("seen after %v", took)
				case !ok && took != time.Hour:
					t.Errorf("it ended after %v", took)
				case test.before == both && a.asked > 0:
					t.Errorf("it asked %d times for what it has", a.asked)
				}
			})
		})
	}
}
