package facts

import (
	"context"
	"fmt"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/tandem-gpu/tandem/internal/kubectl/checks"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Options say where Tandem is.
type Options struct {
	// Namespace of Tandem, and Scheduler, the name of its scheduler's lease and label.
	Namespace, Scheduler string
	// Now is the time by which the lease is judged.
	Now time.Time
	// Step is told what is read now, and how many of how many parts were read before.
	Step func(what string, done, of int)
}

// reader reads the facts of one cluster.
type reader struct {
	client kubernetes.Interface
	custom dynamic.Interface
	ctx    context.Context //nolint:containedctx // of one Read
	f      *checks.Facts
}

// Read returns the facts of a cluster.
func Read(ctx context.Context, client kubernetes.Interface, custom dynamic.Interface, o *Options) (*checks.Facts, error) {
	r := &reader{client: client, custom: custom, ctx: ctx, f: &checks.Facts{Namespace: o.Namespace, Scheduler: o.Scheduler, Now: o.Now}}
	parts := []struct {
		source checks.Source
		read   func() error
	}{
		{checks.Server, r.server}, {checks.Nodes, r.nodes}, {checks.GPUNodes, r.gpuNodes}, {checks.Pods, r.pods}, {checks.Namespaces, r.namespaces},
		{checks.Deployments, r.deployments}, {checks.DaemonSets, r.daemonSets}, {checks.Leases, r.lease},
		{checks.Policies, r.policies}, {checks.Bindings, r.bindings},
	}
	for done, part := range parts {
		o.Step("reading "+string(part.source), done, len(parts))
		switch err := part.read(); {
		case apierrors.IsForbidden(err):
			r.f.Refused = append(r.f.Refused, part.source)
		case apierrors.IsNotFound(err) && part.source != checks.Server: // an API server that is older than the resource
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", part.source, err)
		}
	}
	return r.f, nil
}

// server reads what the API server says of itself.
func (r *reader) server() error {
	d := r.client.Discovery()
	info, err := d.ServerVersion()
	if err != nil {
		return err
	}
	r.f.ServerVersion = info.GitVersion
	groups, err := d.ServerGroups()
	if err != nil {
		return err
	}
	for i := range groups.Groups {
		g := &groups.Groups[i]
		if g.Name != v1alpha1.Domain && g.Name != podGroups {
			continue
		}
		for _, v := range g.Versions {
			if err := r.resources(v.GroupVersion); err != nil {
				return err
			}
		}
	}
	return nil
}

// podGroups is the API group of Kubernetes' PodGroups.
const podGroups = "scheduling.k8s.io"

// resources reads what is served of one version of a group.
func (r *reader) resources(version string) error {
	list, err := r.client.Discovery().ServerResourcesForGroupVersion(version)
	if err != nil {
		return err
	}
	group, err := schema.ParseGroupVersion(list.GroupVersion)
	if err != nil {
		return err
	}
	for i := range list.APIResources {
		r.f.Served = append(r.f.Served, group.WithResource(list.APIResources[i].Name))
	}
	return nil
}

func (r *reader) nodes() (err error) {
	api := r.client.CoreV1().Nodes()
	r.f.Nodes, err = each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, all[v1.Node])
	return err
}

// gpuNodes reads the GPUNodes where the API server serves them. One that is not as it should be leaves the others as they are.
func (r *reader) gpuNodes() error {
	api := r.custom.Resource(v1alpha1.GPUNodes)
	raw, err := each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, all[unstructured.Unstructured])
	for i := range raw {
		var g v1alpha1.GPUNode
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw[i].Object, &g); err != nil {
			r.f.Unread = append(r.f.Unread, checks.Unread{Name: raw[i].GetName(), Why: err.Error()})
			continue
		}
		r.f.GPUNodes = append(r.f.GPUNodes, g)
	}
	return err
}

func (r *reader) pods() (err error) {
	api := r.client.CoreV1().Pods(metav1.NamespaceAll)
	r.f.Pods, err = each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, func(p *v1.Pod) bool {
		return checks.Counts(p, r.f.Namespace)
	})
	return err
}

func (r *reader) namespaces() (err error) {
	api := r.client.CoreV1().Namespaces()
	r.f.Namespaces, err = each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, all[v1.Namespace])
	return err
}

func (r *reader) deployments() (err error) {
	api := r.client.AppsV1().Deployments(r.f.Namespace)
	r.f.Deployments, err = each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, all[apps.Deployment])
	return err
}

func (r *reader) daemonSets() (err error) {
	api := r.client.AppsV1().DaemonSets(r.f.Namespace)
	r.f.DaemonSets, err = each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, all[apps.DaemonSet])
	return err
}

func (r *reader) lease() error {
	lease, err := r.client.CoordinationV1().Leases(r.f.Namespace).Get(r.ctx, r.f.Scheduler, metav1.GetOptions{})
	if err == nil {
		r.f.Lease = lease
	}
	return err
}

func (r *reader) policies() (err error) {
	api := r.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	r.f.Policies, err = each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, all[admission.ValidatingAdmissionPolicy])
	return err
}

func (r *reader) bindings() (err error) {
	api := r.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	r.f.Bindings, err = each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, all[admission.ValidatingAdmissionPolicyBinding])
	return err
}

// all keeps each object.
func all[T any](*T) bool { return true }

// mostTries is how often a list is begun anew where the API server has forgotten its first pages before the last is read.
const mostTries = 3

// each lists objects in pages and returns those to keep.
func each[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, list func(metav1.ListOptions) (runtime.Object, error), keep func(*T) bool) (kept []T, err error) {
	for range mostTries {
		kept = nil
		err = pager.New(pager.SimplePageFunc(list)).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
			t, ok := o.(P)
			if !ok {
				return fmt.Errorf("the API server answered with a %T", o)
			}
			if keep((*T)(t)) {
				kept = append(kept, *t)
			}
			return nil
		})
		if !apierrors.IsResourceExpired(err) {
			break
		}
	}
	return kept, err
}
