package deploy

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpupreempt"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpuqueue"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
	testcluster "github.com/tandem-gpu/tandem/test/cluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// asScheduler in the environment makes the test's own binary behave as the scheduler.
const asScheduler = "TANDEM_TEST_AS_SCHEDULER"

const (
	systemNamespace = "tandem-system"
	// team is the namespace of the users.
	team = "team"
	// timeout of everything that is polled for. Only a hang reaches it.
	timeout      = 5 * time.Minute
	pollInterval = 100 * time.Millisecond
)

// cluster is the control plane that all tests of the package share, with deploy/ applied.
var cluster *sandbox.ControlPlane

func TestMain(m *testing.M) {
	if os.Getenv(asScheduler) != "" {
		os.Exit(cli.Run(app.NewSchedulerCommand(plugins()...)))
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// plugins are those of the scheduler.
func plugins() []app.Option {
	shares := &gpushare.Factory{}
	room := machine.New(func() machine.Shares { return shares.Plugin() })
	gangs := gpugang.NewFactory(func() gpugang.Shares { return shares.Plugin() }, room)
	preempt := gpupreempt.NewFactory(func() gpupreempt.Shares { return shares.Plugin() }, room)
	return []app.Option{
		app.WithPlugin(gpushare.Name, shares.New), app.WithPlugin(gpugang.Name, gangs), app.WithPlugin(gpupreempt.Name, preempt),
		app.WithPlugin(gpuqueue.Name, gpuqueue.New),
	}
}

func run(m *testing.M) (int, error) {
	var err error
	cluster, err = sandbox.Start(context.Background(), sandbox.Options{
		Authorization: "Node,RBAC",
		APIServerArgs: []string{"--enable-admission-plugins=NodeRestriction"},
	})
	if err != nil {
		return 0, err
	}
	defer cluster.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	if err := install(ctx); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// install applies deploy/ as an administrator does, and adds the nodes and users of the tests.
func install(ctx context.Context) error {
	manifests, err := render("deploy")
	if err != nil {
		return err
	}
	if err := cluster.Apply(ctx, manifests); err != nil {
		return err
	}
	admin, err := kubernetes.NewForConfig(cluster.Admin())
	if err != nil {
		return err
	}
	for _, name := range []string{"n1", "n2"} {
		err := testcluster.AddNode(ctx, admin, name, nil, corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi"),
			corev1.ResourcePods: resource.MustParse("100"), v1alpha1.ResourceVGPU: resource.MustParse("1000"),
		})
		if err != nil {
			return err
		}
	}
	if err := makeUsers(ctx, admin); err != nil {
		return err
	}
	return testcluster.AwaitPolicies(ctx, admin)
}

// render builds a folder as `kubectl apply -k` does.
func render(folder string) ([]byte, error) {
	rendered, err := testcluster.Render(folder)
	if err != nil {
		return nil, err
	}
	return rendered.AsYaml()
}

// makeUsers gives jane what a careless administrator gives the developer of a namespace: everything that touches pods,
// subresources and bindings included.
func makeUsers(ctx context.Context, admin kubernetes.Interface) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}
	if _, err := admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "developer"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""},
			Resources: []string{"pods", "pods/status", "pods/ephemeralcontainers", "pods/resize", "pods/binding", "bindings"},
			Verbs:     []string{"*"},
		}},
	}
	if _, err := admin.RbacV1().Roles(team).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "developer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "developer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "jane"}},
	}
	_, err := admin.RbacV1().RoleBindings(team).Create(ctx, binding, metav1.CreateOptions{})
	return err
}

// account is somebody who sends requests.
type account string

// Accounts: the administrator, a developer, the cluster's own scheduler, the kubelet of n1, and those of deploy/; the
// agent's token is bound to n1. The last is a service account with all rights, which makePowerful makes.
const (
	admin         account = "cluster-admin"
	jane          account = "jane"
	kubeScheduler account = "system:kube-scheduler"
	kubelet       account = "system:node:n1"
	scheduler     account = "tandem-scheduler"
	controller    account = "tandem-controller"
	activator     account = "tandem-activator"
	agent         account = "tandem-agent"
	powerful      account = "powerful"
)

// as returns the configuration of an account.
func as(ctx context.Context, t *testing.T, who account) *rest.Config {
	t.Helper()
	var config *rest.Config
	var err error
	switch who {
	case admin:
		return cluster.Admin()
	case kubelet:
		config, err = cluster.Config(string(who), []string{"system:nodes"})
	case scheduler, controller, activator, powerful:
		config = tokenConfig(ctx, t, string(who), "")
	case agent:
		config = tokenConfig(ctx, t, string(who), "n1")
	default:
		config, err = cluster.Config(string(who), nil)
	}
	must.OK(t, err)
	return config
}

// client returns a client of an account.
func client(ctx context.Context, t *testing.T, who account) kubernetes.Interface {
	t.Helper()
	return clientFor(t, as(ctx, t, who))
}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	must.OK(t, err)
	return c
}

// tokenConfig requests a token of a service account of deploy/, bound to a node as the kubelet's are, or to none.
func tokenConfig(ctx context.Context, t *testing.T, name, node string) *rest.Config {
	t.Helper()
	c := clientFor(t, cluster.Admin())
	request := &authenticationv1.TokenRequest{}
	if node != "" {
		n, err := c.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		must.OK(t, err)
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Node", Name: node, UID: n.UID,
		}
	}
	token, err := c.CoreV1().ServiceAccounts(systemNamespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	must.OK(t, err)
	config := rest.AnonymousClientConfig(cluster.Admin())
	config.BearerToken = token.Status.Token
	config.QPS = -1
	return config
}

// wantRefusal fails unless err is a refusal that contains every one of the texts.
func wantRefusal(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("the request was accepted")
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("refused with %q, which does not contain %q", err, text)
		}
	}
}
