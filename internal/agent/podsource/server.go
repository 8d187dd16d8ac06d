package podsource

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// API reads pods of all namespaces from the API server.
type API interface {
	List(ctx context.Context, options metav1.ListOptions) (*v1.PodList, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// podClient is an API. The client covers pods alone: client-go's clients of all resources take some megabytes on each
// node.
type podClient struct {
	rest  rest.Interface
	codec runtime.ParameterCodec
}

// Requests for pods in a second, on average and at once: one for each container that starts. More containers than that
// start later.
const (
	podQPS   = 20
	podBurst = 50
)

// NewAPI returns a client of an API server.
func NewAPI(config *rest.Config) (API, error) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("read pods from the API server: %w", err)
	}
	metav1.AddToGroupVersion(scheme, v1.SchemeGroupVersion)
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &v1.SchemeGroupVersion, "/api"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType, c.QPS, c.Burst = runtime.ContentTypeProtobuf, podQPS, podBurst
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("read pods from the API server: %w", err)
	}
	return podClient{rest: client, codec: runtime.NewParameterCodec(scheme)}, nil
}

// List returns pods.
func (c podClient) List(ctx context.Context, options metav1.ListOptions) (*v1.PodList, error) {
	list := &v1.PodList{}
	err := c.rest.Get().Resource("pods").VersionedParams(&options, c.codec).Do(ctx).Into(list)
	return list, err
}

// Watch follows pods.
func (c podClient) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return c.rest.Get().Resource("pods").VersionedParams(&options, c.codec).Watch(ctx)
}

const (
	// serverTimeout bounds one list of the API server.
	serverTimeout = 5 * time.Second
	// serverWatch is how long one watch of the API server lasts. A watch delivers all changes, so a shorter one only
	// costs lists.
	serverWatch = 8 * time.Minute
	// leastWatch is how long a watch must have lasted for the next to begin at once.
	leastWatch = time.Second
)

// server reads the pods of a node from the API server.
type server struct {
	api  API
	node string
}

func (s server) options() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", s.node).String()}
}

// list returns all pods of the node as they are. The API server answers a list without a resource version from its
// latest state, so a pod that the kubelet knows is in it.
func (s server) list(ctx context.Context) (*v1.PodList, error) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	list, err := s.api.List(ctx, s.options())
	if err != nil {
		return nil, serverError(err)
	}
	return list, nil
}

// serverError says what to do where the API server refuses.
func serverError(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return fmt.Errorf("read the pods of this node from the API server: %w: the kubelet does not serve the Pods API (kubelet 1.37 or newer, feature gate PodsAPI), "+
			"so the agent needs the permission to list and watch pods: add deploy/components/pods-from-apiserver", err)
	}
	return fmt.Errorf("read the pods of this node from the API server: %w", err)
}

// errShortWatch: the API server ends watches at once.
var errShortWatch = errors.New("read the pods of this node from the API server: the watch ended at once")

// followServer lists and watches the pods of the node at the API server. followServer returns nil when the time for
// another list, or for the kubelet, has come.
func (w *Watch) followServer(ctx context.Context) error {
	list, err := w.server.list(ctx)
	if err != nil {
		return err
	}
	pods := map[types.UID]*Tenant{}
	for i := range list.Items {
		keep(pods, &list.Items[i])
	}
	w.replace(pods)
	options := w.server.options()
	seconds := int64(serverWatch / time.Second)
	options.ResourceVersion, options.TimeoutSeconds = list.ResourceVersion, &seconds
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.server.api.Watch(ctx, options)
	if err != nil {
		return serverError(err)
	}
	defer stream.Stop()
	return w.take(ctx, stream)
}

// take applies the events of a watch until it ends, or the kubelet serves the Pods API again.
func (w *Watch) take(ctx context.Context, stream watch.Interface) error {
	began := time.Now()
	tick := time.NewTicker(w.again)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			w.beat()
			if w.choice.look(ctx) {
				return nil
			}
		case event, open := <-stream.ResultChan():
			if !open {
				if time.Since(began) < leastWatch {
					return errShortWatch
				}
				return nil
			}
			if err := w.obey(event); err != nil {
				return err
			}
		}
	}
}

// obey applies one event.
func (w *Watch) obey(event watch.Event) error {
	pod, isPod := event.Object.(*v1.Pod)
	switch {
	case event.Type == watch.Error:
		return serverError(apierrors.FromObject(event.Object))
	case !isPod || event.Type == watch.Bookmark:
	case event.Type == watch.Deleted:
		w.apply(podsapi.EventType_DELETED, pod)
	default:
		w.apply(podsapi.EventType_MODIFIED, pod)
	}
	return nil
}

// fromServer returns the pod with the UID, nil where the node has none. fromServer takes a pod from the watch where the
// watch has its assignment, so that containers start while the API server is away: an assignment never changes. The
// watch may lag, so in every other case, and where the caller doubts that the pod still runs, fromServer queries the
// API server.
func (r Reader) fromServer(ctx context.Context, uid string, doubt bool) (*v1.Pod, error) {
	told, _, _ := r.watch.Snapshot()
	known := told[types.UID(uid)]
	if known != nil && known.Err == nil && !doubt {
		return known.Pod, nil
	}
	list, err := r.watch.server.list(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if string(list.Items[i].UID) == uid {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// allFromServer returns all pods of the node as they are. While the API server is away it returns the last known ones
// that request vGPUs.
func (r Reader) allFromServer(ctx context.Context) ([]*v1.Pod, error) {
	list, err := r.watch.server.list(ctx)
	if err == nil {
		pods := make([]*v1.Pod, len(list.Items))
		for i := range list.Items {
			pods[i] = &list.Items[i]
		}
		return pods, nil
	}
	told, once := r.watch.last()
	if !once {
		return nil, err
	}
	return told, nil
}
