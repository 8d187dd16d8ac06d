package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/test/must"
)

// Refusals by the policies that bound Tandem's own accounts.
const (
	byAccountEvictions = "ValidatingAdmissionPolicy 'tandem-account-evictions'"
	byAccountPods      = "ValidatingAdmissionPolicy 'tandem-account-pods'"
	byAccountScale     = "ValidatingAdmissionPolicy 'tandem-account-scale'"
	byAccountStatus    = "ValidatingAdmissionPolicy 'tandem-account-status'"
	byAccountWorkloads = "ValidatingAdmissionPolicy 'tandem-account-workloads'"
	// byOneOfTwo is a refusal of metadata that the scheduler writes by pods/status, where the metadata has a policy of its own too: the API server
	// names any of the two.
	byOneOfTwo = "ValidatingAdmissionPolicy 'tandem-"
)

// awaitRefused waits until the API server enforces a policy. Each request has to be another one: the API server accepts one that changes nothing.
func awaitRefused(t *testing.T, policy string, send func(i int) error) {
	t.Helper()
	i := 0
	await(t, policy+" is enforced", func(context.Context) (bool, error) {
		i++
		return send(i) != nil, nil
	})
}

// The controller writes its own annotations on a pod, whoever's it is, and changes nothing else. An account with all rights does.
func TestControllerWritesItsAnnotationsAlone(t *testing.T) {
	makePowerful(t)
	p := plainPod()
	p.Labels, p.Annotations = map[string]string{"app": "web"}, map[string]string{"whose": "jane"}
	system := p.DeepCopy()
	system.Namespace, system.Name = metav1.NamespaceSystem, "system"
	p = create(t.Context(), t, client(t.Context(), t, jane), p)
	system = create(t.Context(), t, client(t.Context(), t, admin), system)
	image := `{"spec":{"containers":[{"name":"main","image":"evil"}]}}`
	change := func(c kubernetes.Interface, p *corev1.Pod, body string) error {
		_, err := c.CoreV1().Pods(p.Namespace).Patch(t.Context(), p.Name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	c := client(t.Context(), t, controller)
	awaitRefused(t, byAccountPods, func(i int) error { return change(c, p, fmt.Sprintf(`{"metadata":{"labels":{"canary":"%d"}}}`, i)) })
	for name, body := range map[string]string{
		"image": image, "label": `{"metadata":{"labels":{"app":"other"}}}`, "no label": `{"metadata":{"labels":{"app":null}}}`,
		"finalizer":        `{"metadata":{"finalizers":["example.com/stay"]}}`,
		"owner":            `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}]}}`,
		"other annotation": `{"metadata":{"annotations":{"a":"b"}}}`, "other value": `{"metadata":{"annotations":{"whose":"mine"}}}`,
		"no annotation": `{"metadata":{"annotations":{"whose":null}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, change(c, p, body), byAccountPods, "Tandem's controller")
			wantRefusal(t, change(c, system, body), byAccountPods)
		})
	}
	for _, key := range []string{"tandem-gpu.io/leaving-at", "tandem-gpu.io/notebook-idle-since", "tandem-gpu.io/notebook-parks-at", "controller.kubernetes.io/pod-deletion-cost"} {
		for _, value := range []string{`"-1000000"`, "null"} {
			must.OK(t, change(c, p, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, value)))
		}
	}
	must.OK(t, change(client(t.Context(), t, powerful), p, image))
}

// A scheduler says why a pod waits, and gives it no address and no phase.
func TestSchedulerWritesNoAddress(t *testing.T) {
	p := create(t.Context(), t, client(t.Context(), t, jane), pod("waits"))
	c := client(t.Context(), t, scheduler)
	status := func(body string) error {
		return patch(types.StrategicMergePatchType, `{"status":`+body+`}`, "status")(t.Context(), c, p)
	}
	awaitRefused(t, byAccountStatus, func(i int) error { return status(fmt.Sprintf(`{"message":"canary %d"}`, i)) })
	must.OK(t, status(`{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}],"nominatedNodeName":"n1"}`))
	must.OK(t, status(`{"nominatedNodeName":null}`))
	wantRefusal(t, status(`{"podIP":"10.0.0.9","podIPs":[{"ip":"10.0.0.9"}]}`), byAccountStatus, "conditions")
	wantRefusal(t, status(`{"phase":"Failed"}`), byAccountStatus)
	for _, metadata := range []string{`{"labels":{"app":"other"}}`, `{"annotations":{"a":"b"}}`, `{"finalizers":["example.com/stay"]}`} {
		wantRefusal(t, patch(types.MergePatchType, `{"metadata":`+metadata+`}`, "status")(t.Context(), c, p), byAccountStatus, "stay as they are")
	}
}

// The controller evicts the pods of teams, none of Kubernetes and none of Tandem. A scheduler releases gangs wherever they are, in its own namespace too.
func TestAccountsEvict(t *testing.T) {
	makePowerful(t)
	for _, namespace := range []string{team, metav1.NamespaceSystem, systemNamespace} {
		p := plainPod()
		p.Namespace, p.Name = namespace, "evicted"
		create(t.Context(), t, client(t.Context(), t, admin), p)
	}
	bindings := client(t.Context(), t, admin).RbacV1().ClusterRoleBindings()
	binding, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "further-scheduler"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tandem-scheduler"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "scheduler", Namespace: team}},
	}, metav1.CreateOptions{})
	must.OK(t, err)
	t.Cleanup(func() {
		if err := bindings.Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("remove ClusterRoleBinding: %v", err)
		}
	})
	further := account("system:serviceaccount:" + team + ":scheduler")
	await(t, "the further scheduler may schedule", func(context.Context) (bool, error) { return may(t, further, "schedule vgpus"), nil })
	evict := func(who account, namespace string) error {
		return client(t.Context(), t, who).PolicyV1().Evictions(namespace).Evict(t.Context(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "evicted"}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
		})
	}
	awaitRefused(t, byAccountEvictions, func(int) error { return evict(controller, metav1.NamespaceSystem) })
	for _, namespace := range []string{metav1.NamespaceSystem, systemNamespace} {
		wantRefusal(t, evict(controller, namespace), byAccountEvictions, "evicts nothing in the namespaces kube-* and in tandem-system")
	}
	must.OK(t, evict(controller, team))
	for _, who := range []account{further, scheduler, powerful} {
		for _, namespace := range []string{team, metav1.NamespaceSystem, systemNamespace} {
			must.OK(t, evict(who, namespace))
		}
	}
}

// deployment makes a Deployment until the test ends.
func deployment(t *testing.T, namespace, name string, replicas int32) {
	t.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: plainPod().Spec},
	}}
	all := client(t.Context(), t, admin).AppsV1().Deployments(namespace)
	_, err := all.Create(t.Context(), d, metav1.CreateOptions{})
	must.OK(t, err)
	t.Cleanup(func() {
		if err := all.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("remove Deployment: %v", err)
		}
	})
}

// Tandem's accounts scale what teams have, nothing of Kubernetes and nothing of Tandem. The activator wakes, and does nothing else.
func TestAccountsScaleWhatTeamsHave(t *testing.T) {
	makePowerful(t)
	for _, namespace := range []string{team, metav1.NamespaceSystem, systemNamespace} {
		deployment(t, namespace, "scaled", 3)
		deployment(t, namespace, "parked", 0)
	}
	scale := func(who account, namespace, name string, replicas int) error {
		_, err := client(t.Context(), t, who).AppsV1().Deployments(namespace).
			Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{}, "scale")
		return err
	}
	awaitRefused(t, byAccountScale, func(int) error { return scale(activator, team, "scaled", 3) })
	for _, who := range []account{controller, activator} {
		for _, namespace := range []string{metav1.NamespaceSystem, systemNamespace} {
			wantRefusal(t, scale(who, namespace, "parked", 1), byAccountScale, "scale nothing in the namespaces kube-* and in tandem-system")
		}
	}
	for _, replicas := range []int{0, 1, 5} {
		wantRefusal(t, scale(activator, team, "scaled", replicas), byAccountScale, "from 0 to 1 alone, not from 3")
	}
	wantRefusal(t, scale(activator, team, "parked", 2), byAccountScale, "not from 0 to 2")
	must.OK(t, scale(activator, team, "parked", 1))
	must.OK(t, scale(controller, team, "scaled", 5))
	must.OK(t, scale(controller, team, "scaled", 0))
	must.OK(t, scale(powerful, metav1.NamespaceSystem, "scaled", 0))
}

// The controller changes the number of a Job's pods, and nothing else of it.
func TestControllerChangesTheNumberOfAJob(t *testing.T) {
	all := client(t.Context(), t, admin).BatchV1().Jobs(team)
	spec := plainPod().Spec
	spec.RestartPolicy = corev1.RestartPolicyNever
	job, err := all.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "bounded", Labels: map[string]string{"app": "train"}}, Spec: batchv1.JobSpec{
		Parallelism: new(int32(2)), Completions: new(int32(2)), CompletionMode: new(batchv1.IndexedCompletion), Suspend: new(true),
		Template: corev1.PodTemplateSpec{Spec: spec},
	}}, metav1.CreateOptions{})
	must.OK(t, err)
	t.Cleanup(func() {
		if err := all.Delete(context.WithoutCancel(t.Context()), job.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("remove Job: %v", err)
		}
	})
	change := func(body string) error {
		_, err := client(t.Context(), t, controller).BatchV1().Jobs(team).Patch(t.Context(), job.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	awaitRefused(t, byAccountWorkloads, func(i int) error { return change(fmt.Sprintf(`{"spec":{"activeDeadlineSeconds":%d}}`, 900+i)) })
	must.OK(t, change(`{"spec":{"parallelism":4,"completions":4}}`))
	wantRefusal(t, change(`{"spec":{"suspend":false}}`), byAccountWorkloads, "changes parallelism of jobs alone")
	wantRefusal(t, change(`{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}`), byAccountWorkloads)
	for _, metadata := range []string{
		`{"labels":{"a":"b"}}`, `{"labels":null}`, `{"annotations":{"a":"b"}}`, `{"finalizers":["example.com/stay"]}`,
		`{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}]}`,
	} {
		wantRefusal(t, change(`{"metadata":`+metadata+`}`), byAccountWorkloads, "labels, annotations, owners and finalizers stay as they are")
	}
}

// rights are what an account may do: "verb resource".
type rights []string

func (r rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(r, a.GetVerb()+" "+a.GetResource()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// objectOf reads an object.
func objectOf(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	must.OK(t, err)
	o := &unstructured.Unstructured{}
	must.OK(t, o.UnmarshalJSON(raw))
	return o
}

// allows reports whether a policy lets an account change an object, by the expressions alone.
func (c compiled) allows(t *testing.T, may rights, resource string, old, now *unstructured.Unstructured) bool {
	t.Helper()
	kind := now.GroupVersionKind()
	of := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource}
	who := &user.DefaultInfo{Name: "system:serviceaccount:tandem-system:tandem-controller"}
	attributes := admission.NewAttributesRecord(now, old, kind, team, "x", of, "", admission.Update, nil, false, who)
	sent := &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: kind, VersionedObject: admission.NewLazyObject(now), VersionedOldObject: admission.NewLazyObject(old),
	}
	request := cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(of), metav1.GroupVersionKind(kind))
	holds := func(part cel.ConditionEvaluator) bool {
		results, _, err := part.ForInput(t.Context(), sent, request, cel.OptionalVariableBindings{Authorizer: may},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}, celconfig.RuntimeCELCostBudgetMatchConditions)
		must.OK(t, err)
		all := true
		for _, r := range results {
			if r.Error != nil {
				t.Errorf("%s: %v", c.name, r.Error)
			}
			all = all && r.EvalResult != nil && r.EvalResult.Value() == true
		}
		return all
	}
	return !holds(c.conditions) || holds(c.validations)
}

// The controller changes numbers of the kinds that operators add, names pods that leave and weighs backends. It changes nothing that pods run, and no
// address. This cluster does not have these kinds: the expressions are asked.
func TestControllerChangesNumbersOfOperators(t *testing.T) {
	var policy *admissionv1.ValidatingAdmissionPolicy
	for _, p := range allPolicies(t) {
		if p.Name == "tandem-account-workloads" {
			policy = p
		}
	}
	c := compile(t, policy, "1.37")
	const (
		named   = "{name: x}"
		pytorch = "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: {pytorchReplicaSpecs: {Worker: {replicas: 2, template: {spec: {image: i}}}}}}"
		ray     = "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: x}, spec: {headGroupSpec: {template: {}}, workerGroupSpecs: [{groupName: g, replicas: 2, template: {spec: {image: i}}}]}}"
		set     = "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: x}, spec: {suspend: true, replicatedJobs: [{name: w, replicas: 1, template: {spec: {parallelism: 2, template: {spec: {image: i}}}}}]}}"
		train   = "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: x}, spec: {runtimeRef: {name: r}, trainer: {numNodes: 2, image: i}}}"
		route   = "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: x}, spec: {parentRefs: [], rules: [{matches: [{path: {value: /}}], backendRefs: [{name: a, port: 80, weight: 1}]}]}}"
	)
	for _, test := range []struct {
		resource, object, from, to string
		want                       bool
	}{
		{"pytorchjobs", pytorch, "replicas: 2", "replicas: 3", true},
		{"pytorchjobs", pytorch, "image: i", "image: evil", false},
		{"pytorchjobs", pytorch, "{Worker", "{Master: {template: {}}, Worker", false},
		{"tfjobs", strings.NewReplacer("PyTorchJob", "TFJob", "pytorch", "tf").Replace(pytorch), "image: i", "image: evil", false},
		{"mpijobs", strings.NewReplacer("PyTorchJob", "MPIJob", "pytorch", "mpi").Replace(pytorch), "replicas: 2", "replicas: 1", true},
		{"rayclusters", ray, "replicas: 2", "replicas: 1, scaleStrategy: {workersToDelete: [a]}", true},
		{"rayclusters", ray, "image: i", "image: evil", false},
		{"rayclusters", ray, "{template: {}}", "{template: {a: b}}", false},
		{"jobsets", set, "parallelism: 2", "parallelism: 3, completions: 3", true},
		{"jobsets", set, "replicas: 1", "replicas: 4", true},
		{"jobsets", set, "image: i", "image: evil", false},
		{"jobsets", set, "suspend: true", "suspend: false", false},
		{"trainjobs", train, "numNodes: 2", "numNodes: 8", true},
		{"trainjobs", train, "image: i", "image: evil", false},
		{"trainjobs", train, "name: r", "name: other", false},
		{"httproutes", route, "weight: 1", "weight: 0", true},
		{"httproutes", route, "name: a", "name: evil", false},
		{"httproutes", route, "value: /", "value: /other", false},
		{"httproutes", route, "parentRefs: []", "parentRefs: [{name: other}]", false},
		{"pytorchjobs", pytorch, named, "{name: x, labels: {kueue.x-k8s.io/queue-name: other}}", false},
		{"jobsets", set, named, "{name: x, annotations: {a: b}}", false},
		{"trainjobs", train, named, "{name: x, finalizers: [example.com/stay]}", false},
		{"rayclusters", ray, named, "{name: x, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: c, uid: u}]}", false},
		{"httproutes", route, named, "{name: x, labels: {a: b}}", false},
		{"httproutes", route, named, "{name: x, resourceVersion: '2', generation: 2, managedFields: [{manager: tandem-controller}]}", true},
	} {
		old, now := objectOf(t, test.object), objectOf(t, strings.Replace(test.object, test.from, test.to, 1))
		if got := c.allows(t, rights{"resize vgpus"}, test.resource, old, now); got != test.want {
			t.Errorf("%s, %s to %s: allowed is %t", test.resource, test.from, test.to, got)
		}
		for _, other := range []rights{nil, {"resize vgpus", "delete gpunodes"}} {
			if !c.allows(t, other, test.resource, old, now) {
				t.Errorf("%s, %s to %s: an account that may %v is bounded", test.resource, test.from, test.to, other)
			}
		}
	}
}

// The guide lists what the accounts can change in a namespace of users, with what bounds it.
func TestAccountsChangeWhatTheGuideLists(t *testing.T) {
	for who, heading := range map[account]string{
		scheduler: "### What the scheduler's account can change", controller: "### What the controller's account can change",
		activator: "### What the activator's account can change",
	} {
		got := slices.DeleteFunc(rules(t, as(t.Context(), t, who), team), func(rule string) bool {
			verb, what, _ := strings.Cut(rule, " ")
			return slices.Contains([]string{"get", "list", "watch"}, verb) || strings.HasPrefix(what, "/") || strings.HasPrefix(what, "selfsubject")
		})
		if diff := cmp.Diff(documented(t, heading), got); diff != "" {
			t.Errorf("%s: docs/guides/security.md lists (-), the account may (+):\n%s", who, diff)
		}
	}
}
