package fakeserver

import (
	"encoding/json"
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	var raw []byte
	switch types.PatchType(c.media) {
	case types.JSONPatchType:
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(c.body); err == nil {
			raw, err = patch.Apply(old.raw)
		}
	case types.MergePatchType:
		raw, err = jsonpatch.MergePatch(old.raw, c.body)
	case types.StrategicMergePatchType:
		raw, err = c.strategic(old.raw)
	default:
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, c.method, c.resource.GroupResource(), c.name, "patch of type "+c.media, 0, true)
	}
	if err != nil {
		return nil, apierrors.NewInvalid(c.resource.GroupVersion().WithKind(c.kind.name).GroupKind(), c.name, nil)
	}
	return s.update(c, raw, "patch")
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
	c.sub = ""
	old, err := s.get(c)
	if err != nil {
		return nil, err
	}
	if c.method != http.MethodGet {
		var wants struct {
			Spec struct {
				Replicas int64 `json:"replicas"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(c.body, &wants); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, wants.Spec.Replicas)
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
	}
	replicas := func(part string) any {
		if of, ok := old.Object[part].(map[string]any); ok {
			return of["replicas"]
		}
		return nil
	}
	return json.Marshal(map[string]any{
		"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": map[string]any{"replicas": replicas("spec")}, "status": map[string]any{"replicas": replicas("status")},
		"metadata": map[string]any{"name": c.name, "namespace": c.namespace, "uid": old.GetUID(), "resourceVersion": old.GetResourceVersion()},
	})
}
