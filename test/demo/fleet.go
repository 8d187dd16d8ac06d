package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// The inference fleet of the demo, and the PriorityClass of its replicas, which are above the others.
const (
	fleetName    = "chat"
	fleetClass   = "serving"
	fleetModel   = "NVIDIA-A100-SXM4-40GB"
	requestsFew  = 5
	requestsMany = 80
)

// nameLabel has the name of what a pod belongs to.
const nameLabel = "app.kubernetes.io/name"

var httpRoutes = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}

// fleetVariant is a pool of replicas of the fleet: how many slots of an A100 each has, how many requests a second it serves at most, and between which
// numbers of replicas the controller chooses.
type fleetVariant struct {
	name        string
	slots, rate int64
	time        string
	least, most int64
}

func fleetVariants() []fleetVariant {
	return []fleetVariant{
		{name: "part", slots: 1, rate: 20, time: "50ms", least: 1, most: 1},
		{name: "whole", slots: 10, rate: 200, time: "5ms", least: 0, most: 1},
	}
}

// object is the name of the Deployment and the Service of a variant.
func (v *fleetVariant) object() string { return fleetName + "-" + v.name }

// createPriority makes the PriorityClass of the replicas, which only an administrator may.
func (c *cluster) createPriority(ctx context.Context) error {
	return sandbox.CreatePriorityClass(ctx, c.admin, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: fleetClass}, Value: 1000})
}

// createFleet makes the fleet, with a Deployment and a Service for each variant, and a route.
func (c *cluster) createFleet(ctx context.Context) error {
	if err := c.createPriority(ctx); err != nil {
		return err
	}
	c.requests.rate.Store(requestsFew)
	all := fleetVariants()
	backends, variants := make([]any, 0, len(all)), make([]any, 0, len(all))
	for _, v := range all {
		if err := c.createVariant(ctx, &v); err != nil {
			return fmt.Errorf("create variant %s: %w", v.name, err)
		}
		backends = append(backends, map[string]any{"name": v.object(), "port": int64(80), "weight": v.least * 1000})
		variants = append(variants, v.declared())
	}
	if err := c.createObject(ctx, httpRoutes, "HTTPRoute", map[string]any{
		"parentRefs": []any{map[string]any{"name": "gateway"}}, "rules": []any{map[string]any{"backendRefs": backends}},
	}); err != nil {
		return err
	}
	return c.createObject(ctx, v1alpha1.InferenceFleets, "InferenceFleet", map[string]any{
		"promise":  map[string]any{"quantile": "0.99", "latency": "500ms"},
		"variants": variants, "route": map[string]any{"httpRoute": map[string]any{"name": fleetName}},
		"metrics": map[string]any{"prometheusURL": c.requests.url(), "queries": map[string]any{"rate": rateQuery}},
	})
}

// declared is the variant in the spec of the fleet.
func (v *fleetVariant) declared() map[string]any {
	return map[string]any{
		"name": v.name, "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": v.object()},
		"service": map[string]any{"name": v.object(), "port": int64(80)}, "gpuModel": fleetModel, "slots": v.slots, "cost": v.slots,
		"minReplicas": v.least, "maxReplicas": v.most, "loadTime": "30s",
		"replica": map[string]any{"rate": fmt.Sprint(v.rate), "time": v.time},
	}
}

func (c *cluster) createVariant(ctx context.Context, v *fleetVariant) error {
	pod := workload{name: v.object(), kind: inference, gpu: "a100", containers: alone(v.slots)}.pod()
	pod.Labels[nameLabel], pod.Spec.PriorityClassName = v.object(), fleetClass
	selector := map[string]string{nameLabel: v.object()}
	_, err := c.user.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: v.object()},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(v.least)), Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.user.CoreV1().Services(namespace).Create(ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: v.object()}, Spec: v1.ServiceSpec{Selector: selector, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	return err
}

func (c *cluster) createObject(ctx context.Context, kind schema.GroupVersionResource, name string, spec map[string]any) error {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kind.GroupVersion().WithKind(name))
	o.SetName(fleetName)
	_, err := c.objects.Resource(kind).Namespace(namespace).Create(ctx, o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	return err
}

// awaitFleet waits until the variants have so many ready replicas, and those that have some a part of the requests, as the Deployments and the
// route say. It returns what the controller says of the fleet.
func (c *cluster) awaitFleet(ctx context.Context, replicas ...int64) (said string, err error) {
	err = poll(ctx, func() error {
		if err := errors.Join(c.schedulerRuns(), c.controllerRuns()); err != nil {
			return fatal{err}
		}
		weights, err := c.weights(ctx)
		if err != nil {
			return fatal{err}
		}
		f, err := c.fleet(ctx)
		if err != nil {
			return err
		}
		var parts []string
		for i, v := range fleetVariants() {
			d, err := c.user.AppsV1().Deployments(namespace).Get(ctx, v.object(), metav1.GetOptions{})
			if err != nil {
				return fatal{err}
			}
			wanted, weight := int64(*d.Spec.Replicas), weights[v.object()]
			if wanted != replicas[i] || int64(d.Status.ReadyReplicas) != replicas[i] || (weight > 0) != (wanted > 0) || !says(f, i, replicas[i]) {
				return fmt.Errorf("%s has %d ready replicas of %d and the weight %d: %+v", v.object(), d.Status.ReadyReplicas, wanted, weight, f.Status)
			}
			parts = append(parts, fmt.Sprintf("%d × %s of weight %d", wanted, v.name, weight))
		}
		said = strings.Join(parts, ", ") + ": " + f.Status.Message
		return nil
	})
	return said, err
}

// says reports whether the status of the fleet says that a variant has so many replicas.
func says(f *v1alpha1.InferenceFleet, variant int, replicas int64) bool {
	return variant < len(f.Status.Variants) && int64(f.Status.Variants[variant].Replicas) == replicas && int64(f.Status.Variants[variant].Ready) == replicas
}

func (c *cluster) fleet(ctx context.Context) (*v1alpha1.InferenceFleet, error) {
	object, err := c.objects.Resource(v1alpha1.InferenceFleets).Namespace(namespace).Get(ctx, fleetName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	f := &v1alpha1.InferenceFleet{}
	return f, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, f)
}

// weights returns those of the route, by Service.
func (c *cluster) weights(ctx context.Context) (map[string]int64, error) {
	route, err := c.objects.Resource(httpRoutes).Namespace(namespace).Get(ctx, fleetName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	rules, _, err := unstructured.NestedSlice(route.Object, "spec", "rules")
	if err != nil {
		return nil, err
	}
	backends, _, err := unstructured.NestedSlice(rules[0].(map[string]any), "backendRefs")
	if err != nil {
		return nil, err
	}
	weights := map[string]int64{}
	for _, b := range backends {
		backend := b.(map[string]any)
		weights[backend["name"].(string)], _ = backend["weight"].(int64)
	}
	return weights, nil
}
