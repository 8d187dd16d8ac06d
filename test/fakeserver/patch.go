package fakeserver

import (
	"encoding/json"
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// patch changes a part of an object.
func (s *Server) patch(c *call) ([]byte, error) {
	old, err := s.get(c)
	if err != nil {
		return nil, err
	}
	raw, err := c.patched(old.raw)
	if err != nil {
		return nil, err
	}
	return s.update(c, raw, "patch")
}

// patched returns an object with the patch of a request.
func (c *call) patched(old []byte) (raw []byte, err error) {
	switch types.PatchType(c.media) {
	case types.JSONPatchType:
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(c.body); err == nil {
			raw, err = patch.Apply(old)
		}
	case types.MergePatchType:
		raw, err = jsonpatch.MergePatch(old, c.body)
	case types.StrategicMergePatchType:
		raw, err = c.strategic(old)
	default:
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, c.method, c.resource.GroupResource(), c.name, "patch of type "+c.media, 0, true)
	}
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, c.method, c.resource.GroupResource(), c.name, err.Error(), 0, true)
	}
	return raw, nil
}

// strategic applies a strategic merge patch, for which the Go type of the object says how lists are merged.
func (c *call) strategic(old []byte) ([]byte, error) {
	of, err := scheme.Scheme.New(c.resource.GroupVersion().WithKind(c.kind.name))
	if err != nil {
		return nil, fmt.Errorf("a strategic merge patch of a custom resource: %w", err)
	}
	return strategicpatch.StrategicMergePatch(old, c.body, of)
}

// scale reads or changes spec.replicas by the subresource.
func (s *Server) scale(c *call) ([]byte, error) {
	old, err := s.get(c)
	if err != nil {
		return nil, err
	}
	scale, err := scaleOf(old)
	if err != nil || c.method == http.MethodGet {
		return scale, err
	}
	wanted := c.body
	if c.method == http.MethodPatch {
		if wanted, err = c.patched(scale); err != nil {
			return nil, err
		}
	}
	var wants autoscalingv1.Scale
	if err := json.Unmarshal(wanted, &wants); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"spec":{"replicas":%d}}`, wants.ResourceVersion, wants.Spec.Replicas)
	raw, err := jsonpatch.MergePatch(old.raw, patch)
	if err != nil {
		return nil, err
	}
	if _, err := s.update(c, raw, "update"); err != nil {
		return nil, err
	}
	if old, err = s.get(c); err != nil {
		return nil, err
	}
	return scaleOf(old)
}

// scaleOf returns what the subresource shows of an object.
func scaleOf(o *object) ([]byte, error) {
	replicas := func(part string) int32 {
		n, _, _ := unstructured.NestedInt64(o.Object, part, "replicas")
		return int32(n)
	}
	selector := ""
	if named, found, _ := unstructured.NestedMap(o.Object, "spec", "selector"); found {
		var of metav1.LabelSelector
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(named, &of); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		matches, err := metav1.LabelSelectorAsSelector(&of)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		selector = matches.String()
	}
	return json.Marshal(autoscalingv1.Scale{
		TypeMeta:   metav1.TypeMeta{Kind: "Scale", APIVersion: "autoscaling/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()},
		Spec:       autoscalingv1.ScaleSpec{Replicas: replicas("spec")}, Status: autoscalingv1.ScaleStatus{Replicas: replicas("status"), Selector: selector},
	})
}
