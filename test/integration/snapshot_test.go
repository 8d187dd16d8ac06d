package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestSnapshot reads the snapshot of the scheduler as it is built, under the rights of its account, as callers with unlike rights.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	c := &snapshotCluster{gangCluster: startCluster(t, gangModes()[0], schedulerProgram(t), 2)}
	c.serve(t)
	c.create(t, "team-a", fakecluster.Pod("train", 3))
	c.create(t, "team-b", fakecluster.Pod("hidden-infer", 5))
	c.awaitNode(t, "team-a", "train")
	c.awaitNode(t, "team-b", "hidden-infer")
	c.submit(t, "team-b", fakecluster.Pod("hidden-waits", 20)) // earlier it might take the whole node
	tokens := map[string]string{}
	for name, roles := range map[string][]string{"auditor": {"tandem-snapshot-reader", listsPods}, "reader": {"tandem-snapshot-reader"}, "stranger": {listsPods}} {
		tokens[name] = c.account(t, name, roles)
	}
	c.bind(t, "team-a", "reader", listsPods)

	c.awaitState(t, tokens["auditor"])
	t.Run("a caller who may list all pods sees all names", func(t *testing.T) {
		s, _ := c.read(t, tokens["auditor"])
		expectNames(t, s, "team-a/train:3", "team-b/hidden-infer:5")
		if len(s.Pending) != 1 || s.Pending[0].Path() != "team-b/hidden-waits" || s.Pending[0].Refused.Nearest == nil || s.Pending[0].Refused.Message == "" {
			t.Errorf("the pods that wait are %+v", s.Pending)
		}
		if s.Redacted {
			t.Error("names are left out")
		}
	})
	t.Run("a caller with rights in one namespace sees the others as other", func(t *testing.T) {
		s, raw := c.read(t, tokens["reader"])
		expectNames(t, s, "other:5", "team-a/train:3")
		for _, name := range []string{"team-b", "hidden"} {
			if strings.Contains(raw, name) {
				t.Errorf("the snapshot names %s:\n%s", name, raw)
			}
		}
		if len(s.Pending) != 1 || s.Pending[0].Namespace != snapshot.Other || s.Pending[0].Refused.Nearest == nil {
			t.Errorf("the pods that wait are %+v", s.Pending)
		}
	})
	for name, test := range map[string]struct {
		token string
		want  int
	}{
		"a caller without the right to the snapshot": {tokens["stranger"], http.StatusForbidden},
		"a caller whom the API server does not know": {"none", http.StatusUnauthorized},
		"a caller without a name":                    {"", http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			c.get(t, test.token, test.want)
		})
	}
	t.Run("kubectl tandem", c.kubectl)
	t.Run("a scheduler that waits for its turn names the one that schedules", func(t *testing.T) { c.follows(t, tokens["auditor"]) })
}

// listsPods is a role that allows listing pods; no controller fills the role view here.
const listsPods = "system:aggregate-to-view"

// snapshotCluster is a cluster whose scheduler serves snapshots.
type snapshotCluster struct {
	*gangCluster
	port int
}

// serve starts the scheduler anew, with snapshots and further flags.
func (c *snapshotCluster) serve(t *testing.T, flags ...string) {
	t.Helper()
	ports, err := sandbox.FreePorts(1)
	must.OK(t, err)
	kubeconfig, err := c.plane.ServiceAccount(life(t), "tandem-system", "tandem-scheduler")
	must.OK(t, err)
	c.port = ports[0]
	c.flags = append([]string{
		"--bind-address=127.0.0.1", fmt.Sprintf("--snapshot-secure-port=%d", c.port),
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
	}, flags...)
	c.scheduler.Stop(0)
	c.startScheduler(t)
}

// create makes a namespace with a pod.
func (c *snapshotCluster) create(t *testing.T, namespace string, p *v1.Pod) {
	t.Helper()
	if _, err := c.admin.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.submit(t, namespace, p)
}

func (c *snapshotCluster) submit(t *testing.T, namespace string, p *v1.Pod) {
	t.Helper()
	p.Namespace, p.UID, p.Spec.SchedulerName = namespace, "", "tandem-scheduler"
	if _, err := c.admin.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *snapshotCluster) awaitNode(t *testing.T, namespace, name string) {
	t.Helper()
	poll(t, name+" has a node", func(ctx context.Context) (bool, string) {
		p, err := c.admin.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && p.Spec.NodeName != "", fmt.Sprintf("%v %+v\n%s", err, p.Status.Conditions, c.scheduler.Tail(5))
	})
}

// account makes a service account with roles in the whole cluster, and returns a token of it.
func (c *snapshotCluster) account(t *testing.T, name string, roles []string) string {
	t.Helper()
	accounts := c.admin.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(t.Context(), &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, role := range roles {
		_, err := c.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbac.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)}, Subjects: subject(name), RoleRef: reference(role),
		}, metav1.CreateOptions{})
		must.OK(t, err)
	}
	token, err := accounts.CreateToken(t.Context(), name, &authentication.TokenRequest{}, metav1.CreateOptions{})
	must.OK(t, err)
	return token.Status.Token
}

// bind gives an account a role in one namespace.
func (c *snapshotCluster) bind(t *testing.T, namespace, name, role string) {
	t.Helper()
	_, err := c.admin.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbac.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subject(name), RoleRef: reference(role),
	}, metav1.CreateOptions{})
	must.OK(t, err)
}

func subject(name string) []rbac.Subject {
	return []rbac.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}}
}

func reference(role string) rbac.RoleRef {
	return rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role}
}

// get asks for the snapshot with a token, "" for none, until the scheduler answers with a code. A starved API server may not tell the scheduler in time
// who asks. It fails where the scheduler shows what it should refuse.
func (c *snapshotCluster) get(t *testing.T, token string, want int) (body string) {
	t.Helper()
	poll(t, fmt.Sprintf("the scheduler answers %d", want), func(ctx context.Context) (bool, string) {
		code, text, err := c.ask(ctx, token)
		if err == nil && want != http.StatusOK && (code == http.StatusOK || strings.Contains(text, "train")) {
			t.Fatalf("answered %d, want %d: %s", code, want, text)
		}
		body = text
		return err == nil && code == want, fmt.Sprintf("%d %v: %s", code, err, text)
	})
	return body
}

func (c *snapshotCluster) ask(ctx context.Context, token string) (int, string, error) {
	return askWith(ctx, token, fmt.Sprintf("https://127.0.0.1:%d/snapshot", c.port))
}

// askWith asks a program, which has a certificate of its own, with a token, "" for none.
func askWith(ctx context.Context, token, url string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

// read returns the snapshot, and its bytes.
func (c *snapshotCluster) read(t *testing.T, token string) (*snapshot.Snapshot, string) {
	t.Helper()
	body := c.get(t, token, http.StatusOK)
	s, err := snapshotjson.Read([]byte(body))
	must.OK(t, err)
	return s, body
}

// awaitState waits until the snapshot shows two pods on the node, bound, and one that was refused.
func (c *snapshotCluster) awaitState(t *testing.T, token string) {
	t.Helper()
	poll(t, "the snapshot shows the pods", func(ctx context.Context) (bool, string) {
		code, body, err := c.ask(ctx, token)
		if err != nil || code != http.StatusOK {
			return false, fmt.Sprintf("%d %v %s\n%s", code, err, body, c.scheduler.Tail(5))
		}
		s, err := snapshotjson.Read([]byte(body))
		must.OK(t, err)
		settled := len(s.Nodes) == 1 && len(s.Nodes[0].Pods) == 2 && len(s.Pending) == 1 && s.Pending[0].Refused != nil && s.Pending[0].Refused.Message != ""
		return settled && !slices.ContainsFunc(s.Nodes[0].Pods, func(p snapshot.Pod) bool { return p.Reserved }), body
	})
}

// expectNames compares the pods on the node, as "namespace/name:slots", or "other:slots".
func expectNames(t *testing.T, s *snapshot.Snapshot, want ...string) {
	t.Helper()
	var got []string
	for i := range s.Nodes[0].Pods {
		p := &s.Nodes[0].Pods[i]
		name := p.Path()
		if p.Namespace == snapshot.Other {
			name = snapshot.Other
		}
		got = append(got, fmt.Sprintf("%s:%d", name, p.Containers[0].Slots))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the pods are %v, want %v", got, want)
	}
}

// follows starts a scheduler behind another one that holds the lease.
func (c *snapshotCluster) follows(t *testing.T, token string) {
	holder, lasts, now := "elsewhere_1", int32(3600), metav1.NewMicroTime(time.Now())
	_, err := c.admin.CoordinationV1().Leases("tandem-system").Create(t.Context(), &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "tandem-scheduler"},
		Spec:       coordination.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &lasts, AcquireTime: &now, RenewTime: &now},
	}, metav1.CreateOptions{})
	must.OK(t, err)
	c.serve(t, "--leader-elect=true")
	poll(t, "the scheduler answers", func(ctx context.Context) (bool, string) {
		code, body, err := c.ask(ctx, token)
		return err == nil && code == http.StatusServiceUnavailable && strings.Contains(body, holder), fmt.Sprint(code, body, err)
	})
}
