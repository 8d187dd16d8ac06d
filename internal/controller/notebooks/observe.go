package notebooks

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/cluster/parking"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/notebook"
)

// Results of a look.
const (
	lookAnswered    = "answered"
	lookUnreachable = "unreachable"
	lookRefused     = "refused"
	lookMalformed   = "malformed"
	lookNoToken     = "no-token"
	lookNotReady    = "not-ready"
)

// lostError says why it is unknown what works in a notebook.
type lostError struct{ result, message string }

func (e *lostError) Error() string { return e.message }

// observe looks at a notebook. An error is of a request to the API server: then nothing is decided in this pass.
func (c *Controller) observe(ctx context.Context, v *visit) error {
	if v.Replicas == 0 {
		v.seen.Phase = notebook.PhaseOff
		return nil
	}
	pods, err := c.options.Kube.CoreV1().Pods(v.Namespace).List(ctx, metav1.ListOptions{LabelSelector: v.Selector.String()})
	if err != nil {
		return fmt.Errorf("list its pods: %w", err)
	}
	list := make([]*v1.Pod, len(pods.Items))
	for i := range list {
		list[i] = &pods.Items[i]
	}
	v.pod, err = v.Pod(list)
	v.seen.Phase = notebook.PhaseStarting
	switch {
	case err != nil:
		v.lose(lookNotReady, err.Error())
	case v.pod == nil:
	case v.pod.Status.Phase == v1.PodPending || parking.Crashes(v.pod):
		v.seen.Pod, v.seen.Note = string(v.pod.UID), shown(v.pod)
	default:
		v.seen.Pod = string(v.pod.UID)
		err = c.observePod(ctx, v)
		v.seen.Note = shown(v.pod)
		return err
	}
	return nil
}

// lose notes that it is unknown what works.
func (v *visit) lose(result, message string) {
	v.seen.Phase, v.lost = notebook.PhaseUnreachable, &lostError{result, message}
}

// observePod looks into a pod that runs.
func (c *Controller) observePod(ctx context.Context, v *visit) error {
	since, ready := parking.ReadySince(v.pod)
	switch {
	case !ready:
		v.lose(lookNotReady, fmt.Sprintf("pod %s is not ready", v.pod.Name))
	case v.pod.Status.PodIP == "":
		v.lose(lookNotReady, fmt.Sprintf("pod %s has no address", v.pod.Name))
	default:
		token, lost, err := c.token(ctx, v)
		if err != nil {
			return err
		}
		s := &notebook.Server{ReadySince: since.Time, GPU: c.gpu(ctx, v.pod)}
		if lost == nil {
			lost = c.ask(ctx, v, token, s)
		}
		if lost == nil {
			v.seen = notebook.Serving(string(v.pod.UID), s)
		} else {
			v.lose(lost.result, lost.message)
		}
	}
	return nil
}

// token returns the token of a notebook, empty where it has none.
func (c *Controller) token(ctx context.Context, v *visit) (string, *lostError, error) {
	name, key := v.declared.Secret, v.declared.Key
	if name == "" {
		return "", nil, nil
	}
	secret, err := c.options.Kube.CoreV1().Secrets(v.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", &lostError{lookNoToken, fmt.Sprintf("the controller may not get Secret %s, which %s names: give it a Role for this Secret alone", name, v1alpha1.AnnotationNotebookToken)}, nil
	case apierrors.IsNotFound(err):
		return "", &lostError{lookNoToken, fmt.Sprintf("Secret %s, which %s names, does not exist", name, v1alpha1.AnnotationNotebookToken)}, nil
	case err != nil:
		return "", nil, fmt.Errorf("read Secret %s: %w", name, err)
	}
	token := string(secret.Data[key])
	if !legalToken(token) {
		return "", &lostError{lookNoToken, fmt.Sprintf("key %s of Secret %s is no token: legal are 1 to %d printable characters without blanks", key, name, maxToken)}, nil
	}
	return token, nil, nil
}

// gpu returns whether the pod's own processes use its GPUs, as the agent published it last.
func (c *Controller) gpu(ctx context.Context, p *v1.Pod) notebook.GPU {
	var node v1alpha1.GPUNode
	if err := c.options.GPUNodes.Get(ctx, client.ObjectKey{Name: p.Spec.NodeName}, &node); err != nil {
		return notebook.GPUUnknown
	}
	use := notebook.GPUUnknown
	for i := range node.Status.Devices {
		tenants := node.Status.Devices[i].Tenants
		for k := range tenants {
			t := &tenants[k]
			if t.UID != string(p.UID) || !t.Measured || t.SMUtilizationPercent == nil {
				continue
			}
			if *t.SMUtilizationPercent > 0 {
				return notebook.GPUBusy
			}
			use = notebook.GPUQuiet
		}
	}
	return use
}
