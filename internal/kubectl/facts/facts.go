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
	// Step is told what is read now.
	Step func(what string)
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
	for _, part := range []struct {
		source checks.Source
		read   func() error
	}{
		{checks.Server, r.server}, {checks.Nodes, r.nodes}, {checks.GPUNodes, r.gpuNodes}, {checks.Pods, r.pods}, {checks.Namespaces, r.namespaces},
		{checks.Deployments, r.deployments}, {checks.DaemonSets, r.daemonSets}, {checks.Leases, r.lease},
		{checks.Policies, r.policies}, {checks.Bindings, r.bindings},
	} {
		o.Step("reading " + string(part.source))
		switch err := part.read(); {
		case apierrors.IsForbidden(err):
			r.f.Refused = append(r.f.Refused, part.source)
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

func (r *reader) nodes() error {
	api := r.client.CoreV1().Nodes()
	return each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, func(n *v1.Node) { r.f.Nodes = append(r.f.Nodes, *n) })
}

// gpuNodes reads the GPUNodes where the API server serves them.
func (r *reader) gpuNodes() error {
	api := r.custom.Resource(v1alpha1.GPUNodes)
	var unread error
	err := each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, func(u *unstructured.Unstructured) {
		var g v1alpha1.GPUNode
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &g); err != nil {
			unread = fmt.Errorf("%s: %w", u.GetName(), err)
		}
		r.f.GPUNodes = append(r.f.GPUNodes, g)
	})
	if apierrors.IsNotFound(err) { // the check APIMissing says so
		return nil
	}
	if err != nil {
		return err
	}
	return unread
}

func (r *reader) pods() error {
	api := r.client.CoreV1().Pods(metav1.NamespaceAll)
	return each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, func(p *v1.Pod) {
		if checks.Counts(p, r.f.Namespace) {
			r.f.Pods = append(r.f.Pods, *p)
		}
	})
}

func (r *reader) namespaces() error {
	api := r.client.CoreV1().Namespaces()
	return each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, func(n *v1.Namespace) { r.f.Namespaces = append(r.f.Namespaces, *n) })
}

func (r *reader) deployments() error {
	api := r.client.AppsV1().Deployments(r.f.Namespace)
	return each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, func(d *apps.Deployment) { r.f.Deployments = append(r.f.Deployments, *d) })
}

func (r *reader) daemonSets() error {
	api := r.client.AppsV1().DaemonSets(r.f.Namespace)
	return each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, func(d *apps.DaemonSet) { r.f.DaemonSets = append(r.f.DaemonSets, *d) })
}

func (r *reader) lease() error {
	lease, err := r.client.CoordinationV1().Leases(r.f.Namespace).Get(r.ctx, r.f.Scheduler, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	r.f.Lease = lease
	return nil
}

func (r *reader) policies() error {
	api := r.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	return each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, func(p *admission.ValidatingAdmissionPolicy) { r.f.Policies = append(r.f.Policies, *p) })
}

func (r *reader) bindings() error {
	api := r.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	return each(r.ctx, func(o metav1.ListOptions) (runtime.Object, error) { return api.List(r.ctx, o) }, func(b *admission.ValidatingAdmissionPolicyBinding) { r.f.Bindings = append(r.f.Bindings, *b) })
}

// each lists objects in pages and hands over one after the other.
func each[T runtime.Object](ctx context.Context, list func(metav1.ListOptions) (runtime.Object, error), take func(T)) error {
	return pager.New(pager.SimplePageFunc(list)).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		t, ok := o.(T)
		if !ok {
			return fmt.Errorf("the API server answered with a %T", o)
		}
		take(t)
		return nil
	})
}
