package gangs

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// clientset is the client of a scheduler: its requests about pods meet the faults of the API server.
type clientset struct {
	kubernetes.Interface
	api *api
}

// IsWatchListSemanticsUnSupported says what the fake says, which informers ask their client.
func (c clientset) IsWatchListSemanticsUnSupported() bool { return true }

// CoreV1 returns the client for pods.
func (c clientset) CoreV1() corev1.CoreV1Interface { return coreClient{c.Interface.CoreV1(), c.api} }

type coreClient struct {
	corev1.CoreV1Interface
	api *api
}

// Pods returns a client whose binds may fail.
func (c coreClient) Pods(namespace string) corev1.PodInterface {
	return podClient{c.CoreV1Interface.Pods(namespace), c.api}
}

type podClient struct {
	corev1.PodInterface
	api *api
}

// connected is how long a connection lasts on which no answer comes.
const connected = time.Minute

// Delete removes a pod, unless a fault is due.
func (c podClient) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	switch c.api.strike(deleteFault, name) {
	case "":
		return c.PodInterface.Delete(ctx, name, o)
	case "error":
		return apierrors.NewInternalError(context.DeadlineExceeded)
	}
	return apierrors.NewForbidden(v1.Resource("pods"), name, nil)
}

// Bind is pods/binding, with the fault that is due.
func (c podClient) Bind(ctx context.Context, b *v1.Binding, o metav1.CreateOptions) error {
	switch kind := c.api.strike(bindFault, b.Name); kind {
	case "refuse":
		return apierrors.NewForbidden(v1.Resource("pods/binding"), b.Name, nil)
	case "conflict":
		return apierrors.NewConflict(v1.Resource("pods/binding"), b.Name, nil)
	case "error":
		return apierrors.NewInternalError(context.DeadlineExceeded)
	case "lost":
		if err := c.PodInterface.Bind(ctx, b, o); err != nil {
			return err
		}
		return apierrors.NewTimeoutError("the answer is lost", 1)
	case "late":
		c.api.later(lateBy, func() {
			c.api.belated(b.UID)
			_ = c.PodInterface.Bind(context.WithoutCancel(ctx), b, o)
		})
		return apierrors.NewTimeoutError("the answer is lost, and the bind still to come", 1)
	case "hang":
		select { // the scheduler's own binder, which binds pods without vGPUs, waits for as long as the connection is there
		case <-time.After(connected):
			return apierrors.NewInternalError(context.DeadlineExceeded)
		case <-ctx.Done():
			return ctx.Err()
		}
	case "slow":
		select {
		case <-time.After(slowness):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c.PodInterface.Bind(ctx, b, o)
}
