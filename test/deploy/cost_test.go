package deploy

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// compiled is a policy as the API server runs it.
type compiled struct {
	name                              string
	conditions, validations, messages cel.ConditionEvaluator
}

// languages are the releases in whose CEL every policy must be written: an API server takes new expressions in that of the
// release before its own.
var languages = []string{"1.33", "1.34", "1.35", "1.36", "1.37"}

// compile compiles a policy in the CEL of a release, and fails for every expression that the release does not know.
func compile(t *testing.T, policy *admissionv1.ValidatingAdmissionPolicy, release string) compiled {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MustParseGeneric(release)))
	if err != nil {
		t.Fatal(err)
	}
	with := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, v := range policy.Spec.Variables {
		result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, with, environment.NewExpressions)
		if result.Error != nil {
			t.Errorf("%s: variable %s does not compile on %s: %v", policy.Name, v.Name, release, result.Error)
		}
	}
	var conditions, validations, messages []cel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression})
		if v.MessageExpression != "" {
			messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
		}
	}
	c := compiled{
		name:        policy.Name,
		conditions:  compiler.CompileCondition(conditions, with, environment.NewExpressions),
		validations: compiler.CompileCondition(validations, with, environment.NewExpressions),
		messages:    compiler.CompileCondition(messages, cel.OptionalVariableDeclarations{}, environment.NewExpressions),
	}
	for _, part := range []cel.ConditionEvaluator{c.conditions, c.validations, c.messages} {
		for _, err := range part.CompilationErrors() {
			t.Errorf("%s does not compile on %s: %v", policy.Name, release, err)
		}
	}
	return c
}

// allPolicies returns those of deploy/ and of its components.
func allPolicies(t *testing.T) []*admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	var policies []*admissionv1.ValidatingAdmissionPolicy
	for _, object := range overlay(t, "sane-requests") {
		if policy, ok := object.(*admissionv1.ValidatingAdmissionPolicy); ok {
			policies = append(policies, policy)
		}
	}
	return policies
}

func TestPoliciesCompileOnAllReleases(t *testing.T) {
	for _, release := range languages {
		for _, policy := range allPolicies(t) {
			compile(t, policy, release)
		}
	}
}

// cost returns what the API server counts for a policy in a request. More than the API server grants fails.
func (c compiled) cost(t *testing.T, s *sent) (cost int64) {
	t.Helper()
	request := cel.CreateAdmissionRequest(s.Attributes, metav1.GroupVersionResource(s.GetResource()), metav1.GroupVersionKind(s.GetKind()))
	inputs := cel.OptionalVariableBindings{Authorizer: nobody{}}
	run := func(part cel.ConditionEvaluator, budget int64) []cel.EvaluationResult {
		results, left, err := part.ForInput(t.Context(), &s.VersionedAttributes, request, inputs, s.namespace(), budget)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, r := range results {
			if r.Error != nil {
				t.Errorf("%s: %v", c.name, r.Error)
			}
		}
		cost += budget - left
		return results
	}
	for _, r := range run(c.conditions, celconfig.RuntimeCELCostBudgetMatchConditions) {
		if r.EvalResult == nil || r.EvalResult.Value() != true {
			return cost
		}
	}
	run(c.validations, celconfig.RuntimeCELCostBudget)
	run(c.messages, celconfig.RuntimeCELCostBudget)
	return cost
}

// nobody may do anything.
type nobody struct{}

func (nobody) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
}

// sent is a request as the API server shows it to policies.
type sent struct{ admission.VersionedAttributes }

// namespace is that of every request.
func (s *sent) namespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}
}

// send returns the request that creates an object, or changes it where old is given.
func send(object, old runtime.Object, kind schema.GroupVersionKind, resource, subresource string) *sent {
	operation := admission.Create
	if old != nil {
		operation = admission.Update
	}
	who := &user.DefaultInfo{Name: string(jane)}
	attributes := admission.NewAttributesRecord(object, old, kind, team, "name", kind.GroupVersion().WithResource(resource), subresource,
		operation, nil, false, who)
	s := &sent{admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind, VersionedObject: admission.NewLazyObject(object)}}
	if old != nil {
		s.VersionedOldObject = admission.NewLazyObject(old)
	}
	return s
}

// mostCost bounds what a policy may cost in the API server's units, of which it grants 10,000,000 to a policy and takes about a
// second for: 50 ms are 500,000. Requests at the policies' own bounds cost the most. Beyond them the cost may not grow with the
// object: what the API server does not count, the bookkeeping of CEL itself, grows with the square of what is looked through.
const mostCost = 500_000

// shape is a request that grows with n. Most is the size at which the API server refuses it, by the size of the request (3 MiB),
// of the stored object or of the annotations.
type shape struct {
	name string
	most int
	of   func(n int) *sent
}

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

func creates(p *corev1.Pod) *sent { return send(p, nil, podKind, "pods", "") }

// updates returns the request that changes a pod, or one that brings a new status alone where change is nil.
func updates(p *corev1.Pod, subresource string, change func(*corev1.Pod)) *sent {
	changed := p.DeepCopy()
	changed.Status.Message = "all is well"
	if change != nil {
		change(changed)
	}
	return send(changed, p, podKind, "pods", subresource)
}

// many returns n different short strings.
func many(n int, prefix string) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = prefix + strconv.FormatInt(int64(i), 36)
	}
	return names
}

func withAnnotations(p *corev1.Pod, n int, prefix, value string) *corev1.Pod {
	for _, key := range many(n, prefix) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
	}
	return p
}

// withContainers gives a pod so many containers with vGPUs, or without.
func withContainers(n int, change func(i int, c *corev1.Container), amounts ...string) *corev1.Pod {
	p := pod("large")
	p.Spec.Containers = nil
	for i := range n {
		c := container("c"+strconv.FormatInt(int64(i), 36), amounts...)
		if change != nil {
			change(i, &c)
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// oneLong is a pod of one container whose lists are long.
func oneLong(change func(*corev1.Container)) *sent {
	return creates(withContainers(1, func(_ int, c *corev1.Container) { change(c) }, v1alpha1.ResourceVGPU, "3"))
}

// shapes are all the lists that a policy looks through, at their longest and in their dearest form.
func shapes() []shape {
	vgpu := []string{v1alpha1.ResourceVGPU, "3"}
	worstPath := strings.Repeat("/.", 100) + "/tmp/nvidia-mp"
	return []shape{
		{"small annotations", 50_000, func(n int) *sent { return creates(withAnnotations(pod("x"), n, "", "")) }},
		{"annotations that inject devices", 13_000, func(n int) *sent { return creates(withAnnotations(pod("x"), n, "cdi.k8s.io/", "")) }},
		{"annotations of Tandem's domain", 12_000, func(n int) *sent { return creates(withAnnotations(plainPod(), n, v1alpha1.Domain+"/", "")) }},
		{"long annotations", 262_000, func(n int) *sent { return creates(withAnnotations(pod("x"), 1, "a", strings.Repeat("é", n/2))) }},
		{"one annotation more on a pod with many", 50_000, func(n int) *sent {
			return updates(withAnnotations(pod("x"), n, "", ""), "", annotation("more"))
		}},
		{"all annotations changed", 50_000, func(n int) *sent {
			return updates(withAnnotations(pod("x"), n, "", ""), "", func(p *corev1.Pod) { withAnnotations(p, n, "", "1") })
		}},
		{"a status of a pod with many annotations", 50_000, func(n int) *sent {
			return updates(withAnnotations(pod("x"), n, "", ""), "status", nil)
		}},
		{"labels", 50_000, func(n int) *sent {
			p := pod("x")
			p.Labels = map[string]string{}
			for _, key := range many(n, v1alpha1.Domain+"/") {
				p.Labels[key] = ""
			}
			return creates(p)
		}},
		{"bare keys of a Deployment", 50_000, func(n int) *sent {
			p := withContainers(n, nil)
			p.Spec.Containers[n-1] = container("last", vgpu...)
			for _, key := range []string{"max-slowdown", "vgpu", "workload-profile"} {
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, "")
				metav1.SetMetaDataLabel(&p.ObjectMeta, key, "")
			}
			d := &appsv1.Deployment{}
			d.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
			return send(d, nil, appsv1.SchemeGroupVersion.WithKind("Deployment"), "deployments", "")
		}},
		{"containers", 50_000, func(n int) *sent { return creates(withContainers(n, nil, vgpu...)) }},
		{"containers without vGPUs", 50_000, func(n int) *sent { return creates(withContainers(n, nil)) }},
		{"init containers", 50_000, func(n int) *sent {
			p := withContainers(n, nil, vgpu...)
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, []corev1.Container{container("main")}
			return creates(p)
		}},
		{"ephemeral containers", 50_000, func(n int) *sent {
			return updates(pod("x"), "ephemeralcontainers", func(p *corev1.Pod) {
				for _, name := range many(n, "e") {
					p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers,
						corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "i"}})
				}
			})
		}},
		{"variables", 100_000, func(n int) *sent {
			return oneLong(func(c *corev1.Container) {
				for _, name := range many(n, "NVIDIA_") {
					c.Env = append(c.Env, corev1.EnvVar{Name: name})
				}
			})
		}},
		{"variables of many containers", 1024, func(n int) *sent {
			return creates(withContainers(8, func(i int, c *corev1.Container) {
				for _, name := range many(n/8, "NVIDIA_") {
					c.Env = append(c.Env, corev1.EnvVar{Name: name})
				}
			}, vgpu...))
		}},
		{"a long name of a variable", 1_000_000, func(n int) *sent {
			return oneLong(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "NVIDIA_" + strings.Repeat("A", n)}} })
		}},
		{"mounts", 4096, func(n int) *sent {
			return oneLong(func(c *corev1.Container) {
				for _, path := range many(n, worstPath) {
					c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: path})
				}
			})
		}},
		{"mounts of many containers", 1024, func(n int) *sent {
			return creates(withContainers(8, func(i int, c *corev1.Container) {
				for _, path := range many(n/8, worstPath) {
					c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: path})
				}
			}, vgpu...))
		}},
		{"a long mountPath", 1_000_000, func(n int) *sent {
			return oneLong(func(c *corev1.Container) {
				c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: strings.Repeat("/.", n/2) + "/tmp/nvidia-mps"}}
			})
		}},
		{"resources", 1024, func(n int) *sent {
			return creates(withContainers(8, func(i int, c *corev1.Container) {
				for _, name := range many(n/8, "example.com/") {
					c.Resources.Limits[corev1.ResourceName(name)] = resource.MustParse("1")
				}
			}, vgpu...))
		}},
		{"capabilities", 8192, func(n int) *sent {
			return creates(withContainers(128, func(_ int, c *corev1.Container) {
				c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{}}
				for _, name := range many(n/128, "CAP_NET_") {
					c.SecurityContext.Capabilities.Add = append(c.SecurityContext.Capabilities.Add, corev1.Capability(name))
				}
			}, vgpu...))
		}},
		{"a long capability", 1_000_000, func(n int) *sent {
			return oneLong(func(c *corev1.Container) {
				c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{corev1.Capability(strings.Repeat("a", n))}}}
			})
		}},
		{"volumes", 50_000, func(n int) *sent {
			p := pod("x")
			for _, name := range many(n, "v") {
				v := corev1.Volume{Name: name}
				v.HostPath = &corev1.HostPathVolumeSource{Path: "/data/" + name}
				p.Spec.Volumes = append(p.Spec.Volumes, v)
			}
			return creates(p)
		}},
		{"a long path of the host", 1_000_000, func(n int) *sent {
			p := pod("x")
			hostPath("/" + strings.Repeat("a/", n/2))(p)
			return creates(p)
		}},
		{"a long promise", 262_000, func(n int) *sent { return creates(promising(strings.Repeat("1", n), "3")) }},
		{"a number of many digits", 10_000, func(n int) *sent {
			q := resource.MustParse("1" + strings.Repeat("0", n))
			p := pod("x")
			p.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceVGPU] = q
			p.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = q
			return creates(p)
		}},
		{"annotations of a Binding", 50_000, func(n int) *sent {
			b := &corev1.Binding{}
			b.Annotations = withAnnotations(pod("x"), n, v1alpha1.Domain+"/", "").Annotations
			return send(b, nil, corev1.SchemeGroupVersion.WithKind("Binding"), "pods", "binding")
		}},
	}
}

// concerns reports whether the constraints of a policy match a request.
func concerns(policy *admissionv1.ValidatingAdmissionPolicy, s *sent) bool {
	name := s.GetResource().Resource
	if s.GetSubresource() != "" {
		name += "/" + s.GetSubresource()
	}
	return slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.APIGroups, s.GetResource().Group) && slices.Contains(r.Resources, name) &&
			slices.Contains(r.Operations, admissionv1.OperationType(s.GetOperation()))
	})
}

// What a policy costs has a bound that no request exceeds, by the API server's own count. It is looked at for each shape from a
// small size to the largest, and around the policies' own bounds.
func TestCostOfPoliciesIsBounded(t *testing.T) {
	for _, policy := range allPolicies(t) {
		c := compile(t, policy, "1.37")
		for _, shape := range shapes() {
			sizes := []int{1, 128, 256, 512, 1000, 1024, 4096, shape.most}
			worst, at := int64(0), 0
			for _, n := range sizes {
				s := shape.of(min(n, shape.most))
				if !concerns(policy, s) {
					continue
				}
				if cost := c.cost(t, s); cost > worst {
					worst, at = cost, n
				}
			}
			if worst > mostCost {
				t.Errorf("%s, %s: cost %d at %d, want at most %d", policy.Name, shape.name, worst, at, mostCost)
			}
		}
	}
}
