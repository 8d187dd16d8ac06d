package gpushare

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/flowcontrol"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/throttle"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/bubble"
	"github.com/tandem-gpu/tandem/test/must"
)

// lyingAPI is an API in memory that answers the n-th bind as told, and every bind after the last as the last.
type lyingAPI struct {
	*fake.Clientset
	// binds says for each bind whether it takes effect and what is answered.
	binds []answer
	// reads that fail before the first that works.
	brokenReads int
	posts       int
}

// bindTimeout of these tests passes by a bubble's clock.
const bindTimeout = 30 * time.Second

type answer struct {
	done bool
	err  error
}

func newLyingAPI(t *testing.T, p *v1.Pod, binds ...answer) *lyingAPI {
	t.Helper()
	api := &lyingAPI{Clientset: fake.NewClientset(p), binds: binds}
	truth := bindReactor(api.Clientset)
	api.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		now := api.binds[min(api.posts, len(api.binds)-1)]
		api.posts++
		if now.done {
			if _, object, err := truth(action); err != nil {
				return true, object, err
			}
		}
		return true, &v1.Binding{}, now.err
	})
	api.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if api.brokenReads > 0 {
			api.brokenReads--
			return true, nil, apierrors.NewInternalError(errors.New("injected"))
		}
		return false, nil, nil
	})
	return api
}

var (
	conflict    = apierrors.NewConflict(v1.Resource("pods/binding"), "a", errors.New("injected"))
	internal    = apierrors.NewInternalError(errors.New("injected"))
	tooMany     = apierrors.NewTooManyRequests("injected", 0)
	forbidden   = apierrors.NewForbidden(v1.Resource("pods/binding"), "a", errors.New("injected"))
	timedOut    = context.DeadlineExceeded
	serverAsked = apierrors.NewTimeoutError("injected", 0)
)

func TestBindBelievesThePodNotTheError(t *testing.T) {
	elsewhere := func(p *v1.Pod) { p.Spec.NodeName = "n2" }
	otherwise := func(p *v1.Pod) {
		p.Spec.NodeName = "n1"
		p.Annotations = map[string]string{v1alpha1.AnnotationAssignment: "{}"}
	}
	leaving := func(p *v1.Pod) {
		p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"tandem-gpu.io/test"}
	}
	cases := []struct {
		name   string
		answer []answer
		change func(*v1.Pod) // of the pod in the API
		broken int           // reads
		want   string        // part of the error, "" for success
		posts  int           // 0: any number
		held   bool          // the devices stay held
	}{
		{name: "success", answer: []answer{{true, nil}}, posts: 1},
		{name: "done, answered with 500", answer: []answer{{true, internal}}, posts: 1},
		{name: "done, answered with 409", answer: []answer{{true, conflict}}, posts: 1},
		{name: "done, answered with 429", answer: []answer{{true, tooMany}}, posts: 1},
		{name: "done, answered as a timeout", answer: []answer{{true, timedOut}}, posts: 1},
		{name: "done, and the first reads fail", answer: []answer{{true, internal}, {true, nil}}, broken: 2},
		{name: "not done, then done", answer: []answer{{false, internal}, {false, serverAsked}, {true, nil}}, posts: 3},
		{name: "conflict, then done", answer: []answer{{false, conflict}, {true, nil}}, posts: 2},
		{name: "forbidden", answer: []answer{{false, forbidden}}, want: "forbidden", posts: 1},
		{name: "forbidden after a doubt", answer: []answer{{false, timedOut}, {false, forbidden}}, want: errUnknown.Error(), held: true},
		{name: "500 without end", answer: []answer{{false, internal}}, want: errUnknown.Error(), held: true},
		{name: "429 without end", answer: []answer{{false, tooMany}}, want: "injected"},
		{name: "done, answered with 409, and no read works", answer: []answer{{true, conflict}, {false, conflict}}, broken: 1 << 20, want: errUnknown.Error(), held: true},
		{name: "429 without end, and the last read works", answer: []answer{{false, tooMany}}, broken: 2, want: "injected"},
		{name: "bound to another node", answer: []answer{{false, conflict}}, change: elsewhere, want: "bound to node n2", posts: 1},
		{name: "bound with another assignment", answer: []answer{{false, conflict}}, change: otherwise, want: "another assignment", posts: 1},
		{name: "replaced", answer: []answer{{false, conflict}}, change: func(p *v1.Pod) { p.UID = "new" }, want: "another pod has its name", posts: 1},
		{name: "gone", answer: []answer{{false, conflict}}, change: func(p *v1.Pod) { p.Name = "z" }, want: "the pod is gone", posts: 1},
		{name: "being deleted", answer: []answer{{false, conflict}}, change: leaving, want: "is being deleted", posts: 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // Bind's timeout and pauses pass by the bubble's clock
				p := pod("a", 6)
				inAPI := p.DeepCopy()
				if c.change != nil {
					c.change(inAPI)
				}
				api := newLyingAPI(t, inAPI, c.answer...)
				api.brokenReads = c.broken
				d := newDesk(t, gpuNode("n1", 1))
				d.plugin.requests = throttle.Unlimited(api)
				d.plugin.bindTimeout = bindTimeout
				must.OK(t, d.indexer.Add(p))

				cs := d.preFilter(p)
				d.reserve(cs, p, "n1")
				status := d.plugin.Bind(t.Context(), cs, p, "n1")
				if (c.want == "") != status.IsSuccess() || !strings.Contains(status.Message(), c.want) {
					t.Errorf("Bind = %v, want %q", status, c.want)
				}
				if c.posts != 0 && api.posts != c.posts {
					t.Errorf("Bind sent %d bindings, want %d", api.posts, c.posts)
				}
				if !status.IsSuccess() {
					d.unreserve(cs, p, "n1") // as the framework does
				}
				kept := d.plugin.state.kept()
				if held := kept["unresolved"] == 1; held != c.held {
					t.Errorf("devices kept: %v, want unresolved: %v", kept, c.held)
				}
			})
		})
	}
}

func TestBindSkipsPodsWithoutVGPUs(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	if status := d.plugin.Bind(t.Context(), nil, pod("plain", 0), "n1"); !status.IsSkip() {
		t.Errorf("Bind = %v, want Skip", status)
	}
	if status := d.plugin.Bind(t.Context(), nil, pod("a", 1), "n1"); status.IsSuccess() || status.IsSkip() {
		t.Errorf("Bind of a pod without a reservation = %v, want an error", status)
	}
}

// cacher is the path of the gate SchedulerAsyncAPICalls.
type cacher struct {
	fwk.APICacher
	client *lyingAPI
	calls  int
}

func (c *cacher) BindPod(b *v1.Binding) (<-chan error, error) {
	c.calls++
	finish := make(chan error, 1)
	finish <- c.client.CoreV1().Pods(b.Namespace).Bind(context.Background(), b, metav1.CreateOptions{})
	return finish, nil
}

func (c *cacher) WaitOnFinish(_ context.Context, finish <-chan error) error { return <-finish }

func TestBindGoesThroughTheAPICacher(t *testing.T) {
	p := pod("a", 6)
	api := newLyingAPI(t, p, answer{false, internal}, answer{true, nil})
	through := &cacher{client: api}
	d := newDesk(t, gpuNode("n1", 1))
	d.plugin.requests, d.plugin.handle.(*deskHandle).cacher = throttle.Unlimited(api), through
	d.plugin.bindTimeout = bubble.Patience
	cs := d.preFilter(p)
	d.reserve(cs, p, "n1")
	if status := d.plugin.Bind(t.Context(), cs, p, "n1"); !status.IsSuccess() || through.calls != 2 {
		t.Errorf("Bind = %v after %d calls, want success after 2", status, through.calls)
	}
}

// A bind that waits for the limit of the scheduler's requests takes as long as that takes: it is not in doubt, and its bindTimeout
// has not begun. The API server answers at once.
func TestBindWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, gpuNode("n1", 1))
		d.plugin.bindTimeout = time.Second
		first, second := pod("first", 4), pod("second", 4)
		api := newLyingAPI(t, first, answer{true, nil})
		must.OK(t, api.Tracker().Add(second))
		d.plugin.requests = throttle.Limited(api, flowcontrol.NewTokenBucketRateLimiter(0.1, 1)) // one in ten seconds
		start := time.Now()
		for _, p := range []*v1.Pod{first, second} {
			cs := d.preFilter(p)
			d.reserve(cs, p, "n1")
			if status := d.plugin.Bind(t.Context(), cs, p, "n1"); !status.IsSuccess() {
				t.Errorf("Bind of %s after %v = %v, want success", p.Name, time.Since(start), status)
			}
		}
		if got := time.Since(start).Round(time.Millisecond); got != 10*time.Second {
			t.Errorf("two binds took %v, want 10 s", got)
		}
	})
}

// A bind whose turn does not come was not sent, and so is not in doubt.
func TestBindThatIsNotSent(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	d.plugin.bindTimeout = bubble.Patience
	p := pod("a", 4)
	api := newLyingAPI(t, p, answer{true, nil})
	limit := flowcontrol.NewTokenBucketRateLimiter(1e-6, 1)
	limit.Accept() // the only one for days
	d.plugin.requests = throttle.Limited(api, limit)
	cs := d.preFilter(p)
	d.reserve(cs, p, "n1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // the limiter sees at once that it would not come
	defer cancel()
	status := d.plugin.Bind(ctx, cs, p, "n1")
	if status.IsSuccess() || !strings.Contains(status.Message(), "was not sent") || api.posts != 0 {
		t.Errorf("Bind = %v after %d requests, want an error which says that nothing was sent", status, api.posts)
	}
	d.unreserve(cs, p, "n1")
	if got := d.plugin.UnresolvedBinds(); got != 0 {
		t.Errorf("%d binds are in doubt, want none", got)
	}
}

// A change that the informer showed between Bind's last look at the pod and the room kept for it is not lost.
func TestUnknownBindLooksAtTheInformerAgain(t *testing.T) {
	for name, want := range map[string]int64{"landed": 0, "gone": 0, "waiting": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pod("a", 6)
				d := newDesk(t, gpuNode("n1", 1))
				d.plugin.requests = throttle.Unlimited(newLyingAPI(t, p.DeepCopy(), answer{false, internal}))
				d.plugin.bindTimeout = bindTimeout
				cs := d.preFilter(p)
				d.reserve(cs, p, "n1")
				a, _ := d.plugin.state.reservation(kube.UIDOf(p), "n1")
				seen := map[string]*v1.Pod{"landed": bound(t, p, a), "waiting": p}[name]
				if seen != nil {
					must.OK(t, d.indexer.Add(seen))
				}
				if status := d.plugin.Bind(t.Context(), cs, p, "n1"); status.IsSuccess() {
					t.Fatal("Bind succeeded")
				}
				d.unreserve(cs, p, "n1")
				if name == "landed" {
					d.add(seen, "n1")
				}
				d.preFilter(pod("other", 1))
				if got := d.plugin.state.kept()["unresolved"]; got != want {
					t.Errorf("%d unresolved binds keep room, want %d", got, want)
				}
			})
		})
	}
}

// The informer shows the pod as bound before Bind has its answer. Bind succeeds, and nothing stays reserved.
func TestBindThatTheInformerShowedBeforeReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pod("a", 6)
		d := newDesk(t, gpuNode("n1", 1))
		api := newLyingAPI(t, p.DeepCopy(), answer{true, timedOut})
		d.plugin.requests = throttle.Unlimited(api)
		d.plugin.bindTimeout = bindTimeout
		cs := d.preFilter(p)
		d.reserve(cs, p, "n1")
		a, _ := d.plugin.state.reservation(kube.UIDOf(p), "n1")
		must.OK(t, d.indexer.Add(bound(t, p, a)))
		if status := d.plugin.Bind(t.Context(), cs, p, "n1"); !status.IsSuccess() {
			t.Fatalf("Bind = %v, want success", status)
		}
		if got := d.plugin.state.kept()["reserved"]; got != 0 {
			t.Errorf("%d pods are reserved, want none", got)
		}
	})
}
