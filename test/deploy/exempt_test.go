package deploy

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/test/must"
)

// exemptNamespace creates a namespace that an administrator took out of tandem-pods-host.
func exemptNamespace(t *testing.T, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{hostAccess: "allowed"}}}
	_, err := client(t.Context(), t, admin).CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	must.OK(t, err)
}

// An administrator's label opens the host to a namespace, and nothing else.
func TestExemptNamespace(t *testing.T) {
	const exempt = "trusted"
	exemptNamespace(t, exempt)
	c := client(t.Context(), t, admin)
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			p := a.on(pod("attack"))
			p.Namespace = exempt
			_, err := c.CoreV1().Pods(exempt).Create(t.Context(), p, dryRun)
			if a.policy != byHost {
				wantRefusal(t, err, a.policy)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("privileged debugger", func(t *testing.T) {
		p := pod("profiled")
		p.Namespace = exempt
		p = create(t.Context(), t, c, p)
		err := debug(t.Context(), c, p, func(d *corev1.EphemeralContainerCommon) {
			d.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("developers cannot label theirs", func(t *testing.T) {
		body := fmt.Sprintf(`{"metadata":{"labels":{%q:"allowed"}}}`, hostAccess)
		_, err := client(t.Context(), t, jane).CoreV1().Namespaces().
			Patch(t.Context(), team, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		wantRefusal(t, err, byRBAC)
	})
}

// Any other value of the label opens nothing, and a namespace that loses it is closed again; pods that run there by then
// can still be debugged, by a debugger that keeps to the rules.
func TestNamespaceThatWasExempt(t *testing.T) {
	const namespace = "formerly-trusted"
	exemptNamespace(t, namespace)
	c := client(t.Context(), t, admin)
	p := pod("exempt")
	p.Namespace = namespace
	privileged(p)
	hostPath("/dev")(p)
	again := p.DeepCopy()
	p = create(t.Context(), t, c, p)

	body := fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, hostAccess)
	_, err := c.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	must.OK(t, err)
	err = wait.PollUntilContextTimeout(t.Context(), pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		_, err = c.CoreV1().Pods(namespace).Create(ctx, again, dryRun)
		return err != nil, nil
	})
	if err != nil {
		t.Fatalf("the namespace stays open: %v", err)
	}
	if err := debug(t.Context(), c, p, func(*corev1.EphemeralContainerCommon) {}); err != nil {
		t.Error(err)
	}
	err = debug(t.Context(), c, get(t.Context(), t, p), func(d *corev1.EphemeralContainerCommon) {
		d.Name = "second"
		d.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	})
	wantRefusal(t, err, byHost, "spec.ephemeralContainers[1].securityContext.privileged")
}
