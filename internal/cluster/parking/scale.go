package parking

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Activator is the activator's name towards the API server.
const Activator = "tandem-activator"

// Park has a workload ask for no pod, if it asks for one.
func Park(ctx context.Context, client kubernetes.Interface, w *Workload, manager string) error {
	return scale(ctx, client, w, manager, operation{"test", "/spec/replicas", 1}, operation{"replace", "/spec/replicas", 0})
}

// Wake has a workload ask for one pod, if it asks for none, for the activator. Kubernetes leaves a number of 0 out of a Scale.
func Wake(ctx context.Context, client kubernetes.Interface, w *Workload) error {
	return scale(ctx, client, w, Activator, operation{"test", "/spec", map[string]any{}}, operation{"add", "/spec/replicas", 1})
}

func scale(ctx context.Context, client kubernetes.Interface, w *Workload, manager string, operations ...operation) error {
	patch, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	o := metav1.PatchOptions{FieldManager: manager}
	if apps := client.AppsV1(); w.Kind == KindStatefulSet {
		_, err = apps.StatefulSets(w.Namespace).Patch(ctx, w.Name, types.JSONPatchType, patch, o, "scale")
	} else {
		_, err = apps.Deployments(w.Namespace).Patch(ctx, w.Name, types.JSONPatchType, patch, o, "scale")
	}
	if err != nil {
		return fmt.Errorf("scale %s: %w", w, err)
	}
	return nil
}

// IsStale reports whether an error says that a workload no longer has the size that was read. The API server has the same code for a test of a
// patch that fails and for a value that is not legal.
func IsStale(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err)
}
