package podsource

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/tandem-gpu/tandem/internal/agent/kubeletconn"
)

// Reader reads the node's pods from the kubelet's Pods API, or from the API server where the kubelet does not serve it.
type Reader struct {
	client podsapi.PodsClient
	// choice is between the kubelet and the API server, of which watch knows the pods.
	choice *choice
	watch  *Watch
	// Patience is how long calls wait for the source; at 0 they fail at once where the kubelet's socket is absent.
	Patience time.Duration
}

// Get returns the pod with the UID, nil where the node has none. With doubt, Get fetches a pod again that is known.
func (r Reader) Get(ctx context.Context, uid string, doubt bool) (*v1.Pod, error) {
	if r.choice.asksServer() {
		return r.fromServer(ctx, uid, doubt)
	}
	ctx, cancel, option := kubeletconn.Await(ctx, r.Patience)
	defer cancel()
	answer, err := r.client.GetPod(ctx, &podsapi.GetPodRequest{PodUID: uid}, option)
	if status.Code(err) == codes.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, podsAPIError(err)
	}
	return decodePod(answer.Pod)
}

// List returns all pods of the node, or those that request vGPUs.
func (r Reader) List(ctx context.Context) ([]*v1.Pod, error) {
	if r.choice.asksServer() {
		return r.allFromServer(ctx)
	}
	ctx, cancel, option := kubeletconn.Await(ctx, r.Patience)
	defer cancel()
	answer, err := r.client.ListPods(ctx, &podsapi.ListPodsRequest{}, option)
	if err != nil {
		return nil, podsAPIError(err)
	}
	pods := make([]*v1.Pod, 0, len(answer.Pods))
	for _, raw := range answer.Pods {
		pod, err := decodePod(raw)
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// Glance returns the pods as list does, without a question to the API server.
func (r Reader) Glance(ctx context.Context) ([]*v1.Pod, error) {
	if r.choice.asksServer() {
		told, _ := r.watch.last()
		return told, nil
	}
	return r.List(ctx)
}

func decodePod(raw []byte) (*v1.Pod, error) {
	pod := &v1.Pod{}
	if err := pod.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("read pod from the kubelet's Pods API: %w", err)
	}
	return pod, nil
}

// podsAPIError says what to look at where the socket itself is the trouble.
func podsAPIError(err error) error {
	switch status.Code(err) {
	case codes.Unavailable, codes.Unimplemented, codes.DeadlineExceeded:
		return fmt.Errorf("ask the kubelet's Pods API (kubelet 1.37 or newer, feature gate PodsAPI): %w", err)
	}
	return fmt.Errorf("ask the kubelet's Pods API: %w", err)
}

// AsksServer reports whether the source is the API server.
func (r Reader) AsksServer() bool { return r.choice.asksServer() }
