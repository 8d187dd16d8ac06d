package allocation

import (
	"context"
	"fmt"
	"time"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-gpu/tandem/internal/agent/kubeletconn"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// PlaceReader queries the pod-resources API for the container that holds slots. The API knows no pod UIDs and no
// ordinary init containers, so it is only the second choice after the kubelet's checkpoint.
type PlaceReader struct {
	Client podresources.PodResourcesListerClient
	// Patience is how long a question waits for the kubelet.
	Patience time.Duration
}

// place is a container as pod-resources names it.
type place struct{ Namespace, Pod, Container string }

// Holder returns the container that holds exactly these slots, false where none does.
func (r PlaceReader) Holder(ctx context.Context, ids []string) (place, bool, error) {
	ctx, cancel, option := kubeletconn.Await(ctx, r.Patience)
	defer cancel()
	answer, err := r.Client.List(ctx, &podresources.ListPodResourcesRequest{}, option)
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
			if SameSlots(held, ids) {
				return place{Namespace: pod.Namespace, Pod: pod.Name, Container: c.Name}, true, nil
			}
		}
	}
	return place{}, false, nil
}
