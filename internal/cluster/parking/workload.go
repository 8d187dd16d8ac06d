package parking

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
)

// Kinds of workloads.
const (
	KindStatefulSet = "StatefulSet"
	KindDeployment  = "Deployment"
)

// Workload is what controller and activator read of a StatefulSet or a Deployment.
type Workload struct {
	Kind, Namespace, Name string
	UID                   types.UID
	Annotations           map[string]string
	// Replicas is how many pods it asks for. IsWoken says that the activator wrote that: the API server notes so until somebody writes another number.
	Replicas int
	IsWoken  bool
	// Selector matches its pods: none where it is longer than MaxSelector.
	Selector labels.Selector
	// selects is how long the selector is.
	selects int
	// HostNetwork says that its pods have no address of their own.
	HostNetwork bool
	// Leaves says that it is being deleted.
	Leaves bool
	// Owner is the object that made it and may write its replicas, as "Notebook zoe"; empty for none.
	Owner string
}

// MaxSelector bounds the labels, expressions and values of a selector. Activator and controller read the selectors of all workloads, and compare them with the pods
// of a namespace again and again: one of an object's full size takes seconds for that. Owners need one label.
const MaxSelector = 16

// OfStatefulSet returns a StatefulSet as a workload.
func OfStatefulSet(s *appsv1.StatefulSet) *Workload {
	return workload(KindStatefulSet, &s.ObjectMeta, s.Spec.Replicas, s.Spec.Selector, &s.Spec.Template)
}

// OfDeployment returns a Deployment as a workload.
func OfDeployment(d *appsv1.Deployment) *Workload {
	return workload(KindDeployment, &d.ObjectMeta, d.Spec.Replicas, d.Spec.Selector, &d.Spec.Template)
}

func workload(kind string, m *metav1.ObjectMeta, replicas *int32, selector *metav1.LabelSelector, template *v1.PodTemplateSpec) *Workload {
	w := &Workload{
		Kind: kind, Namespace: m.Namespace, Name: m.Name, UID: m.UID, Annotations: m.Annotations, Replicas: 1,
		HostNetwork: template.Spec.HostNetwork, Leaves: m.DeletionTimestamp != nil, IsWoken: slices.ContainsFunc(m.ManagedFields, IsWake),
	}
	if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
		w.Owner = owner.Kind + " " + owner.Name
	}
	if replicas != nil {
		w.Replicas = int(*replicas)
	}
	w.Selector, w.selects = labels.Nothing(), kube.SelectorLength(selector)
	if w.selects <= MaxSelector {
		if s, err := metav1.LabelSelectorAsSelector(selector); err == nil { // the API server takes no selector with an error
			w.Selector = s
		}
	}
	return w
}

// IsWake reports whether an entry of managed fields says that the activator wrote the replicas of its object. It writes nothing else of one.
func IsWake(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == Activator && e.Subresource == "scale"
}

// String names a workload in messages.
func (w *Workload) String() string { return fmt.Sprintf("%s %s/%s", w.Kind, w.Namespace, w.Name) }

// Reference is what events of a workload are about.
func (w *Workload) Reference() *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: w.Kind, Namespace: w.Namespace, Name: w.Name, UID: w.UID}
}

// Unfit says why a workload cannot be parked, empty where it can. It does not say whether its owner allows that.
func (w *Workload) Unfit() string {
	switch {
	case w.Replicas > 1:
		return fmt.Sprintf("spec.replicas: a notebook has one pod, %s asks for %d: set it to 1, or remove the annotations of notebooks", w, w.Replicas)
	case w.Owner != "":
		return fmt.Sprintf("metadata.ownerReferences: %s belongs to %s, which writes its replicas: stop the notebook by that object, or make the workload without an owner; "+
			"remove the annotations of notebooks", w, w.Owner)
	case w.selects > MaxSelector:
		return fmt.Sprintf("spec.selector: that of a notebook has at most %d labels, expressions and values together, %s has %d: make it anew with fewer, "+
			"or remove the annotations of notebooks", MaxSelector, w, w.selects)
	case w.HostNetwork:
		return fmt.Sprintf("spec.template.spec.hostNetwork: the pod of %s has no address of its own: remove it, or the annotations of notebooks", w)
	}
	return ""
}

// Pod returns the pod of a workload, of pods that its selector matches: nil where there is none that runs or will run. An error says that there
// are several, as while a Deployment replaces its pod.
func (w *Workload) Pod(pods []*v1.Pod) (*v1.Pod, error) {
	var found *v1.Pod
	for _, p := range pods {
		if !w.owns(p) || p.DeletionTimestamp != nil || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%s has the pods %s and %s, a notebook has one", w, found.Name, p.Name)
		}
		found = p
	}
	return found, nil
}

// owns reports whether a workload made a pod that its selector matches. The ReplicaSet of a Deployment is known by its name.
func (w *Workload) owns(p *v1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(p)
	switch {
	case owner == nil:
		return false
	case w.Kind == KindStatefulSet:
		return owner.UID == w.UID
	}
	return owner.Kind == "ReplicaSet" && strings.HasPrefix(owner.Name, w.Name+"-")
}

// crashes is after how many restarts a container that waits for the next one is taken to come up never.
const crashes = 5

// Crashes reports whether the pod has a container that ends each time that it starts, so that nothing can work in it.
func Crashes(p *v1.Pod) bool {
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		if s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff" && s.RestartCount >= crashes {
			return true
		}
	}
	return false
}

// ReadySince returns when a pod became ready, and false where it is not.
func ReadySince(p *v1.Pod) (metav1.Time, bool) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodReady {
			return c.LastTransitionTime, c.Status == v1.ConditionTrue
		}
	}
	return metav1.Time{}, false
}
