package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	must.OK(t, err)
	return client
}

func clientFrom(t *testing.T, kubeconfig string, err error) *kubernetes.Clientset {
	t.Helper()
	must.OK(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must.OK(t, err)
	return clientFor(t, config)
}

func whoAmI(ctx context.Context, t *testing.T, client *kubernetes.Clientset) authenticationv1.UserInfo {
	t.Helper()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	must.OK(t, err)
	return review.Status.UserInfo
}

// One control plane serves all claims about RBAC and identities: a start takes seconds.
func TestControlPlaneUnderRBAC(t *testing.T) {
	ctx := t.Context()
	c := sandbox.StartForTest(t, sandbox.Options{Authorization: "Node,RBAC"})
	admin := clientFor(t, c.Admin())

	t.Run("the admin may create pods without a controller manager", func(t *testing.T) {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none"}}},
		}
		if _, err := admin.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a user is who the kubeconfig says and may nothing", func(t *testing.T) {
		path, err := c.Kubeconfig("jane", []string{"researchers"})
		jane := clientFrom(t, path, err)
		got := whoAmI(ctx, t, jane)
		if diff := cmp.Diff([]string{"researchers", "system:authenticated"}, got.Groups); got.Username != "jane" || diff != "" {
			t.Errorf("user %q, groups (-want +got):\n%s", got.Username, diff)
		}
		if _, err := jane.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("list pods as jane: got %v, want forbidden", err)
		}
	})
	t.Run("a node may read itself and no other node", func(t *testing.T) {
		path, err := c.Kubeconfig("system:node:n1", []string{"system:nodes"})
		node := clientFrom(t, path, err)
		if _, err := node.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("get own node: got %v, want not found", err)
		}
		if _, err := node.CoreV1().Nodes().Get(ctx, "n2", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("get another node: got %v, want forbidden", err)
		}
	})
	t.Run("a service account's token is its identity", func(t *testing.T) {
		c.ApplyForTest(ctx, t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: agent, namespace: kube-system}}")
		path, err := c.ServiceAccount(ctx, "kube-system", "agent")
		got := whoAmI(ctx, t, clientFrom(t, path, err)).Username
		if want := "system:serviceaccount:kube-system:agent"; got != want {
			t.Errorf("user %q, want %q", got, want)
		}
	})
	t.Run("a token that is bound to a node tells which", func(t *testing.T) {
		c.ApplyForTest(ctx, t, "{apiVersion: v1, kind: Node, metadata: {name: n1}}")
		path, err := c.ServiceAccountOnNode(ctx, "kube-system", "agent", "n1")
		got := whoAmI(ctx, t, clientFrom(t, path, err)).Extra["authentication.kubernetes.io/node-name"]
		if diff := cmp.Diff(authenticationv1.ExtraValue{"n1"}, got); diff != "" {
			t.Errorf("node of the token (-want +got):\n%s", diff)
		}
	})
	t.Run("a missing service account is an error", func(t *testing.T) {
		if _, err := c.ServiceAccount(ctx, "kube-system", "nobody"); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want not found", err)
		}
	})
}

const widgets = `
# An instance stands before its definition, and both in a list: the order does not matter.
apiVersion: v1
kind: List
items:
- {apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: lab}, size: 3}
- apiVersion: apiextensions.k8s.io/v1
  kind: CustomResourceDefinition
  metadata: {name: widgets.example.com}
  spec:
    group: example.com
    scope: Namespaced
    names: {kind: Widget, plural: widgets}
    versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: lab}}
---
# nothing but a comment
`

func TestControlPlaneOpen(t *testing.T) {
	ctx := t.Context()
	c := sandbox.StartForTest(t, sandbox.Options{
		FeatureGates:  map[string]bool{"GenericWorkload": true},
		RuntimeConfig: map[string]string{"scheduling.k8s.io/v1beta1": "true"},
	})
	admin := clientFor(t, c.Admin())

	t.Run("gates and runtime config reach the API server", func(t *testing.T) {
		list, err := admin.Discovery().ServerResourcesForGroupVersion("scheduling.k8s.io/v1beta1")
		if err != nil || len(list.APIResources) == 0 {
			t.Errorf("resources of scheduling.k8s.io/v1beta1: %v, %v", list, err)
		}
	})
	t.Run("anybody may do anything", func(t *testing.T) {
		path, err := c.Kubeconfig("jane", nil)
		if _, err := clientFrom(t, path, err).CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("apply orders what it applies, and repeats", func(t *testing.T) {
		c.ApplyForTest(ctx, t, widgets)
		c.ApplyForTest(ctx, t, strings.Replace(widgets, "size: 3", "size: 4", 1))
		raw, err := admin.RESTClient().Get().AbsPath("/apis/example.com/v1/namespaces/lab/widgets/w").DoRaw(ctx)
		if err != nil || !strings.Contains(string(raw), `"size":4`) {
			t.Errorf("widget: %s, %v; want size 4", raw, err)
		}
	})
	t.Run("apply names what it cannot apply", func(t *testing.T) {
		err := c.Apply(ctx, []byte("{apiVersion: example.com/v1, kind: Gadget, metadata: {name: g}}"))
		if err == nil || !strings.Contains(err.Error(), "apply Gadget g") {
			t.Errorf("got %v, want an error that names Gadget g", err)
		}
	})
}

// TestControlPlaneAggregates: the API server tells the servers behind APIServices whose word to take for who asks.
func TestControlPlaneAggregates(t *testing.T) {
	c := sandbox.StartForTest(t, sandbox.Options{Aggregation: true})
	admin := clientFor(t, c.Admin())
	authority, err := os.ReadFile(filepath.Join(c.Dir(), "pki", "ca.crt"))
	must.OK(t, err)
	eventually(t, func() error {
		m, err := admin.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
		if err == nil && (m.Data["requestheader-allowed-names"] != `["front-proxy"]` || m.Data["requestheader-client-ca-file"] != string(authority)) {
			err = fmt.Errorf("the servers are told %v", m.Data)
		}
		return err
	})
}

func TestControllerManagerMakesServiceAccounts(t *testing.T) {
	if os.Getenv("TANDEM_E2E") == "" {
		t.Skip("needs kube-controller-manager, minutes of building that no other test here needs: make e2e runs it (TANDEM_E2E=1)")
	}
	c := sandbox.StartForTest(t, sandbox.Options{ControllerManager: true, Authorization: "RBAC"})
	admin := clientFor(t, c.Admin())
	eventually(t, func() error {
		_, err := admin.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
}

func TestStopLeavesNothing(t *testing.T) {
	c, err := sandbox.Start(t.Context(), sandbox.Options{})
	must.OK(t, err)
	logs, err := filepath.Glob(filepath.Join(c.Dir(), "logs", "*.log"))
	if err != nil || len(logs) != 2 {
		t.Fatalf("logs: %v, %v; want those of etcd and kube-apiserver", logs, err)
	}
	c.Stop()
	c.Stop() // again does no harm
	if _, err := os.Stat(c.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after Stop: %v, want it gone", c.Dir(), err)
	}
	config := c.Admin()
	config.Timeout = time.Minute // another process may have taken the port, and answers nothing that the client accepts
	if version, err := clientFor(t, config).Discovery().ServerVersion(); err == nil {
		t.Errorf("the API server, %v, answers after Stop", version)
	}
}

func TestStartShowsWhyItFailed(t *testing.T) {
	dir := t.TempDir()
	_, err := sandbox.Start(t.Context(), sandbox.Options{Dir: dir, APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("got %v, want the API server's own words", err)
	}
}

func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute) // only a hang takes so long
	for err := f(); err != nil; err = f() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
