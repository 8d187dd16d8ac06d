package podgroup

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/test/must"
)

// both serves all PodGroups.
var both = Served{Native: "v1beta1", XK8s: true}

// world is a Set over stores that the test writes.
type world struct {
	*Set
	pods, native, xk8s cache.Store
}

func newWorld(served Served) *world {
	w := &world{
		pods:   cache.NewStore(cache.MetaNamespaceKeyFunc),
		native: cache.NewStore(cache.MetaNamespaceKeyFunc),
		xk8s:   cache.NewStore(cache.MetaNamespaceKeyFunc),
	}
	w.Set = &Set{
		served: served, pods: w.pods, known: map[string]*member{}, gangs: map[Ref]*gang{},
		groups: map[Source]*groups{},
	}
	if served.XK8s {
		w.groups[XK8s] = &groups{resource: membership.XK8sPodGroups, store: w.xk8s}
	}
	if served.Native != "" {
		w.groups[Native] = &groups{resource: served.native(), store: w.native}
	}
	return w
}

// put stores objects and lets the set know.
func (w *world) put(t testing.TB, objects ...any) {
	t.Helper()
	for _, object := range objects {
		switch o := object.(type) {
		case *v1.Pod:
			must.OK(t, w.pods.Update(o))
			w.podChanged(o)
		case *unstructured.Unstructured:
			source, store := w.of(o)
			d, err := condense(o)
			must.OK(t, err)
			old, _, err := store.Get(d)
			must.OK(t, err)
			must.OK(t, store.Update(d))
			w.groupChanged(source, old, d)
		}
	}
}

// drop removes objects and lets the set know by a tombstone.
func (w *world) drop(t testing.TB, objects ...metav1.Object) {
	t.Helper()
	for _, o := range objects {
		tombstone := cache.DeletedFinalStateUnknown{Key: o.GetNamespace() + "/" + o.GetName(), Obj: o}
		switch object := o.(type) {
		case *v1.Pod:
			must.OK(t, w.pods.Delete(object))
			w.podChanged(tombstone)
		case *unstructured.Unstructured:
			source, store := w.of(object)
			must.OK(t, store.Delete(object))
			w.groupChanged(source, nil, tombstone)
		}
	}
}

func (w *world) of(u *unstructured.Unstructured) (Source, cache.Store) {
	if strings.HasPrefix(u.GetAPIVersion(), string(Native)) {
		return Native, w.native
	}
	return XK8s, w.xk8s
}

// pod returns a pod of namespace ns with the metadata in pairs: a key of a label that starts with "label " and of an
// annotation otherwise, then the value.
func pod(name string, pairs ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	p.Spec.SchedulerName = "tandem-scheduler"
	for i := 0; i < len(pairs); i += 2 {
		if key, ok := strings.CutPrefix(pairs[i], "label "); ok {
			p.Labels[key] = pairs[i+1]
		} else {
			p.Annotations[pairs[i]] = pairs[i+1]
		}
	}
	return p
}

// labelled returns a member of a gang by label.
func labelled(name, gang, least string, pairs ...string) *v1.Pod {
	return pod(name, append([]string{gangLabel, gang, minMembers, least}, pairs...)...)
}

// inGroup returns a member of a PodGroup of Kubernetes.
func inGroup(name, group string, pairs ...string) *v1.Pod {
	p := pod(name, pairs...)
	p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group}
	return p
}

// with changes a copy of a pod.
func with(p *v1.Pod, change func(*v1.Pod)) *v1.Pod {
	p = p.DeepCopy()
	change(p)
	return p
}

// podGroup returns a PodGroup of namespace ns.
func podGroup(source Source, name string, spec map[string]any, annotations map[string]string) *unstructured.Unstructured {
	version := membership.XK8sPodGroups.GroupVersion().String()
	if source == Native {
		version = membership.NativePodGroups.GroupVersion().String()
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": "PodGroup", "spec": spec}}
	u.SetNamespace("ns")
	u.SetName(name)
	u.SetUID(types.UID("uid-of-" + name))
	u.SetAnnotations(annotations)
	u.SetCreationTimestamp(metav1.Unix(1000, 0))
	return u
}

func nativeGang(name string, minCount int64) *unstructured.Unstructured {
	return podGroup(Native, name, map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": minCount}}}, nil)
}

func xk8sGang(name string, minMember int64) *unstructured.Unstructured {
	return podGroup(XK8s, name, map[string]any{"minMember": minMember}, nil)
}

// said describes what Gang returns in one line.
func said(w *world, ref Ref) string {
	g, err := w.Gang(ref)
	text := "no gang"
	if g != nil {
		var names []string
		for i, p := range g.Members {
			if g.Ranks[i] != i {
				return fmt.Sprintf("rank %d at %d", g.Ranks[i], i)
			}
			names = append(names, p.Name)
		}
		text = fmt.Sprintf("%d of %v", g.MinCount, names)
		if len(g.Required) > 0 {
			text += fmt.Sprintf(" within %v", g.Required)
		}
		if len(g.Preferred) > 0 {
			text += fmt.Sprintf(" near %v", g.Preferred)
		}
	}
	var problem *Problem
	switch {
	case errors.As(err, &problem) && problem.Waits:
		text += ", waits: " + problem.Message
	case errors.As(err, &problem):
		text += ", wrong: " + problem.Message
	case err != nil:
		text += ", another error: " + err.Error()
	}
	return text
}
