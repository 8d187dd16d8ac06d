package fakeserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/tandem-gpu/tandem/test/must"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// scene is a server with its clients.
type scene struct {
	*testing.T
	server  *Server
	client  kubernetes.Interface
	objects dynamic.Interface
	pods    corev1.PodInterface
}

// inBubble runs a test with a server in a bubble.
func inBubble(t *testing.T, test func(scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := New(Resource{GroupVersionResource: widgets, Kind: "Widget", Namespaced: true})
		client, err := kubernetes.NewForConfig(s.Config())
		must.OK(t, err)
		objects, err := dynamic.NewForConfig(s.Config())
		must.OK(t, err)
		test(scene{t, s, client, objects, client.CoreV1().Pods("default")})
	})
}

func (s scene) must(err error) {
	s.Helper()
	must.OK(s, err)
}

// pod makes a pod, on a node unless that is "".
func (s scene) pod(name, node string, change ...func(*v1.Pod)) *v1.Pod {
	s.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}}
	p.Spec.Containers = []v1.Container{{Name: "main", Image: "none"}}
	for _, do := range change {
		do(p)
	}
	p, err := s.pods.Create(s.Context(), p, metav1.CreateOptions{})
	s.must(err)
	if node != "" {
		s.must(s.pods.Bind(s.Context(), &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name}, Target: v1.ObjectReference{Name: node}}, metav1.CreateOptions{}))
		p = s.get(name)
	}
	return p
}

func (s scene) get(name string) *v1.Pod {
	s.Helper()
	p, err := s.pods.Get(s.Context(), name, metav1.GetOptions{})
	s.must(err)
	return p
}

// Writers conflict by version, a status is written apart, and a write without a difference is none.
func TestUpdates(t *testing.T) {
	inBubble(t, func(s scene) {
		old := s.pod("a", "")
		changed := old.DeepCopy()
		changed.Labels["tier"] = "web"
		changed.Status.Message = "not by this request"
		changed, err := s.pods.Update(s.Context(), changed, metav1.UpdateOptions{})
		s.must(err)
		if changed.ResourceVersion == old.ResourceVersion || changed.Status.Message != "" || changed.Labels["tier"] != "web" {
			s.Errorf("the pod is %+v", changed)
		}
		if _, err := s.pods.UpdateStatus(s.Context(), old, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			s.Errorf("an update of an old version ends with %v", err)
		}
		patch := []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]},"spec":{"nodeName":"not by this request"}}`)
		for range 2 {
			changed, err = s.pods.Patch(s.Context(), "a", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
			s.must(err)
		}
		if len(changed.Status.Conditions) != 1 || changed.Spec.NodeName != "" {
			s.Errorf("the pod is %+v", changed)
		}
		if again, err := s.pods.Update(s.Context(), changed, metav1.UpdateOptions{}); err != nil || again.ResourceVersion != changed.ResourceVersion {
			s.Errorf("an update without a difference ends with %v, %v", again.ResourceVersion, err)
		}
		patch = []byte(`{"metadata":{"uid":"another"}}`)
		if _, err := s.pods.Patch(s.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); !apierrors.IsConflict(err) {
			s.Errorf("a patch of another pod ends with %v", err)
		}
	})
}

// Typed and dynamic clients see the same objects. Discovery lists the resources that are served, and a request for another one gets NotFound.
func TestResources(t *testing.T) {
	inBubble(t, func(s scene) {
		s.pod("a", "")
		if u, err := s.objects.Resource(v1.SchemeGroupVersion.WithResource("pods")).Namespace("default").Get(s.Context(), "a", metav1.GetOptions{}); err != nil || u.GetKind() != "Pod" {
			s.Errorf("the dynamic client gets %v, %v", u, err)
		}
		w := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(1)}, "status": map[string]any{"ready": true}}}
		w.SetGenerateName("w-")
		w, err := s.objects.Resource(widgets).Namespace("default").Create(s.Context(), w, metav1.CreateOptions{})
		s.must(err)
		if _, has := w.Object["status"]; has || w.GetGeneration() != 1 || !strings.HasPrefix(w.GetName(), "w-") || w.GetUID() == "" {
			s.Errorf("the widget is %v", w)
		}
		list, err := s.client.Discovery().ServerResourcesForGroupVersion("example.com/v1")
		if err != nil || len(list.APIResources) != 1 || !list.APIResources[0].Namespaced {
			s.Errorf("discovery says %v, %v", list, err)
		}
		if _, err := s.client.SchedulingV1beta1().PodGroups("default").List(s.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			s.Errorf("a list of what is not served ends with %v", err)
		}
	})
}

// A watch tells each change from its version on, as its selection sees it.
func TestWatch(t *testing.T) {
	inBubble(t, func(s scene) {
		first := s.pod("a", "")
		s.pod("b", "")
		ctx, cancel := context.WithCancel(s.Context())
		begin := func(options metav1.ListOptions) watch.Interface {
			w, err := s.pods.Watch(ctx, options)
			s.must(err)
			return w
		}
		since := begin(metav1.ListOptions{ResourceVersion: first.ResourceVersion})
		unbound := begin(metav1.ListOptions{FieldSelector: "spec.nodeName=,metadata.name=a"})
		expect := func(w watch.Interface, want watch.EventType, name string) {
			s.Helper()
			if e := <-w.ResultChan(); e.Type != want || e.Object.(*v1.Pod).Name != name {
				s.Fatalf("the event is %s of %s, want %s of %s", e.Type, e.Object.(*v1.Pod).Name, want, name)
			}
		}
		expect(since, watch.Added, "b")
		expect(unbound, watch.Added, "a")
		s.must(s.pods.Bind(s.Context(), &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Target: v1.ObjectReference{Name: "n"}}, metav1.CreateOptions{}))
		expect(since, watch.Modified, "a")
		expect(unbound, watch.Deleted, "a") // it is there, and bound
		s.must(s.pods.Delete(s.Context(), "b", metav1.DeleteOptions{}))
		expect(since, watch.Deleted, "b")
		cancel()
		if _, more := <-unbound.ResultChan(); more {
			s.Error("the watch goes on after its end")
		}
	})
}

// A pod on a node has its grace period, one without ends at once, and finalizers hold both.
func TestDeletion(t *testing.T) {
	inBubble(t, func(s scene) {
		waits := s.pod("waits", "")
		if err := s.pods.Delete(s.Context(), "waits", *metav1.NewPreconditionDeleteOptions("another")); !apierrors.IsConflict(err) {
			s.Errorf("the deletion of another pod ends with %v", err)
		}
		s.must(s.pods.Delete(s.Context(), "waits", *metav1.NewPreconditionDeleteOptions(string(waits.UID))))
		s.pod("runs", "n", func(p *v1.Pod) { p.Finalizers = []string{"example.com/hold"} })
		s.must(s.pods.Delete(s.Context(), "runs", metav1.DeleteOptions{}))
		if p := s.get("runs"); time.Until(p.DeletionTimestamp.Time).Round(time.Second) != 30*time.Second || *p.DeletionGracePeriodSeconds != 30 {
			s.Errorf("the pod ends at %v", p.DeletionTimestamp)
		}
		s.must(s.pods.Delete(s.Context(), "runs", *metav1.NewDeleteOptions(0)))
		p := s.get("runs")
		p.Finalizers = nil
		_, err := s.pods.Update(s.Context(), p, metav1.UpdateOptions{})
		s.must(err)
		if list, err := s.pods.List(s.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
			s.Errorf("the pods are %v, %v", list.Items, err)
		}
	})
}

// A Binding gives a pod its node and annotations, once, and only to the pod that it means.
func TestBindings(t *testing.T) {
	inBubble(t, func(s scene) {
		s.pod("a", "", func(p *v1.Pod) { p.Annotations = map[string]string{"kept": "yes"} })
		bind := func(uid types.UID) error {
			return s.pods.Bind(s.Context(), &v1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid, Annotations: map[string]string{"device": "0"}}, Target: v1.ObjectReference{Name: "n"},
			}, metav1.CreateOptions{})
		}
		if err := bind("another"); !apierrors.IsConflict(err) {
			s.Errorf("the Binding of another pod ends with %v", err)
		}
		accept := s.server.Refuse(func(r Request) error {
			if r.Resource == "pods/binding" {
				return apierrors.NewForbidden(v1.Resource("pods/binding"), r.Name, errors.New("full"))
			}
			return nil
		})
		if err := bind(""); !apierrors.IsForbidden(err) {
			s.Errorf("a refused Binding ends with %v", err)
		}
		accept()
		s.must(bind(""))
		p := s.get("a")
		if p.Spec.NodeName != "n" || p.Annotations["device"] != "0" || p.Annotations["kept"] != "yes" || p.Status.Conditions[0].Type != v1.PodScheduled {
			s.Errorf("the pod is %+v", p)
		}
		if err := bind(""); !apierrors.IsConflict(err) {
			s.Errorf("the second Binding ends with %v", err)
		}
	})
}

// An eviction marks the pod and takes from its budget, and is refused where the budget is spent.
func TestEvictions(t *testing.T) {
	inBubble(t, func(s scene) {
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
		budget.Spec.Selector = &metav1.LabelSelector{}
		budgets := s.client.PolicyV1().PodDisruptionBudgets("default")
		budget, err := budgets.Create(s.Context(), budget, metav1.CreateOptions{})
		s.must(err)
		budget.Status.DisruptionsAllowed = 1
		_, err = budgets.UpdateStatus(s.Context(), budget, metav1.UpdateOptions{})
		s.must(err)
		s.pod("a", "n")
		s.pod("b", "n")
		evict := func(name string) error {
			return s.client.PolicyV1().Evictions("default").Evict(s.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		}
		s.must(evict("a"))
		if p := s.get("a"); p.DeletionTimestamp == nil || p.Status.Conditions[1].Type != v1.DisruptionTarget {
			s.Errorf("the pod is %+v", p)
		}
		if err := evict("b"); !apierrors.IsTooManyRequests(err) || s.get("b").DeletionTimestamp != nil {
			s.Errorf("an eviction beyond the budget ends with %v", err)
		}
	})
}

// A priority class counts as it is when the pod comes. A pod of a class that does not exist is forbidden.
func TestPriorities(t *testing.T) {
	inBubble(t, func(s scene) {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 7, PreemptionPolicy: new(v1.PreemptNever)}
		_, err := s.client.SchedulingV1().PriorityClasses().Create(s.Context(), class, metav1.CreateOptions{})
		s.must(err)
		p := s.pod("a", "", func(p *v1.Pod) { p.Spec.PriorityClassName = "high" })
		if *p.Spec.Priority != 7 || *p.Spec.PreemptionPolicy != v1.PreemptNever || p.Spec.SchedulerName != v1.DefaultSchedulerName {
			s.Errorf("the pod is %+v", p.Spec)
		}
		p = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1.PodSpec{PriorityClassName: "none"}}
		if _, err := s.pods.Create(s.Context(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsForbidden(err) {
			s.Errorf("a pod without its class ends with %v", err)
		}
	})
}

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-validations: [{rule: "self.least <= self.most", message: least must not exceed most}]
            properties:
              least: {type: integer, default: 1}
              most: {type: integer, default: 3, maximum: 9}
`

// Objects of a CustomResourceDefinition have its defaults, lose fields that it does not have, and are refused where it says so, also by an update.
func TestCustom(t *testing.T) {
	resource, err := Custom([]byte(gadgets))
	must.OK(t, err)
	synctest.Test(t, func(t *testing.T) {
		objects, err := dynamic.NewForConfig(New(resource).Config())
		must.OK(t, err)
		api := objects.Resource(resource.GroupVersionResource).Namespace("default")
		gadget := func(name string, spec map[string]any) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": name}, "spec": spec,
			}}
		}
		made, err := api.Create(t.Context(), gadget("a", map[string]any{"least": int64(2), "colour": "red"}), metav1.CreateOptions{})
		must.OK(t, err)
		if diff := cmp.Diff(map[string]any{"least": int64(2), "most": int64(3)}, made.Object["spec"]); diff != "" {
			t.Error(diff)
		}
		for _, test := range []struct {
			spec map[string]any
			want string
		}{
			{map[string]any{"least": int64(4)}, "least must not exceed most"},
			{map[string]any{"most": int64(10)}, "spec.most in body should be less than or equal to 9"},
			{map[string]any{"most": "many"}, "must be of type integer"},
		} {
			_, create := api.Create(t.Context(), gadget("b", test.spec), metav1.CreateOptions{})
			update := gadget("a", test.spec)
			update.SetResourceVersion(made.GetResourceVersion())
			_, changed := api.Update(t.Context(), update, metav1.UpdateOptions{})
			for _, err := range []error{create, changed} {
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v: %v, want %s", test.spec, err, test.want)
				}
			}
		}
	})
}
