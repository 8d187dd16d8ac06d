package gpushare

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/test/fakeapi"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakecluster"
)

// The CRD may be installed after the scheduler: it starts, says what is missing, and goes on when it is there.
func TestCRDAbsentAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fakeapi.NewClientset()
		client.PrependReactor("create", "pods", bindReactor(client))
		objects := fakecluster.NewDynamic()
		var installed atomic.Bool
		absent := func(clienttesting.Action) (bool, runtime.Object, error) {
			if installed.Load() {
				return false, nil, nil
			}
			return true, nil, apierrors.NewGenericServerResponse(404, "list", v1alpha1.GPUNodes.GroupResource(), "", "the server could not find the requested resource", 0, true)
		}
		objects.PrependReactor("list", "*", absent)
		c := &cluster{t: t, client: client, dynamic: objects}
		c.createNode("n1")
		c.start()
		c.createPod(pod("a", 3))
		c.createPod(pod("plain", 0))
		c.await("plain", "it is bound", isBound)
		c.awaitPending("a", "GPUNodes")
		installed.Store(true)
		c.applyGPUNode(gpuNode("n1", 1))
		if got := c.awaitBound("a"); got != "n1/GPU-n1-0" {
			t.Errorf("a is on %s", got)
		}
	})
}

// starting is the part of a framework handle that the plugin's start uses.
type starting struct {
	fwk.Handle
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
}

func (s *starting) ClientSet() kubernetes.Interface                        { return s.client }
func (s *starting) SharedInformerFactory() informers.SharedInformerFactory { return s.factory }
func (s *starting) Activate(klog.Logger, map[string]*v1.Pod)               {}

// silent is a client whose lists are answered once it is released.
type silent struct {
	dynamic.Interface
	release <-chan struct{}
}

func (s *silent) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return &silentResource{s.Interface.Resource(r), s.release}
}

// IsWatchListSemanticsUnSupported says that there are no lists by watches, as the client in memory does.
func (s *silent) IsWatchListSemanticsUnSupported() bool { return true }

type silentResource struct {
	dynamic.NamespaceableResourceInterface
	release <-chan struct{}
}

func (s *silentResource) Namespace(string) dynamic.ResourceInterface { return s }

func (s *silentResource) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	select {
	case <-s.release:
		return s.NamespaceableResourceInterface.List(ctx, o)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// The start waits for the first answers of the API server, so that no pod meets a warning which means nothing; an answer that
// something cannot be read is one. A server that does not answer is waited for, for a while.
func TestStartWaitsForTheFirstAnswers(t *testing.T) {
	notFound := apierrors.NewNotFound(v1alpha1.WorkloadProfiles.GroupResource(), "")
	cases := []struct {
		name   string
		answer bool
		err    error // of the question for WorkloadProfiles
		want   string
	}{
		{name: "read", answer: true},
		{name: "no WorkloadProfiles", answer: true, err: notFound},
		{name: "no answer", want: "the GPUNodes are not read yet"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := fakecluster.NewDynamic()
				release, made := make(chan struct{}), make(chan *Plugin, 1)
				objects.PrependReactor("list", "workloadprofiles", func(clienttesting.Action) (bool, runtime.Object, error) {
					return c.err != nil, nil, c.err
				})
				client := fake.NewClientset()
				handle := &starting{client: client, factory: informers.NewSharedInformerFactory(client, 0)}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					p, err := NewWithClient(ctx, arguments(), handle, &silent{objects, release})
					if err != nil {
						t.Error(err)
					}
					made <- p
				}()
				synctest.Wait()
				select {
				case <-made:
					t.Fatal("the start did not wait for the first answers")
				default:
				}
				if c.answer {
					close(release)
				}
				p := <-made
				expect(t, "what is not read", p.unread(), c.want)
			})
		})
	}
}

func TestUnreadSaysWhatIsMissing(t *testing.T) {
	d := newDesk(t)
	d.plugin.state = newState(d.plugin.state.pods, d.plugin.metrics, d.plugin.state.learner)
	p := pod("a", 1)
	refused := func() string {
		_, status := d.plugin.PreFilter(t.Context(), nil, p, nil)
		return status.Message()
	}
	expect(t, "before the first answer", refused(), "the GPUNodes are not read yet")
	d.plugin.noteUnread(apierrors.NewNotFound(v1alpha1.GPUNodes.GroupResource(), ""))
	if got := refused(); !strings.Contains(got, "CustomResourceDefinition gpunodes.tandem-gpu.io is not installed") {
		t.Errorf("PreFilter says %q", got)
	}
	d.plugin.noteUnread(apierrors.NewForbidden(v1alpha1.GPUNodes.GroupResource(), "", nil))
	if got := refused(); !strings.Contains(got, "forbidden") {
		t.Errorf("PreFilter says %q", got)
	}
}

func TestNewValidatesItsArguments(t *testing.T) {
	for want, args := range map[string]runtime.Object{
		"arguments of type <nil>": nil,
		`pluginConfig[GPUShare].args.policy: Unsupported value: "best"`: &config.GPUShareArgs{
			Policy: "best", BindTimeout: metav1.Duration{Duration: time.Minute},
		},
		"pluginConfig[GPUShare].args.bindTimeout": &config.GPUShareArgs{Policy: "packed"},
	} {
		if _, err := NewWithClient(t.Context(), args, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("newPlugin = %v, want %q", err, want)
		}
	}
}

// Without the WorkloadProfiles the scheduler works, and takes them in when they can be read.
func TestProfilesAbsentAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fakeapi.NewClientset()
		client.PrependReactor("create", "pods", bindReactor(client))
		objects := fakecluster.NewDynamic()
		var installed atomic.Bool
		objects.PrependReactor("list", "workloadprofiles", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !installed.Load(), nil, apierrors.NewNotFound(v1alpha1.WorkloadProfiles.GroupResource(), "")
		})
		c := &cluster{t: t, client: client, dynamic: objects}
		c.createNode("n1")
		c.applyGPUNode(gpuNode("n1", 1))
		c.start()
		c.createPod(tolerating("1.2", tenant("a", "light", 3)))
		c.awaitBound("a")
		c.createPod(tenant("b", "light", 3))
		c.awaitPending("b", "the pod would slow down default/a")
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(declared("light", 10, 5))
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: object}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkloadProfile"))
		if _, err := objects.Resource(v1alpha1.WorkloadProfiles).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		installed.Store(true)
		c.awaitBound("b")
	})
}
