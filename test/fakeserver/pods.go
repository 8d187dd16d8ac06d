package fakeserver

import (
	"encoding/json"
	"fmt"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	batchdefaults "k8s.io/kubernetes/pkg/apis/batch/v1"
	coredefaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/scheduling"
)

var (
	priorityClasses = schedulingv1.SchemeGroupVersion.WithResource("priorityclasses")
	budgets         = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
)

// schedulingGroup is the group of Kubernetes' own PodGroup.
const schedulingGroup = schedulingv1beta1.GroupName

// complete gives a new object what admission and the defaults of its kind add.
func (s *Server) complete(c *call, u *unstructured.Unstructured) error {
	switch c.kind.name {
	case "Pod":
		return typed(u, func(p *v1.Pod) error { return s.completePod(c, p) })
	case "Job":
		return typed(u, func(j *batchv1.Job) error {
			s.completeJob(j)
			return nil
		})
	case "PodGroup":
		if c.resource.Group == schedulingGroup {
			return typed(u, func(g *schedulingv1beta1.PodGroup) error {
				priority, _, err := s.priority(c, g.Spec.PriorityClassName)
				g.Spec.Priority = &priority
				g.Finalizers = append(g.Finalizers, scheduling.PodGroupProtectionFinalizer)
				return err
			})
		}
	}
	return nil
}

// typed changes an object by its Go type.
func typed[T any](u *unstructured.Unstructured, change func(*T) error) error {
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return err
	}
	object := new(T)
	if err := json.Unmarshal(raw, object); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := change(object); err != nil {
		return err
	}
	if raw, err = json.Marshal(object); err != nil {
		return err
	}
	return u.UnmarshalJSON(raw)
}

// read returns an object by its Go type.
func read[T any](o *object) (*T, error) {
	object := new(T)
	return object, json.Unmarshal(o.raw, object)
}

func (s *Server) completePod(c *call, p *v1.Pod) error {
	if !s.native {
		p.Spec.SchedulingGroup = nil
	}
	coredefaults.SetObjectDefaults_Pod(p)
	priority, policy, err := s.priority(c, p.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	p.Spec.Priority, p.Spec.PreemptionPolicy = &priority, policy
	for _, key := range []string{v1.TaintNodeNotReady, v1.TaintNodeUnreachable} {
		p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{
			Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: new(int64(300)),
		})
	}
	p.Status = v1.PodStatus{Phase: v1.PodPending, QOSClass: v1.PodQOSBestEffort}
	if len(p.Spec.SchedulingGates) > 0 {
		p.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates",
		}}
	}
	return nil
}

// priority returns what a priority class stands for.
func (s *Server) priority(c *call, class string) (int32, *v1.PreemptionPolicy, error) {
	if class == "" {
		return 0, new(v1.PreemptLowerPriority), nil
	}
	if class == "system-node-critical" || class == "system-cluster-critical" {
		return 2000000000, new(v1.PreemptLowerPriority), nil
	}
	o := s.collection(priorityClasses).objects["/"+class]
	if o == nil {
		return 0, nil, apierrors.NewForbidden(c.resource.GroupResource(), c.name, fmt.Errorf("no PriorityClass with name %v was found", class))
	}
	found, err := read[schedulingv1.PriorityClass](o)
	if err != nil {
		return 0, nil, err
	}
	if found.PreemptionPolicy == nil {
		found.PreemptionPolicy = new(v1.PreemptLowerPriority)
	}
	return found.Value, found.PreemptionPolicy, nil
}

// completeJob has the pods of a Job name it.
func (s *Server) completeJob(j *batchv1.Job) {
	if !s.native {
		j.Spec.Template.Spec.SchedulingGroup = nil
	}
	batchdefaults.SetObjectDefaults_Job(j)
	names := map[string]string{
		batchv1.ControllerUidLabel: string(j.UID), batchv1.JobNameLabel: j.Name, "controller-uid": string(j.UID), "job-name": j.Name,
	}
	if j.Spec.Template.Labels == nil {
		j.Spec.Template.Labels = map[string]string{}
	}
	maps.Copy(j.Spec.Template.Labels, names)
	j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: string(j.UID)}}
}

// bind gives a pod its node and the annotations of a Binding in one step.
func (s *Server) bind(c *call) ([]byte, error) {
	b := &v1.Binding{}
	if err := json.Unmarshal(c.body, b); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	c.dry = c.dry || c.query.Get("dryRun") != ""
	old, err := s.get(c)
	if err != nil {
		return nil, err
	}
	u := old.DeepCopy()
	err = typed(u, func(p *v1.Pod) error {
		why := ""
		switch {
		case b.UID != "" && b.UID != p.UID:
			why = fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", b.UID, p.UID)
		case p.DeletionTimestamp != nil:
			why = fmt.Sprintf("pod %s is being deleted, cannot be assigned to a host", p.Name)
		case p.Spec.NodeName != "":
			why = fmt.Sprintf("pod %s is already assigned to node %q", p.Name, p.Spec.NodeName)
		case len(p.Spec.SchedulingGates) > 0:
			why = fmt.Sprintf("pod %s has non-empty .spec.schedulingGates", p.Name)
		}
		if why != "" {
			return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, c.name, fmt.Errorf("%s", why))
		}
		p.Spec.NodeName = b.Target.Name
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		maps.Copy(p.Annotations, b.Annotations)
		now := metav1.Now().Rfc3339Copy()
		setCondition(p, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: now})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.admit(c, "create"); err != nil {
		return nil, err
	}
	if _, err := s.store(c, u); err != nil {
		return nil, err
	}
	return []byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`), nil
}

// graceOf returns how long a pod is given to end.
func graceOf(o *object, asked *int64) int64 {
	p, err := read[v1.Pod](o)
	switch {
	case err != nil || p.Spec.NodeName == "" || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed:
		return 0
	case asked != nil:
		return max(*asked, 0)
	case p.Spec.TerminationGracePeriodSeconds != nil:
		return *p.Spec.TerminationGracePeriodSeconds
	}
	return v1.DefaultTerminationGracePeriodSeconds
}

// evict deletes a pod where the budgets allow it, and marks it as a disruption.
func (s *Server) evict(c *call) ([]byte, error) {
	e := &policyv1.Eviction{}
	if err := json.Unmarshal(c.body, e); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	old, err := s.get(c)
	if err != nil {
		return nil, err
	}
	if e.DeleteOptions == nil {
		e.DeleteOptions = &metav1.DeleteOptions{}
	}
	if err := c.check(old, e.DeleteOptions.Preconditions); err != nil {
		return nil, err
	}
	if err := s.admit(c, "create"); err != nil {
		return nil, err
	}
	if old.GetDeletionTimestamp() == nil {
		if err := s.spend(c, old); err != nil {
			return nil, err
		}
		if err := s.disrupt(c, old); err != nil {
			return nil, err
		}
	}
	c.sub, e.DeleteOptions.Preconditions = "", nil
	if c.body, err = json.Marshal(e.DeleteOptions); err != nil {
		return nil, err
	}
	if _, err := s.delete(c); err != nil {
		return nil, err
	}
	return []byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`), nil
}

// disrupt gives a pod the condition by which its owner tells eviction from failure.
func (s *Server) disrupt(c *call, pod *object) error {
	u := pod.DeepCopy()
	err := typed(u, func(p *v1.Pod) error {
		setCondition(p, v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
			LastTransitionTime: metav1.Now().Rfc3339Copy(),
		})
		return nil
	})
	if err == nil {
		_, err = s.store(c, u)
	}
	return err
}

// setCondition puts a condition in the place of the one of its type.
func setCondition(p *v1.Pod, condition v1.PodCondition) {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == condition.Type {
			p.Status.Conditions[i] = condition
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, condition)
}

// spend takes an eviction from the budgets of a pod.
func (s *Server) spend(c *call, pod *object) error {
	of := s.collection(budgets)
	for _, key := range of.sorted() {
		budget, err := read[policyv1.PodDisruptionBudget](of.objects[key])
		if err != nil {
			return err
		}
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || budget.Namespace != pod.GetNamespace() || !selector.Matches(labels.Set(pod.GetLabels())) {
			continue
		}
		if budget.Status.DisruptionsAllowed < 1 {
			return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		}
		budget.Status.DisruptionsAllowed--
		raw, err := json.Marshal(budget)
		if err != nil {
			return err
		}
		one := &call{resource: budgets, kind: s.kinds[budgets], namespace: budget.Namespace, name: budget.Name, sub: "status", dry: c.dry}
		if _, err := s.update(one, raw, "update"); err != nil {
			return err
		}
	}
	return nil
}
