package fakeserver

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	kyaml "sigs.k8s.io/yaml"
)

// rules are what the schema of a CustomResourceDefinition says of its objects, carried out by the code of the API server.
type rules struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator
}

// Custom returns the resource of a CustomResourceDefinition in YAML. A server gives its objects the defaults of the schema, drops fields that the schema
// does not have, and refuses what it refuses. Several servers may have the resource.
func Custom(raw []byte) (Resource, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := kyaml.UnmarshalStrict(raw, crd); err != nil {
		return Resource{}, err
	}
	for _, v := range crd.Spec.Versions {
		if !v.Storage {
			continue
		}
		r := Resource{
			GroupVersionResource: apischema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural},
			Kind:                 crd.Spec.Names.Kind, Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		}
		var err error
		r.rules, err = newRules(v.Schema.OpenAPIV3Schema)
		return r, err
	}
	return Resource{}, fmt.Errorf("%s %q has no version that is stored", crd.Kind, crd.Name)
}

func newRules(props *apiextensionsv1.JSONSchemaProps) (*rules, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(props, internal, nil); err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(internal)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return nil, err
	}
	return &rules{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// apply gives an object its defaults, and returns an error where it is not legal. The old object is nil for a new one.
func (r *rules) apply(c *call, u, old *unstructured.Unstructured) error {
	if r == nil {
		return nil
	}
	pruning.Prune(u.Object, r.structural, true)
	defaulting.Default(u.Object, r.structural)
	var before any
	if old != nil {
		before = old.Object
	}
	errs := validation.ValidateCustomResource(nil, u.Object, r.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, r.structural, u.Object)...)
	if len(errs) == 0 {
		errs, _ = r.cel.Validate(context.Background(), field.NewPath(""), r.structural, u.Object, before, celconfig.RuntimeCELCostBudget)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(apischema.GroupKind{Group: c.resource.Group, Kind: c.kind.name}, c.name, errs)
	}
	return nil
}
