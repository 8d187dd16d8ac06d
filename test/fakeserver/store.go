package fakeserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// object is an object as it is stored. Nothing changes it: a change stores another.
type object struct {
	*unstructured.Unstructured
	raw []byte
}

// collection has the objects of a resource by "namespace/name", and all that ever happened to them.
type collection struct {
	objects map[string]*object
	log     []change
	watches map[*stream]bool
}

func (s *Server) collection(of schema.GroupVersionResource) *collection {
	if s.collections[of] == nil {
		s.collections[of] = &collection{objects: map[string]*object{}, watches: map[*stream]bool{}}
	}
	return s.collections[of]
}

// sorted returns the keys of the objects in their order.
func (c *collection) sorted() []string { return slices.Sorted(maps.Keys(c.objects)) }

func (s *Server) get(c *call) (*object, error) {
	if o := s.collection(c.resource).objects[c.key()]; o != nil {
		return o, nil
	}
	return nil, c.notFound()
}

func (s *Server) list(c *call) ([]byte, error) {
	of := s.collection(c.resource)
	selected, err := c.selection()
	if err != nil {
		return nil, err
	}
	var answer bytes.Buffer
	fmt.Fprintf(&answer, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[`, c.kind.name, c.resource.GroupVersion(), s.last)
	between := ""
	for _, key := range of.sorted() {
		if o := of.objects[key]; selected.selects(o) {
			answer.WriteString(between)
			answer.Write(o.raw)
			between = ","
		}
	}
	answer.WriteString("]}")
	return answer.Bytes(), nil
}

// store puts an object in the place of the one with its name, and tells the watches.
func (s *Server) store(c *call, u *unstructured.Unstructured) (*object, error) {
	if !c.dry {
		s.last++
		u.SetResourceVersion(strconv.FormatInt(s.last, 10))
	}
	raw, err := u.MarshalJSON()
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o := &object{u, raw}
	if c.dry {
		return o, nil
	}
	of := s.collection(c.resource)
	of.happened(change{version: s.last, old: of.objects[c.key()], now: o})
	of.objects[c.key()] = o
	return o, nil
}

// remove takes an object away.
func (s *Server) remove(c *call, o *object) ([]byte, error) {
	if c.dry {
		return o.raw, nil
	}
	s.last++
	gone := o.DeepCopy()
	gone.SetResourceVersion(strconv.FormatInt(s.last, 10))
	raw, err := gone.MarshalJSON()
	if err != nil {
		return nil, err
	}
	of := s.collection(c.resource)
	delete(of.objects, c.key())
	of.happened(change{version: s.last, old: o, last: &object{gone, raw}})
	return raw, nil
}

func (c *collection) happened(what change) {
	c.log = append(c.log, what)
	for w := range c.watches {
		w.tell(what)
	}
}

// decode returns the object in the body of a request.
func (c *call) decode(raw []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw, &u.Object); err != nil { // whole numbers as int64
		return nil, apierrors.NewBadRequest(err.Error())
	}
	u.SetGroupVersionKind(c.resource.GroupVersion().WithKind(c.kind.name))
	return u, nil
}

func (s *Server) create(c *call) ([]byte, error) {
	u, err := c.decode(c.body)
	if err != nil {
		return nil, err
	}
	s.names++
	if c.name = u.GetName(); c.name == "" {
		c.name = fmt.Sprintf("%s%05d", u.GetGenerateName(), s.names)
	}
	of := s.collection(c.resource)
	if of.objects[c.key()] != nil {
		if c.kind.name != "Event" {
			return nil, apierrors.NewAlreadyExists(c.resource.GroupResource(), c.name)
		}
		// The names of events are of the time, which does not pass in a bubble between two of them.
		c.name = fmt.Sprintf("%s.%d", c.name, s.names)
	}
	u.SetName(c.name)
	u.SetNamespace(c.namespace)
	u.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.names)))
	u.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
	u.SetGeneration(1)
	u.SetResourceVersion("")
	if c.kind.name != "Node" {
		unstructured.RemoveNestedField(u.Object, "status")
	}
	if err := s.complete(c, u); err != nil {
		return nil, err
	}
	if err := c.kind.rules.apply(c, u, nil); err != nil {
		return nil, err
	}
	if err := s.admit(c, "create"); err != nil {
		return nil, err
	}
	o, err := s.store(c, u)
	if err != nil {
		return nil, err
	}
	return o.raw, nil
}

// update stores the object of a request, or only its status. Without a difference nothing happens.
func (s *Server) update(c *call, raw []byte, verb string) ([]byte, error) {
	old, err := s.get(c)
	if err != nil {
		return nil, err
	}
	u, err := c.decode(raw)
	if err != nil {
		return nil, err
	}
	if v := u.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(c.resource.GroupResource(), c.name,
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if id := u.GetUID(); id != "" && id != old.GetUID() {
		return nil, apierrors.NewConflict(c.resource.GroupResource(), c.name, fmt.Errorf("precondition failed: UID in precondition: %s, UID in object meta: %s", id, old.GetUID()))
	}
	c.keepOld(u, old.Unstructured)
	if err := c.kind.rules.apply(c, u, old.Unstructured); err != nil {
		return nil, err
	}
	if err := s.admit(c, verb); err != nil {
		return nil, err
	}
	if equality.Semantic.DeepEqual(u.Object, old.Object) {
		return old.raw, nil
	}
	if u.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 && !ending(u) {
		return s.remove(c, &object{u, nil})
	}
	o, err := s.store(c, u)
	if err != nil {
		return nil, err
	}
	return o.raw, nil
}

// keepOld gives an object what an update does not change.
func (c *call) keepOld(u, old *unstructured.Unstructured) {
	kept := []string{"status"}
	if c.sub == "status" {
		kept = slices.Concat(slices.Collect(maps.Keys(u.Object)), slices.Collect(maps.Keys(old.Object)))
		kept = slices.DeleteFunc(kept, func(key string) bool { return key == "status" || key == "metadata" })
	}
	for _, key := range kept {
		if value, was := old.Object[key]; was {
			u.Object[key] = value
		} else {
			delete(u.Object, key)
		}
	}
	u.SetUID(old.GetUID())
	u.SetNamespace(old.GetNamespace())
	u.SetName(old.GetName())
	u.SetCreationTimestamp(old.GetCreationTimestamp())
	u.SetDeletionTimestamp(old.GetDeletionTimestamp())
	u.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	u.SetResourceVersion(old.GetResourceVersion())
	u.SetGeneration(old.GetGeneration())
	u.SetManagedFields(nil)
	if !equality.Semantic.DeepEqual(u.Object["spec"], old.Object["spec"]) {
		u.SetGeneration(old.GetGeneration() + 1)
	}
}

// ending tells whether the grace period of an object is for its kubelet to end.
func ending(u *unstructured.Unstructured) bool {
	seconds := u.GetDeletionGracePeriodSeconds()
	return seconds != nil && *seconds > 0
}

// delete removes an object. If the object has finalizers or a grace period, delete only sets its deletionTimestamp.
func (s *Server) delete(c *call) ([]byte, error) {
	old, err := s.get(c)
	if err != nil {
		return nil, err
	}
	options := metav1.DeleteOptions{}
	if len(c.body) > 0 {
		if err := json.Unmarshal(c.body, &options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	c.dry = c.dry || len(options.DryRun) > 0
	if err := c.check(old, options.Preconditions); err != nil {
		return nil, err
	}
	if err := s.admit(c, "delete"); err != nil {
		return nil, err
	}
	grace := int64(0)
	if c.kind.name == "Pod" {
		grace = graceOf(old, options.GracePeriodSeconds)
	}
	if grace == 0 && len(old.GetFinalizers()) == 0 {
		return s.remove(c, old)
	}
	if was := old.GetDeletionGracePeriodSeconds(); old.GetDeletionTimestamp() != nil && (was == nil || *was <= grace) {
		return old.raw, nil
	}
	u := old.DeepCopy()
	at := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second)).Rfc3339Copy()
	u.SetDeletionTimestamp(&at)
	u.SetDeletionGracePeriodSeconds(&grace)
	o, err := s.store(c, u)
	if err != nil {
		return nil, err
	}
	return o.raw, nil
}

// check returns an error where an object is not the one that a request means.
func (c *call) check(o *object, p *metav1.Preconditions) error {
	if p == nil || (p.UID == nil || *p.UID == o.GetUID()) && (p.ResourceVersion == nil || *p.ResourceVersion == o.GetResourceVersion()) {
		return nil
	}
	return apierrors.NewConflict(c.resource.GroupResource(), c.name, fmt.Errorf("precondition failed: UID in object meta: %s", o.GetUID()))
}

// deleteAll deletes all objects that a request selects.
func (s *Server) deleteAll(c *call) ([]byte, error) {
	of := s.collection(c.resource)
	selected, err := c.selection()
	if err != nil {
		return nil, err
	}
	for _, key := range of.sorted() {
		o := of.objects[key]
		if !selected.selects(o) {
			continue
		}
		one := *c
		one.namespace, one.name = o.GetNamespace(), o.GetName()
		if _, err := s.delete(&one); err != nil {
			return nil, err
		}
	}
	return []byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`), nil
}
