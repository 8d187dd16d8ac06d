package fleets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

type hpa = autoscalingv2.HorizontalPodAutoscaler

// Reasons of the condition Scaled.
const (
	reasonScaled         = "Scaled"
	reasonLoading        = "Loading"
	reasonWaitsForRoute  = "WaitsForRoute"
	reasonTargetMissing  = "ScaleTargetMissing"
	reasonTargetTaken    = "ScaleTargetTaken"
	reasonTargetOwned    = "ScaleTargetOwned"
	reasonUnknownKind    = "UnknownKind"
	reasonNoScale        = "NoScale"
	reasonNotAllowed     = "NotAllowed"
	reasonAutoscaled     = "AnotherAutoscaler"
	reasonServiceMissing = "ServiceMissing"
	reasonScaleRefused   = "ScaleRefused"
	reasonContested      = "AnotherWriter"
)

// fieldManager is the controller's name towards the API server.
const fieldManager = "tandem-controller"

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// target is the scale target of a variant as it was read.
type target struct {
	client dynamic.ResourceInterface
	ref    *v1alpha1.FleetScaleTarget
	// version is that of the object, "" where the Scale does not say it.
	version string
	// spec is that of the Scale. Kubernetes leaves replicas out of it where there are 0.
	spec     map[string]any
	replicas int
	// pods is how many of the replicas exist.
	pods int
	// capped says which ResourceQuota refuses the others, "" where none does.
	capped string
	// selector matches its pods; nil where the Scale does not say which, or at a length beyond maxSelector.
	selector labels.Selector
}

// scales reads and writes the numbers of scale targets.
type scales struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

// find returns the resource of a kind. A refusal says that the API server has none; an error is of the request.
func (s *scales) find(ref *v1alpha1.FleetScaleTarget) (schema.GroupVersionResource, *refusal, error) {
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return schema.GroupVersionResource{}, &refusal{reasonUnknownKind, fmt.Sprintf("the API server does not serve %s of %s: correct scaleTargetRef, or install the kind", ref.Kind, ref.APIVersion)}, nil
	case err != nil:
		return schema.GroupVersionResource{}, nil, fmt.Errorf("find the resource of %s %s: %w", ref.Kind, ref.Name, err)
	}
	return mapping.Resource, nil, nil
}

// podLabels reads the labels of the pods that a scale target makes, from its pod template: none where it has no such template.
func (s *scales) podLabels(ctx context.Context, namespace string, ref *v1alpha1.FleetScaleTarget) (map[string]string, *refusal, error) {
	resource, refused, err := s.find(ref)
	if err != nil || refused != nil {
		return nil, refused, err
	}
	o, err := s.client.Resource(resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, &refusal{reasonTargetMissing, fmt.Sprintf("%s %s does not exist: create it, or correct scaleTargetRef", ref.Kind, ref.Name)}, nil
	case apierrors.IsForbidden(err):
		return nil, &refusal{reasonNotAllowed, fmt.Sprintf("the controller may not get %s, whose pods name the profile: bind a ClusterRole with this right to its service account, or set profile: %v", resource.Resource, err)}, nil
	case err != nil:
		return nil, nil, fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	labels, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels") // of another form, they name no profile
	return labels, nil, nil
}

// read reads the number of a scale target. A refusal says that there is none to write; an error is of the request.
func (s *scales) read(ctx context.Context, namespace string, ref *v1alpha1.FleetScaleTarget) (*target, *refusal, error) {
	resource, refused, err := s.find(ref)
	if err != nil || refused != nil {
		return nil, refused, err
	}
	t := &target{client: s.client.Resource(resource).Namespace(namespace), ref: ref}
	scale, err := t.client.Get(ctx, ref.Name, metav1.GetOptions{}, "scale")
	switch {
	case apierrors.IsNotFound(err) && namesNothing(err):
		return nil, &refusal{reasonNoScale, fmt.Sprintf("%s of %s has no subresource /scale: name an object that has, such as a Deployment", ref.Kind, ref.APIVersion)}, nil
	case apierrors.IsNotFound(err):
		return nil, &refusal{reasonTargetMissing, fmt.Sprintf("%s %s does not exist, or its kind has no subresource /scale: create it, or correct scaleTargetRef", ref.Kind, ref.Name)}, nil
	case apierrors.IsForbidden(err):
		return nil, notAllowed(resource.Resource+"/scale", err), nil
	case err != nil:
		return nil, nil, fmt.Errorf("read the scale of %s %s: %w", ref.Kind, ref.Name, err)
	}
	t.version = scale.GetResourceVersion()
	t.spec, _, _ = unstructured.NestedMap(scale.Object, "spec")
	n, _, err := unstructured.NestedInt64(t.spec, "replicas")
	if err != nil {
		return nil, nil, fmt.Errorf("read the scale of %s %s: %w", ref.Kind, ref.Name, err)
	}
	t.replicas = int(n)
	exist, _, _ := unstructured.NestedInt64(scale.Object, "status", "replicas")
	t.pods = int(exist)
	if text, _, _ := unstructured.NestedString(scale.Object, "status", "selector"); text != "" && len(text) <= maxSelector {
		if t.selector, err = labels.Parse(text); err != nil {
			t.selector = nil // the object may say what it likes there
		}
	}
	return t, nil, nil
}

// controller returns the object whose controller has made a scale target, as "InferenceService bert", "" where none has. It is unknown, and none, for kinds
// of which the program may read only scales.
func (t *target) controller(ctx context.Context) (string, error) {
	o, err := t.client.Get(ctx, t.ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read %s %s: %w", t.ref.Kind, t.ref.Name, err)
	}
	if owner := metav1.GetControllerOf(o); owner != nil {
		return owner.Kind + " " + owner.Name, nil
	}
	return "", nil
}

// namesNothing reports whether an answer is about no object: the API server does not have the path. For kinds of CustomResourceDefinitions it
// answers as if the object were missing.
func namesNothing(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Name == "")
}

// notAllowed says which right the controller lacks.
func notAllowed(resource string, err error) *refusal {
	return &refusal{reasonNotAllowed, fmt.Sprintf("the controller may not get and patch %s: bind a ClusterRole with these rights to its service account: %v", resource, err)}
}

// write asks the scale target for another number, if it still asks for the one that was read.
func (t *target) write(ctx context.Context, replicas int) error {
	test := operation{"test", "/spec/replicas", t.replicas}
	if _, said := t.spec["replicas"]; !said {
		test = operation{"test", "/spec", map[string]any{}}
	}
	raw, err := json.Marshal([]operation{test, {"add", "/spec/replicas", replicas}}) // add replaces what is there
	if err != nil {
		return err
	}
	_, err = t.client.Patch(ctx, t.ref.Name, types.JSONPatchType, raw, metav1.PatchOptions{FieldManager: fieldManager}, "scale")
	return err
}

// isStale reports whether an error says that an object changed since it was read. The API server has the same code for a test of a patch that
// fails and for a value that is not legal.
func isStale(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err)
}
