package served

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
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	// then is called before each answer with its number; nil for nothing.
	then func(asked int)
}

func (a *apis) set(err error, versions ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err, a.served = err, listed(versions...)
}

// listed returns the answers of a server with resources, each given as "group/version resource".
func listed(versions ...string) (lists []*metav1.APIResourceList) {
	for _, version := range versions {
		name, resource, _ := strings.Cut(version, " ")
		lists = append(lists, &metav1.APIResourceList{GroupVersion: name, APIResources: []metav1.APIResource{{Name: "others"}, {Name: resource}}})
	}
	return lists
}

func (a *apis) client() discovery.DiscoveryInterface {
	fake := &fakediscovery.FakeDiscovery{Fake: &k8stesting.Fake{}}
	fake.PrependReactor("*", "*", func(k8stesting.Action) (bool, runtime.Object, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked++
		if a.then != nil {
			a.then(a.asked)
		}
		fake.Resources = a.served
		return a.err != nil, nil, a.err
	})
	return fake
}

const (
	betaAPI = "scheduling.k8s.io/v1beta1 podgroups"
	xk8sAPI = "scheduling.x-k8s.io/v1alpha1 podgroups"
)

var (
	beta = schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1beta1", Resource: "podgroups"}
	xk8s = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}
)

func TestAsk(t *testing.T) {
	workloads := beta.GroupVersion().WithResource("workloads")
	tests := []struct {
		name   string
		served []string
		want   Set
	}{
		{"nothing", nil, Set{beta: false, workloads: false, xk8s: false}},
		{"another version", []string{"scheduling.k8s.io/v1 priorityclasses", "scheduling.k8s.io/v1alpha3 podgroups"}, Set{beta: false, workloads: false, xk8s: false}},
		{"another resource", []string{"scheduling.k8s.io/v1beta1 workloads"}, Set{beta: false, workloads: true, xk8s: false}},
		{"two", []string{betaAPI, xk8sAPI}, Set{beta: true, workloads: false, xk8s: true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a := &apis{}
			a.set(nil, test.served...)
			got, err := Ask(t.Context(), a.client(), beta, workloads, xk8s)
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if a.asked != 2 {
				t.Errorf("%d questions for two versions", a.asked)
			}
		})
	}
	a := &apis{}
	a.set(errors.New("connection refused"))
	if _, err := Ask(t.Context(), a.client(), beta); err == nil || err.Error() != "discover podgroups of scheduling.k8s.io/v1beta1: connection refused" {
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
			got, err := Await(t.Context(), a.client(), p, beta, xk8s)
			if diff := cmp.Diff(Set{beta: false, xk8s: true}, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
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
			_, err := Await(t.Context(), a.client(), p, beta, xk8s)
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
			if _, err := Await(ctx, a.client(), patience, beta); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 4*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	})
}

func TestChanged(t *testing.T) {
	none, both := Set{beta: false, xk8s: false}, Set{beta: true, xk8s: true}
	const pause = 30 * time.Second
	tests := []struct {
		name   string
		before Set
		// after are what is served from the third question on, for so many questions, 0 for ever; then it is again as before.
		after []string
		looks int
		err   error
		want  Set
		// seen is the question that notices, 0 for none.
		seen int
	}{
		{name: "one appears", before: none, after: []string{betaAPI}, want: Set{beta: true, xk8s: false}, seen: 3},
		{name: "another appears", before: Set{beta: true, xk8s: false}, after: []string{betaAPI, xk8sAPI}, want: both, seen: 3},
		{name: "one goes and one comes", before: Set{beta: true, xk8s: false}, after: []string{xk8sAPI}, want: Set{beta: false, xk8s: true}, seen: 3},
		{name: "nothing changes", before: Set{beta: false, xk8s: true}, after: []string{xk8sAPI}},
		{name: "one goes", before: both, after: []string{betaAPI}, want: Set{beta: true, xk8s: false}, seen: 6},
		{name: "one goes for three questions", before: both, after: []string{betaAPI}, looks: 3},
		{name: "the server does not answer", before: none, err: errors.New("connection refused"), after: []string{betaAPI}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var before []string
				for resource, api := range map[schema.GroupVersionResource]string{beta: betaAPI, xk8s: xk8sAPI} {
					if test.before[resource] {
						before = append(before, api)
					}
				}
				a := &apis{}
				a.set(nil, before...)
				a.then = func(asked int) {
					switch {
					case test.looks > 0 && asked >= 2*(3+test.looks)-1:
						a.served, a.err = listed(before...), nil
					case asked >= 2*3-1: // two versions, so two requests a question
						a.served, a.err = listed(test.after...), test.err
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				got, ok := Changed(ctx, a.client(), test.before, pause)
				took := time.Since(began)
				looks := time.Duration(test.seen)
				switch {
				case ok != (test.seen > 0):
					t.Errorf("%+v, %v", got, ok)
				case !ok && took != time.Hour:
					t.Errorf("it ended after %v", took)
				case ok && (took < looks*pause || took > looks*pause*6/5):
					t.Errorf("seen after %v, want at question %d", took, test.seen)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}
