package sizefield

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
)

// Owner is the object that says how many members a gang has.
type Owner struct {
	Kind
	Size
	Object *unstructured.Unstructured
	// resource is where the API server serves it.
	resource schema.GroupVersionResource
	// ending are the names of the pods in deletion that the number counts, as Find saw them.
	ending []string
}

// Refusal says why the number of members cannot be changed.
type Refusal struct {
	// Reason is that of a condition, Message a sentence.
	Reason, Message string
}

// Error is the message.
func (r *Refusal) Error() string { return r.Message }

// Reasons of refusals.
const (
	NoOwner       = "NoOwner"
	UnknownOwner  = "UnknownOwner"
	SeveralOwners = "SeveralOwners"
	OwnerMissing  = "OwnerMissing"
	NotAllowed    = "NotAllowed"
	OtherOwner    = "AnotherControllerOwnsTheSize"
	NotElastic    = "OwnerIsNotElastic"
	NotGiven      = "OwnerNotGiven"
	Suspended     = "OwnerIsSuspended"
)

// maxDepth bounds how many owners stand above a pod. It ends a loop of owners; the deepest that is known has three.
const maxDepth = 8

// Finder finds the owners of gangs. The objects that it has read stay in it, so that a Finder is for one pass.
type Finder struct {
	Client dynamic.Interface
	read   map[string]*unstructured.Unstructured
}

// Find returns the object that says how many members a gang has: the highest above the pods of a kind that the table knows.
// An error that is a *Refusal says why there is none; another one is of the API server.
func (f *Finder) Find(ctx context.Context, pods []*v1.Pod) (*Owner, error) {
	var top *Owner
	seen := map[string]bool{} // the owners of the pods, by UID
	for _, pod := range pods {
		ref := metav1.GetControllerOf(pod)
		if ref == nil {
			return nil, &Refusal{NoOwner, fmt.Sprintf("pod %s is a bare pod: no object says how many there are; make the members by a Job", pod.Name)}
		}
		if seen[string(ref.UID)] {
			continue
		}
		seen[string(ref.UID)] = true
		owner, err := f.climb(ctx, pod.Namespace, ref)
		if err != nil {
			return nil, err
		}
		if top != nil && top.Object.GetUID() != owner.Object.GetUID() {
			return nil, &Refusal{SeveralOwners, fmt.Sprintf("the members belong to %s and to %s: the size changes only where one object makes all members", top, owner)}
		}
		top = owner
	}
	var err error
	if top.Size, err = top.Kind.Size(top.Object, pods); err != nil {
		return nil, &Refusal{NotElastic, fmt.Sprintf("%s: %v", top, err)}
	}
	if top.Number == 0 { // a user stops it so; its last pods are still ending
		return nil, &Refusal{Suspended, fmt.Sprintf("%s: %s is 0", top, top.Field())}
	}
	for _, pod := range pods {
		if top.counts(pod) && pod.DeletionTimestamp != nil {
			top.ending = append(top.ending, pod.Name)
		}
	}
	return top, nil
}

// climb goes from the owner of a pod to the highest one.
func (f *Finder) climb(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*Owner, error) {
	var top *Owner
	for range maxDepth {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil {
			return nil, &Refusal{UnknownOwner, fmt.Sprintf("the owner %s has the API version %q", ref.Name, ref.APIVersion)}
		}
		gk := gv.WithKind(ref.Kind).GroupKind()
		if top != nil && slices.Contains(makers, gk) {
			return top, nil
		}
		kind := kindOf(gk)
		switch {
		case kind == nil && top != nil:
			return nil, &Refusal{OtherOwner, fmt.Sprintf("%s %s owns %s, and the controller does not know whether it would change the number back", gk, ref.Name, top)}
		case kind == nil:
			return nil, &Refusal{UnknownOwner, fmt.Sprintf("the members belong to %s %s, and the controller does not know the field for its number of pods", gk, ref.Name)}
		}
		top = &Owner{Kind: *kind, resource: gv.WithResource(kind.Resource)}
		if top.Object, err = f.get(ctx, top, namespace, ref); err != nil {
			return nil, err
		}
		if err := top.free(); err != nil {
			return nil, err
		}
		if ref = metav1.GetControllerOf(top.Object); ref == nil {
			return top, nil
		}
	}
	return nil, &Refusal{UnknownOwner, fmt.Sprintf("more than %d objects own each other above the members", maxDepth)}
}

// get reads an owner.
func (f *Finder) get(ctx context.Context, owner *Owner, namespace string, ref *metav1.OwnerReference) (*unstructured.Unstructured, error) {
	if object := f.read[string(ref.UID)]; object != nil {
		return object, nil
	}
	object, err := f.Client.Resource(owner.resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, &Refusal{OwnerMissing, fmt.Sprintf("%s %s does not exist, or the API server does not serve %s", owner.GroupKind, ref.Name, owner.resource)}
	case apierrors.IsForbidden(err):
		return nil, &Refusal{NotAllowed, fmt.Sprintf("the controller may not read %s %s (%v): bind the ClusterRole %s to its account", owner.GroupKind, ref.Name, err, owner.Role)}
	case err != nil:
		return nil, fmt.Errorf("read %s %s: %w", owner.GroupKind, ref.Name, err)
	case object.GetUID() != ref.UID:
		return nil, &Refusal{OwnerMissing, fmt.Sprintf("%s %s is another one than that of the members", owner.GroupKind, ref.Name)}
	}
	if f.read == nil {
		f.read = map[string]*unstructured.Unstructured{}
	}
	f.read[string(ref.UID)] = object
	return object, nil
}

// kueueKeys are the labels and annotations of objects whose number of pods Kueue decides or checks.
var kueueKeys = []string{
	"kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/prebuilt-workload-name", "kueue.x-k8s.io/managed", "kueue.x-k8s.io/job-min-parallelism",
	"kueue.x-k8s.io/elastic-job",
}

// free returns why the number of an object belongs to somebody else, or must stay now.
func (o *Owner) free() error {
	for _, key := range kueueKeys {
		_, label := o.Object.GetLabels()[key]
		if _, annotation := o.Object.GetAnnotations()[key]; label || annotation {
			return &Refusal{OtherOwner, fmt.Sprintf("%s has %s: Kueue admitted it with its number of pods, and owns that number; remove it from its queue", o, key)}
		}
	}
	if manager, ok := at(o.Object.Object, o.ManagedBy...).(string); o.ManagedBy != nil && ok && !slices.Contains(o.Managers, manager) {
		return &Refusal{OtherOwner, fmt.Sprintf("%s: %s says that %s manages it", o, strings.Join(o.ManagedBy, "."), manager)}
	}
	switch {
	case o.Object.GetDeletionTimestamp() != nil:
		return &Refusal{OwnerMissing, fmt.Sprintf("%s is about to be deleted", o)}
	case o.Suspend != nil && at(o.Object.Object, o.Suspend...) == true:
		return &Refusal{Suspended, fmt.Sprintf("%s: %s is set", o, strings.Join(o.Suspend, "."))}
	}
	return nil
}

// String names the object: "JobSet.jobset.x-k8s.io train".
func (o *Owner) String() string { return o.GroupKind.String() + " " + o.Object.GetName() }

// Field names the field that holds the number: "spec.parallelism".
func (o *Owner) Field() string { return strings.Join(o.Fields[0], ".") }

// Members returns the number of members that the object makes for the gang.
func (o *Owner) Members() int { return o.Others + o.Number*o.Per }

// Fits reports whether the object can make just so many members for the gang.
func (o *Owner) Fits(members int) bool {
	n := members - o.Others
	return n > 0 && n%o.Per == 0 && n/o.Per >= o.Least && (o.Most == 0 || n/o.Per <= o.Most)
}

// Legal says which numbers of members Fits allows, for people.
func (o *Owner) Legal() string {
	most := "any"
	if o.Most > 0 {
		most = strconv.Itoa(o.Others + o.Most*o.Per)
	}
	return fmt.Sprintf("from %d to %s in steps of %d", o.Others+max(o.Least, 1)*o.Per, most, o.Per)
}

// counts reports whether the number counts a pod.
func (o *Owner) counts(pod *v1.Pod) bool {
	for key, value := range o.Counted {
		if pod.Labels[key] != value {
			return false
		}
	}
	return true
}

// Beyond returns the pods that are too many for a number of members: those that the owner deletes then. Pods in deletion are among them where
// their numbers say so.
func (o *Owner) Beyond(pods []*v1.Pod, members int) (beyond []*v1.Pod) {
	for i, within := range o.Within(pods) {
		if within > members {
			beyond = append(beyond, pods[i])
		}
	}
	return beyond
}

// Within returns, for each pod, the least number of members for which the owner keeps it: with a smaller one it deletes the pod. It is 0 for
// pods that no number has deleted. The pods are in the order of their ranks.
func (o *Owner) Within(pods []*v1.Pod) []int {
	within := make([]int, len(pods))
	var there []int
	for i, pod := range pods {
		switch index, err := strconv.Atoi(pod.Labels[o.Index]); {
		case !o.counts(pod):
		case o.Leave == HighestIndex && err == nil:
			within[i] = o.Others + (index-o.First+1)*o.Per
		case o.Leave != HighestIndex && pod.DeletionTimestamp == nil:
			there = append(there, i)
		}
	}
	slices.SortStableFunc(there, func(a, b int) int { // those without a node come last
		switch on := pods[a].Spec.NodeName != ""; {
		case on == (pods[b].Spec.NodeName != ""):
			return membership.RankOf(pods[a]).Compare(membership.RankOf(pods[b]))
		case on:
			return -1
		}
		return 1
	})
	for at, i := range there {
		within[i] = o.Others + (at/o.Per+1)*o.Per
	}
	return within
}
