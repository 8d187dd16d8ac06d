package main

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	fakedynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// refusing is a cluster whose API server refuses, or does not answer, lists of DeviceTaintRules while err is set.
type refusing struct {
	client  *fake.Clientset
	objects *fakedynamic.FakeDynamicClient

	mu    sync.Mutex
	err   error
	lists int
}

// refusal returns how the API server answers, nil where it does what it is asked.
func (r *refusing) refusal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// serve ends the refusals.
func (r *refusing) serve() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = nil
}

// asked returns how often it was asked for objects.
func (r *refusing) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lists
}

func newRefusing(err error) *refusing {
	r := &refusing{client: fake.NewClientset(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}), err: err}
	kinds := map[schema.GroupVersionResource]string{asked()[len(asked())-1]: "DeviceTaintRuleList"}
	r.objects = fakedynamic.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	refuse := func(k8stesting.Action) (bool, runtime.Object, error) {
		err := r.refusal()
		return err != nil, nil, err
	}
	r.client.PrependReactor("list", "devicetaintrules", refuse)
	r.client.PrependWatchReactor("devicetaintrules", func(k8stesting.Action) (bool, watch.Interface, error) {
		err := r.refusal()
		return err != nil, nil, err
	})
	r.objects.PrependReactor("list", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		r.lists++
		r.mu.Unlock()
		return refuse(a)
	})
	return r
}

// The scheduler ends when the API server has refused a resource for the bound, with its name and the reason; it waits on where the
// API server does not answer or allows it in time.
func TestCaches(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	// The default handlers compare the clock with the time of their last error. Each bubble has a clock of its own, so they would
	// sleep for as long as the bubble before had lasted.
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	resource := schema.GroupResource{Group: "resource.k8s.io", Resource: "devicetaintrules"}
	const ends = "the scheduler waited 2m0s for devicetaintrules of resource.k8s.io/v1: "
	tests := []struct {
		name string
		err  error
		// after is when the API server takes to answering, 0 for never.
		after time.Duration
		// want is how the scheduler ends, "" where it goes on; asked says how often the API server was asked why.
		want string
	}{
		{name: "served"},
		{
			name: "not served", err: apierrors.NewNotFound(resource, ""),
			want: ends + "the API server does not serve them: serve them, or switch off the feature gate of this scheduler that reads them",
		},
		{name: "forbidden", err: apierrors.NewForbidden(resource, "", errors.New("no role")), want: ends + "devicetaintrules.resource.k8s.io is forbidden: no role"},
		{name: "forbidden for a while", err: apierrors.NewForbidden(resource, "", errors.New("no role")), after: 90 * time.Second},
		{name: "no answer", err: errors.New("connection refused")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, said := newRefusing(test.err), ""
				ctx, cancel := context.WithCancel(t.Context())
				factory := informers.NewSharedInformerFactory(r.client, 0)
				factory.Core().V1().Pods().Informer()
				factory.Resource().V1().DeviceTaintRules().Informer()
				c, began, ended := newCaches(func(err error) { said = err.Error() }), time.Now(), time.Duration(0)
				go func() {
					c.run(ctx, factory, r.objects)
					ended = time.Since(began)
				}()
				time.Sleep(time.Minute) // nothing is said while the informers are not started
				synctest.Wait()
				if asked := r.asked(); asked > 0 {
					t.Errorf("asked %d times before the informers were started", asked)
				}
				began = time.Now()
				factory.Start(ctx.Done())
				if test.after > 0 {
					time.AfterFunc(test.after, r.serve)
				}
				time.Sleep(9 * time.Second)
				synctest.Wait()
				if asked := r.asked(); (asked > 0) != (test.err != nil) {
					t.Errorf("asked %d times why in nine seconds", asked)
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if !strings.HasPrefix(said, test.want) || test.want == "" && said != "" {
					t.Errorf("it ended with %q, want %q", said, test.want)
				}
				waits := test.err != nil && test.after == 0 && test.want == ""
				if (ended == 0) != waits {
					t.Errorf("it watched for %v", ended)
				}
				cancel()
				synctest.Wait()
				factory.Shutdown()
			})
		})
	}
}

// The process says what it waits for, and ends with the reason where the API server goes on to refuse it.
func TestSaysWhatItWaitsFor(t *testing.T) {
	server := newAPIServer(t, rules) // and refuses every list
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := scheduler(ctx, t, server.URL, profile, "--leader-elect=false")
	cmd.Env = append(cmd.Env, waitsFor+"=1s")
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("the scheduler did not end:\n%s", output)
	}
	if err == nil {
		t.Errorf("it ended with success:\n%s", output)
	}
	for _, want := range []string{
		`"Waiting for the objects of a resource before any pod is scheduled" resource="devicetaintrules" version="resource.k8s.io/v1" why="the API server does not serve them`,
		"Ending: the scheduler cannot go on",
	} {
		if !strings.Contains(string(output), want) {
			t.Errorf("the output has no %q:\n%s", want, output)
		}
	}
	// Between two looks a busy machine may take longer than the bound.
	if waited := regexp.MustCompile(`the scheduler waited [1-9][0-9ms]* for `); !waited.Match(output) {
		t.Errorf("the output has no %q:\n%s", waited, output)
	}
}
