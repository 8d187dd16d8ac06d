package gangs

import (
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// target does what the API server does with a request to write an ElasticTarget, which the tracker of the fake does not: it
// counts resource versions and compares them, and it keeps the status out of updates of the object and the reverse.
func (a *api) target(action clienttesting.Action) (bool, runtime.Object, error) {
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		u := action.GetObject().(*unstructured.Unstructured).DeepCopy()
		u.SetResourceVersion("1")
		if a.targetOf(u.GetName()) != nil {
			return true, nil, apierrors.NewAlreadyExists(v1alpha1.ElasticTargets.GroupResource(), u.GetName())
		}
		return true, u, a.store(u, func() error { return a.dynamic.Tracker().Create(v1alpha1.ElasticTargets, u, namespace) })
	case clienttesting.UpdateActionImpl:
		return a.changeTarget(action.GetObject().(*unstructured.Unstructured).GetName(), action.GetSubresource(), func(*unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return action.GetObject().(*unstructured.Unstructured), nil
		})
	case clienttesting.PatchActionImpl:
		return a.changeTarget(action.GetName(), action.GetSubresource(), func(now *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return merged(now, action.GetPatch())
		})
	case clienttesting.DeleteActionImpl:
		if err := a.dynamic.Tracker().Delete(v1alpha1.ElasticTargets, namespace, action.GetName()); err != nil {
			return true, nil, err
		}
		a.say("target of %s is removed", action.GetName())
		a.sized(action.GetName(), 0)
		return true, nil, nil
	}
	return false, nil, nil
}

// changeTarget stores what change makes of a target, or of its status.
func (a *api) changeTarget(name, sub string, change func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (bool, runtime.Object, error) {
	object, err := a.dynamic.Tracker().Get(v1alpha1.ElasticTargets, namespace, name)
	if err != nil {
		return true, nil, err
	}
	now := object.(*unstructured.Unstructured)
	changed, err := change(now.DeepCopy())
	if err != nil {
		return true, nil, err
	}
	changed = changed.DeepCopy()
	if v := changed.GetResourceVersion(); v != "" && v != now.GetResourceVersion() {
		return true, nil, apierrors.NewConflict(v1alpha1.ElasticTargets.GroupResource(), name, fmt.Errorf("version %s, not %s", now.GetResourceVersion(), v))
	}
	kept := "status"
	if sub == "status" {
		kept = "spec"
	}
	if part, has := now.Object[kept]; has {
		changed.Object[kept] = part
	} else {
		delete(changed.Object, kept)
	}
	version, err := strconv.Atoi(now.GetResourceVersion())
	if err != nil {
		return true, nil, err
	}
	changed.SetResourceVersion(strconv.Itoa(version + 1))
	return true, changed, a.store(changed, func() error { return a.dynamic.Tracker().Update(v1alpha1.ElasticTargets, changed, namespace) })
}

// store stores a target. It notes the number before that, since the scheduler may act on it at once.
func (a *api) store(u *unstructured.Unstructured, put func() error) error {
	workers, _, err := unstructured.NestedInt64(u.Object, "spec", "workers")
	if err != nil {
		return err
	}
	a.sized(u.GetName(), int(workers))
	return put()
}

// merged returns an object with a merge patch.
func merged(now *unstructured.Unstructured, patch []byte) (*unstructured.Unstructured, error) {
	change := map[string]any{}
	if err := json.Unmarshal(patch, &change); err != nil {
		return nil, err
	}
	merge(now.Object, change)
	return now, nil
}

func merge(into, change map[string]any) {
	for key, value := range change {
		part, isMap := value.(map[string]any)
		here, hasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && hasMap:
			merge(here, part)
		default:
			into[key] = value
		}
	}
}

// targetOf returns the ElasticTarget of a gang, nil where there is none.
func (a *api) targetOf(gang string) *v1alpha1.ElasticTarget {
	object, err := a.dynamic.Tracker().Get(v1alpha1.ElasticTargets, namespace, gang)
	if err != nil {
		return nil
	}
	target := &v1alpha1.ElasticTarget{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.(*unstructured.Unstructured).Object, target); err != nil {
		return nil
	}
	return target
}
