package checks

import (
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Source is one of the things that are read from a cluster.
type Source string

// Sources. Reading Server needs no right: the API server tells it of itself.
const (
	Server      Source = "server"
	Nodes       Source = "nodes"
	GPUNodes    Source = "gpunodes.tandem-gpu.io"
	Pods        Source = "pods"
	Namespaces  Source = "namespaces"
	Deployments Source = "deployments.apps"
	DaemonSets  Source = "daemonsets.apps"
	Leases      Source = "leases.coordination.k8s.io"
	Policies    Source = "validatingadmissionpolicies.admissionregistration.k8s.io"
	Bindings    Source = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
)

// Namespaced reports whether a source is read in Tandem's own namespace alone.
func (s Source) Namespaced() bool { return s == Deployments || s == DaemonSets || s == Leases }

// Verb is the right that reading the source takes.
func (s Source) Verb() string {
	if s == Leases {
		return "get"
	}
	return "list"
}

// Unread is an object that could not be read, and why.
type Unread struct{ Name, Why string }

// Facts are what is known of a cluster. Find changes none of them.
type Facts struct {
	// Now is the time of the reader.
	Now time.Time
	// Namespace is where Tandem is installed, and Scheduler the name of its scheduler's lease and label.
	Namespace, Scheduler string
	// ServerVersion is what the API server says of itself, for example v1.37.2.
	ServerVersion string
	// Served has the resources of Tandem's API group and those of PodGroups that the API server serves.
	Served []schema.GroupVersionResource

	Nodes    []v1.Node
	GPUNodes []v1alpha1.GPUNode
	// Unread are the GPUNodes that are there and could not be read.
	Unread []Unread
	// Pods are those of all namespaces.
	Pods       []v1.Pod
	Namespaces []v1.Namespace
	// Deployments and DaemonSets are those of Namespace.
	Deployments []apps.Deployment
	DaemonSets  []apps.DaemonSet
	// Lease is the scheduler's, nil where there is none.
	Lease    *coordination.Lease
	Policies []admission.ValidatingAdmissionPolicy
	Bindings []admission.ValidatingAdmissionPolicyBinding

	// Refused are the sources that the caller may not read, each once.
	Refused []Source

	// index is made by Find.
	index *index
}
