package deviceplugin

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// maxAnswer bounds one answer of the kubelet. A pod is below 2 MiB and a node runs some hundred pods.
const maxAnswer = 256 << 20

// dialKubelet returns a connection to one of the kubelet's local sockets. It is made when it is first used and made
// again when the kubelet restarts.
func dialKubelet(socket string) (*grpc.ClientConn, error) {
	retry := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("use socket %s: %w", socket, err)
	}
	return conn, nil
}

// patience is how long a container's start waits for a kubelet that is just coming back: its sockets appear within a
// second. The kubelet tries again after a failure, but shows it in the pod's events.
const patience = 5 * time.Second

// podReader reads the node's pods from the kubelet's Pods API, or from the API server where the kubelet does not serve it.
type podReader struct {
	client podsapi.PodsClient
	// choice is between the kubelet and the API server, of which watch knows the pods.
	choice *podChoice
	watch  *podWatch
	// patience is how long calls wait for who tells the pods; at 0 they fail at once where the kubelet's socket is absent.
	patience time.Duration
}

// await bounds a call by the patience, if there is any.
func await(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc, grpc.CallOption) {
	if patience == 0 {
		return ctx, func() {}, grpc.WaitForReady(false)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	return ctx, cancel, grpc.WaitForReady(true)
}

// get returns the pod with the UID, nil where the node has none. In doubt a pod is asked for that is known.
func (r podReader) get(ctx context.Context, uid string, doubt bool) (*v1.Pod, error) {
	if r.choice.asksServer() {
		return r.fromServer(ctx, uid, doubt)
	}
	ctx, cancel, option := await(ctx, r.patience)
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

// list returns all pods of the node, or those that ask for vGPUs.
func (r podReader) list(ctx context.Context) ([]*v1.Pod, error) {
	if r.choice.asksServer() {
		return r.allFromServer(ctx)
	}
	ctx, cancel, option := await(ctx, r.patience)
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

// glance returns the pods as list does, without a question to the API server.
func (r podReader) glance(ctx context.Context) ([]*v1.Pod, error) {
	if r.choice.asksServer() {
		told, _ := r.watch.last()
		return told, nil
	}
	return r.list(ctx)
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

// over reports whether all containers of the pod have ended for good.
func over(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// placeReader asks the pod-resources API which container holds slots. It knows no pod UIDs and no ordinary init
// containers, so it is only the second choice after the kubelet's checkpoint.
type placeReader struct {
	client podresources.PodResourcesListerClient
}

// place is a container as pod-resources names it.
type place struct{ Namespace, Pod, Container string }

// holder returns the container that holds exactly these slots, false where none does.
func (r placeReader) holder(ctx context.Context, ids []string) (place, bool, error) {
	ctx, cancel, option := await(ctx, patience)
	defer cancel()
	answer, err := r.client.List(ctx, &podresources.ListPodResourcesRequest{}, option)
	if err != nil {
		return place{}, false, fmt.Errorf("ask the kubelet's pod-resources API: %w", err)
	}
	for _, pod := range answer.PodResources {
		for _, c := range pod.Containers {
			var held []string
			for _, d := range c.Devices {
				if d.ResourceName == v1alpha1.ResourceVGPU {
					held = append(held, d.DeviceIds...)
				}
			}
			if sameSlots(held, ids) {
				return place{Namespace: pod.Namespace, Pod: pod.Name, Container: c.Name}, true, nil
			}
		}
	}
	return place{}, false, nil
}
