package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// bindings holds when the pods of a namespace got their nodes, from a watch.
type bindings struct {
	n  *Tenant
	mu sync.Mutex
	at map[string]time.Time
}

// watchBindings begins to watch; the watch ends with the test.
func (n *Tenant) watchBindings() *bindings {
	n.t.Helper()
	b := &bindings{n: n, at: map[string]time.Time{}}
	w, err := n.client.CoreV1().Pods(n.namespace).Watch(n.t.Context(), metav1.ListOptions{})
	n.must(err)
	n.t.Cleanup(w.Stop)
	go func() {
		for e := range w.ResultChan() {
			now := time.Now()
			pod, ok := e.Object.(*v1.Pod)
			if !ok || pod.Spec.NodeName == "" {
				continue
			}
			b.mu.Lock()
			if b.at[pod.Name].IsZero() {
				b.at[pod.Name] = now
			}
			b.mu.Unlock()
		}
	}()
	return b
}

// all waits until all of the pods have nodes and returns the time of the last one.
func (b *bindings) all(names []string) time.Time {
	b.n.t.Helper()
	var last time.Time
	b.n.await(fmt.Sprintf("Bindings of %v", names), func(context.Context) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, name := range names {
			if b.at[name].IsZero() {
				return fmt.Errorf("pod %s is not bound", name)
			}
			if b.at[name].After(last) {
				last = b.at[name]
			}
		}
		return nil
	})
	return last
}

// halfBound makes a gang whose last member's Binding fails, waits until the others run and returns the last one's name
// and the others.
func (n *Tenant) halfBound(names []string, slots int) (unlucky string, others []*v1.Pod) {
	n.t.Helper()
	unlucky = names[len(names)-1]
	n.refuseBind(unlucky)
	for _, name := range names {
		n.create(member(names[0], name, share("main", slots)))
	}
	others = n.running(names[:len(names)-1]...)
	for _, pod := range others {
		n.checkShares(pod)
	}
	n.t.Logf("event: %s", n.event(unlucky, refusal))
	n.unbound(unlucky)
	return unlucky, others
}

const (
	// bindPolicy is the name of the policy that refuses Bindings, and refusal what it says.
	bindPolicy = "e2e-refuse-bind"
	refusal    = "the test refuses this Binding"
)

// refuseBind has the API server refuse the Binding of a pod that does not exist yet, until letBind or the test's end.
func (n *Tenant) refuseBind(name string) {
	n.t.Helper()
	object := metav1.ObjectMeta{Name: bindPolicy}
	registration := n.client.AdmissionregistrationV1()
	_, err := registration.ValidatingAdmissionPolicies().Create(n.t.Context(), refuses(n.namespace, name), metav1.CreateOptions{})
	n.must(err)
	n.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.endPolicy(ctx); err != nil {
			n.t.Error(err)
		}
	})
	_, err = registration.ValidatingAdmissionPolicyBindings().Create(n.t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: object,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: bindPolicy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{})
	n.must(err)
	n.await("the refusal of Bindings", func(ctx context.Context) error {
		err := n.client.CoreV1().Pods(n.namespace).Bind(ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Target: v1.ObjectReference{Kind: "Node", Name: nodeName},
		}, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the Binding of pod %s, which does not exist, gives: %w", name, err)
		}
		return nil
	})
}

// refuses is the policy against the Binding of one pod.
func refuses(namespace, name string) *admissionv1.ValidatingAdmissionPolicy {
	forbidden := metav1.StatusReasonForbidden
	return &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: bindPolicy},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: fmt.Sprintf("request.namespace != %q || request.name != %q", namespace, name),
				Message:    refusal, Reason: &forbidden,
			}},
		},
	}
}

// letBind ends what refuseBind began.
func (n *Tenant) letBind() {
	n.t.Helper()
	n.must(n.endPolicy(n.t.Context()))
}

func (n *Tenant) endPolicy(ctx context.Context) error {
	registration := n.client.AdmissionregistrationV1()
	return errors.Join(
		ignoreNotFound(registration.ValidatingAdmissionPolicyBindings().Delete(ctx, bindPolicy, metav1.DeleteOptions{})),
		ignoreNotFound(registration.ValidatingAdmissionPolicies().Delete(ctx, bindPolicy, metav1.DeleteOptions{})),
	)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// gone waits until a pod is, or another has its name.
func (n *Tenant) gone(pod *v1.Pod) {
	n.t.Helper()
	n.await("the end of pod "+pod.Name, func(ctx context.Context) error {
		now, err := n.pods.Get(ctx, pod.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil && now.UID == pod.UID:
			return errors.New("it still exists")
		}
		return err
	})
}

// gangArgs restarts the scheduler with other arguments of GPUGang. The test's end brings the former back.
func (n *Tenant) gangArgs(args map[string]any) {
	n.t.Helper()
	path := n.layout.path("scheduler.yaml")
	former, err := os.ReadFile(path)
	n.must(err)
	changed, err := withArgs(former, "GPUGang", args)
	n.must(err)
	restart := func(config []byte) error {
		n.scheduler.Stop(patience)
		if err := os.WriteFile(path, config, 0o600); err != nil {
			return err
		}
		return n.startScheduler()
	}
	n.t.Cleanup(func() {
		if err := restart(former); err != nil {
			n.t.Error(err)
		}
	})
	n.must(restart(changed))
}

// withArgs replaces the arguments of a plugin in a configuration of the scheduler.
func withArgs(raw []byte, plugin string, args map[string]any) ([]byte, error) {
	config := map[string]any{}
	if err := yaml.Unmarshal(raw, &config); err != nil {
		return nil, fmt.Errorf("read scheduler configuration: %w", err)
	}
	profiles, _ := config["profiles"].([]any)
	for _, p := range profiles {
		profile, _ := p.(map[string]any)
		others := []any{map[string]any{"name": plugin, "args": args}}
		plugins, _ := profile["pluginConfig"].([]any)
		for _, p := range plugins {
			if c, _ := p.(map[string]any); c["name"] != plugin {
				others = append(others, p)
			}
		}
		profile["pluginConfig"] = others
	}
	return yaml.Marshal(config)
}

// gangSize is the number of members of each gang here; all must run.
const gangSize = 4

// member returns a pod of a gang by its label.
func member(gang, name string, c v1.Container) *v1.Pod {
	pod := newPod(name, c)
	pod.Labels = map[string]string{v1alpha1.LabelGang: gang}
	pod.Annotations[v1alpha1.AnnotationMinMembers] = strconv.Itoa(gangSize)
	return pod
}
