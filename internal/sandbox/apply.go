package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// fieldManager owns what Apply sets.
const fieldManager = "tandem-sandbox"

// establishTimeout bounds the wait until the API server serves a CRD. It takes about a second; only a hang takes so long.
const establishTimeout = 5 * time.Minute

// applier maps kinds to resources and applies objects.
type applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

// Apply applies every object of the YAML documents by server-side apply, namespaces and CRDs first, and waits until
// the CRDs are served. Objects without a namespace go to "default".
func (c *ControlPlane) Apply(ctx context.Context, manifests []byte) error {
	objects, err := decode(manifests)
	if err != nil {
		return err
	}
	a, err := c.getApplier()
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := a.apply(ctx, object); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// InstallCRDs applies the manifests of deploy/crds.
func (c *ControlPlane) InstallCRDs(ctx context.Context) error {
	crds, err := CustomResourceDefinitions()
	if err != nil {
		return fmt.Errorf("install CRDs: %w", err)
	}
	return c.Apply(ctx, bytes.Join(crds, []byte("\n---\n")))
}

// CustomResourceDefinitions returns the manifests of deploy/crds, one in each.
func CustomResourceDefinitions() ([][]byte, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, "deploy", "crds", "*.yaml"))
	if err != nil {
		return nil, err
	}
	crds := make([][]byte, 0, len(files))
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		crd, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		crds = append(crds, crd)
	}
	if len(crds) == 0 {
		return nil, fmt.Errorf("no manifests in %s", filepath.Join(root, "deploy", "crds"))
	}
	return crds, nil
}

func (c *ControlPlane) getApplier() (*applier, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.applier != nil {
		return c.applier, nil
	}
	client, err := dynamic.NewForConfig(c.admin)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(c.admin)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoveryClient))
	c.applier = &applier{client: client, mapper: mapper}
	return c.applier, nil
}

// decode reads YAML or JSON documents, flattens lists and puts first what others need.
func decode(manifests []byte) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("decode manifests: document %d: %w", len(objects)+1, err)
		}
		switch {
		case len(object.Object) == 0: // a document of comments
		case object.IsList():
			err := object.EachListItem(func(item runtime.Object) error {
				objects = append(objects, item.(*unstructured.Unstructured))
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("decode manifests: %w", err)
			}
		default:
			objects = append(objects, object)
		}
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return objects, nil
}

// rank orders kinds that others need before the others.
func rank(object *unstructured.Unstructured) int {
	order := []string{"Namespace", "CustomResourceDefinition"}
	if i := slices.Index(order, object.GetKind()); i >= 0 {
		return i
	}
	return len(order)
}

func (a *applier) apply(ctx context.Context, object *unstructured.Unstructured) error {
	mapping, err := a.mapping(object.GroupVersionKind())
	if err != nil {
		return err
	}
	var client dynamic.ResourceInterface = a.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if object.GetNamespace() == "" {
			object.SetNamespace(metav1.NamespaceDefault)
		}
		client = a.client.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := client.Apply(ctx, object.GetName(), object, options); err != nil {
		return err
	}
	if object.GetKind() != "CustomResourceDefinition" {
		return nil
	}
	return a.awaitEstablished(ctx, client, object.GetName())
}

// mapping finds the resource of a kind; a kind that is unknown may have come since discovery was last read.
func (a *applier) mapping(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		a.mapper.Reset()
		mapping, err = a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	return mapping, err
}

// awaitEstablished waits until the API server serves a CRD and says so in its discovery, which comes a little later.
func (a *applier) awaitEstablished(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		crd, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		seen := conditions(crd)
		if slices.Contains(seen, "Established=True") && a.discovered(crd) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until it is served: %w; conditions: %s", ctx.Err(), strings.Join(seen, ", "))
		case <-ticker.C:
		}
	}
}

func (a *applier) discovered(crd *unstructured.Unstructured) bool {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	a.mapper.Reset()
	_, err := a.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
	return err == nil
}

func conditions(object *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	var seen []string
	for _, item := range list {
		if condition, ok := item.(map[string]any); ok {
			seen = append(seen, fmt.Sprintf("%v=%v", condition["type"], condition["status"]))
		}
	}
	return seen
}
