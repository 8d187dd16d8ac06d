// Package podsapi serves the kubelet's Pods API over the pods of a stand-in, for the tests' kubelets.
//
// The answers are those of k8s.io/kubernetes/pkg/kubelet/apis/pods of Kubernetes 1.37, whose code needs half of the
// kubelet to compile. A watch begins with an ADDED event for each pod and INITIAL_SYNC_COMPLETE; then come the later
// events. Events that came in during the initial list follow it, so a reader may see an older pod after a newer one.
// The last event of a pod names it and holds nothing else. A reader that leaves 100 events unread loses its watch with
// RESOURCE_EXHAUSTED. The caller decides what counts as an event: the kubelet sends changes of the status alone, and
// every change of a pod in deletion.
package podsapi

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// unread is how many events a reader may leave unread; the kubelet's number.
const unread = 100

// Pods are the pods of a node.
type Pods interface {
	// All returns the pods that the API server has bound to the node, ended ones included.
	All() []*v1.Pod
	// Synced reports whether the server has all pods; before, every call fails with FAILED_PRECONDITION.
	Synced() bool
}

// Server serves the Pods API.
type Server struct {
	v1alpha1.UnimplementedPodsServer
	pods Pods

	mu      sync.Mutex
	readers map[chan *v1alpha1.WatchPodsEvent]struct{}
}

// New returns a server without readers.
func New(pods Pods) *Server {
	return &Server{pods: pods, readers: map[chan *v1alpha1.WatchPodsEvent]struct{}{}}
}

// Updated sends the readers an event of a new or changed pod.
func (s *Server) Updated(pod *v1.Pod, isNew bool) {
	kind := v1alpha1.EventType_MODIFIED
	if isNew {
		kind = v1alpha1.EventType_ADDED
	}
	s.tell(kind, pod)
}

// Removed sends the readers the event that no container of a pod runs any more. A list may have the pod for longer.
func (s *Server) Removed(pod *v1.Pod) {
	s.tell(v1alpha1.EventType_DELETED, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}})
}

// Readers counts the watches.
func (s *Server) Readers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.readers)
}

func (s *Server) tell(kind v1alpha1.EventType, pod *v1.Pod) {
	raw, err := pod.Marshal()
	if err != nil {
		panic("encode pod: " + err.Error()) // it came over the same encoding
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for reader := range s.readers {
		select {
		case reader <- &v1alpha1.WatchPodsEvent{Type: kind, Pod: raw}:
		default:
			delete(s.readers, reader)
			close(reader)
		}
	}
}

// WatchPods streams events to one reader.
func (s *Server) WatchPods(_ *v1alpha1.WatchPodsRequest, stream v1alpha1.Pods_WatchPodsServer) error {
	if err := s.ready(); err != nil {
		return err
	}
	reader := make(chan *v1alpha1.WatchPodsEvent, unread)
	s.mu.Lock()
	s.readers[reader] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.readers, reader)
	}()
	list, err := s.encoded()
	if err != nil {
		return err
	}
	for _, raw := range list {
		if err := stream.Send(&v1alpha1.WatchPodsEvent{Type: v1alpha1.EventType_ADDED, Pod: raw}); err != nil {
			return err
		}
	}
	if err := stream.Send(&v1alpha1.WatchPodsEvent{Type: v1alpha1.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	return forward(stream, reader)
}

func forward(stream v1alpha1.Pods_WatchPodsServer, reader <-chan *v1alpha1.WatchPodsEvent) error {
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case event, ok := <-reader:
			if !ok {
				return status.Error(codes.ResourceExhausted, "watch client channel closed")
			}
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
}

// ListPods returns all pods of the node, by UID.
func (s *Server) ListPods(context.Context, *v1alpha1.ListPodsRequest) (*v1alpha1.ListPodsResponse, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	list, err := s.encoded()
	return &v1alpha1.ListPodsResponse{Pods: list}, err
}

// GetPod returns one pod.
func (s *Server) GetPod(_ context.Context, request *v1alpha1.GetPodRequest) (*v1alpha1.GetPodResponse, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	for _, pod := range s.pods.All() {
		if string(pod.UID) != request.PodUID {
			continue
		}
		raw, err := pod.Marshal()
		if err != nil {
			return nil, status.Errorf(codes.Internal, "failed to marshal pod: %v", err)
		}
		return &v1alpha1.GetPodResponse{Pod: raw}, nil
	}
	return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", request.PodUID)
}

func (s *Server) ready() error {
	if !s.pods.Synced() {
		return status.Error(codes.FailedPrecondition, "Kubelet is initializing")
	}
	return nil
}

func (s *Server) encoded() ([][]byte, error) {
	pods := slices.SortedFunc(slices.Values(s.pods.All()), func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	list := make([][]byte, 0, len(pods))
	for _, pod := range pods {
		raw, err := pod.Marshal()
		if err != nil {
			return nil, status.Errorf(codes.Internal, "failed to marshal pod: %v", err)
		}
		list = append(list, raw)
	}
	return list, nil
}
