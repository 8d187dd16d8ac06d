package sizefield

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// ErrChanged says that somebody else has changed the number since it was read. The next pass reads it anew.
var ErrChanged = errors.New("its number of pods has changed since it was read")

// ChangeRefused is the reason of a refusal by the API server that is not for want of a right.
const ChangeRefused = "ChangeRefused"

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// pointer returns the JSON pointer of a path.
func pointer(path []string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	text := ""
	for _, step := range path {
		text += "/" + escape.Replace(step)
	}
	return text
}

// patch returns the JSON patch that gives the gang a number of members. It applies only where the number is the one that was
// read. Those that leave are named where the kind wants that, and so are those in deletion: KubeRay counts these as running unless they are
// named, and would delete as many healthy pods in place of them, or make too few. To delete them again changes nothing, and names of pods
// that are gone are passed over.
func (o *Owner) patch(members int, leave []*v1.Pod) ([]byte, error) {
	list := make([]operation, 0, 2*len(o.Fields)+1)
	fields := o.Fields
	if o.Scale {
		fields = [][]string{{"spec", "replicas"}}
	}
	for _, path := range fields {
		list = append(list, operation{"test", pointer(path), o.Number})
	}
	for _, path := range fields {
		list = append(list, operation{"replace", pointer(path), (members - o.Others) / o.Per})
	}
	if o.Leave == Named {
		names := []string{}
		for _, pod := range leave {
			names = append(names, pod.Name)
		}
		names = append(names, o.ending...)
		last := len(o.Names) - 1
		named := operation{"add", pointer(o.Names), names}
		if !o.NamesParent {
			named = operation{"add", pointer(o.Names[:last]), map[string]any{o.Names[last]: names}}
		}
		list = append(list, named)
	}
	return json.Marshal(list)
}

// Change is a change of the number of members of a gang.
type Change struct {
	Members int
	// Leave are the pods that leave.
	Leave []*v1.Pod
	// Try only asks whether the API server would take the change.
	Try bool
}

// Write gives the gang of an owner another number of members. It returns ErrChanged where somebody else was faster, and a
// *Refusal where the API server, one of its webhooks or its authorizer does not take the change.
func (o *Owner) Write(ctx context.Context, client dynamic.Interface, change Change) error {
	raw, err := o.patch(change.Members, change.Leave)
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: "tandem-controller"}
	if change.Try {
		options.DryRun = []string{metav1.DryRunAll}
	}
	var sub []string
	if o.Scale {
		sub = []string{"scale"}
	}
	of := client.Resource(o.resource).Namespace(o.Object.GetNamespace())
	now, err := of.Patch(ctx, o.Object.GetName(), types.JSONPatchType, raw, options, sub...)
	switch {
	case err == nil && change.Try:
		return nil
	case err == nil:
		o.Number = (change.Members - o.Others) / o.Per
		if o.Scale { // the answer is a Scale, which has no generation
			if now, err = of.Get(ctx, o.Object.GetName(), metav1.GetOptions{}); err != nil {
				return fmt.Errorf("read %s after its change: %w", o, err)
			}
		}
		o.Object = now
		return nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return ErrChanged
	case lacksRight(err):
		resource := o.resource.GroupResource().String()
		if o.Scale {
			resource += "/scale"
		}
		return &Refusal{NotAllowed, fmt.Sprintf("the controller has no right to patch %s in the namespace %s, and so cannot change %s of %s (%v): bind the ClusterRole %s to its account",
			resource, o.Object.GetNamespace(), o.Field(), o, err, o.Role)}
	case !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err) && !apierrors.IsMethodNotSupported(err):
		return fmt.Errorf("change %s of %s: %w", o.Field(), o, err)
	}
	if o.changed(ctx, of) { // the test of the patch failed: the API server has the same code for both
		return ErrChanged
	}
	return &Refusal{ChangeRefused, fmt.Sprintf("the API server does not let %s of %s change from %d to %d: %v", o.Field(), o, o.Number, (change.Members-o.Others)/o.Per, err)}
}

// lacksRight reports whether the API server's authorizer refused a patch. Webhooks and other parts of admission refuse with the same code;
// only an authorizer's answer tells the verb and the resource.
func lacksRight(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot patch resource ")
}

// changed reports whether the number is no longer the one that was read.
func (o *Owner) changed(ctx context.Context, from dynamic.ResourceInterface) bool {
	now, err := from.Get(ctx, o.Object.GetName(), metav1.GetOptions{})
	if err != nil {
		return true
	}
	for _, path := range o.Fields {
		if n, err := whole(now.Object, path); err != nil || n != o.Number {
			return true
		}
	}
	return now.GetUID() != o.Object.GetUID()
}
