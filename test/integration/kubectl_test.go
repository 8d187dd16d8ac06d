package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/internal/kubectl/command"
	"github.com/tandem-gpu/tandem/test/must"
)

// kubectl runs commands of kubectl tandem against the scheduler, with unlike credentials. Nothing forwards a port here, since no
// kubelet runs: the commands get the address.
func (c *snapshotCluster) kubectl(t *testing.T) {
	auditor, err := c.plane.ServiceAccount(life(t), "default", "auditor")
	must.OK(t, err)
	stranger, err := c.plane.ServiceAccount(life(t), "default", "stranger")
	must.OK(t, err)
	admin, err := c.plane.Kubeconfig("admin", []string{"system:masters"})
	must.OK(t, err)
	for name, test := range map[string]struct {
		kubeconfig string
		code       int
		says       string
	}{
		"a token":                       {auditor, 0, ""},
		"a client certificate":          {admin, 0, ""},
		"a token without rights":        {stranger, command.Failed, "tandem-snapshot-reader"},
		"no credentials that are known": {"", command.Failed, "kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			out := c.tandem(t, test.kubeconfig, test.code, test.says, "snapshot")
			if test.code != 0 {
				return
			}
			s, err := snapshotjson.Read([]byte(out))
			must.OK(t, err)
			expectNames(t, s, "team-a/train:3", "team-b/hidden-infer:5")
		})
	}
	t.Run("the map and the reason of a caller who sees one namespace", func(t *testing.T) {
		reader, err := c.plane.ServiceAccount(life(t), "default", "reader")
		must.OK(t, err)
		if out := c.tandem(t, reader, 0, "", "map"); !contains(out, "team-a/train", "another team") || strings.Contains(out, "hidden") {
			t.Errorf("the map is %s", out)
		}
		if out := c.tandem(t, reader, 0, "", "why", "train", "-n", "team-a"); !strings.Contains(out, "team-a/train runs on ") {
			t.Errorf("the reason is %s", out)
		}
		c.tandem(t, reader, command.Failed, "you may not see the pods of all namespaces", "why", "hidden-waits", "-n", "team-b")
	})
	t.Run("the reason of a pod that waits", func(t *testing.T) {
		out := c.tandem(t, auditor, 0, "", "why", "hidden-waits", "-n", "team-b")
		if !strings.HasPrefix(out, "team-b/hidden-waits waits: ") || !strings.Contains(out, "What to change: ") {
			t.Errorf("the reason is %s", out)
		}
	})
}

// tandem runs a command of kubectl tandem until it ends with a code and says a text, and returns what it wrote. A starved API server may not tell the
// scheduler in time who asks. It fails where the command shows what it should refuse.
func (c *snapshotCluster) tandem(t *testing.T, kubeconfig string, code int, says string, args ...string) (out string) {
	t.Helper()
	c.await(t, fmt.Sprintf("kubectl tandem %q ends with %d", args, code), func() (bool, string) {
		now, text, errs := c.execute(kubeconfig, args...)
		if code != 0 && (now == 0 || text != "") {
			t.Fatalf("kubectl tandem %q ends with %d, want %d: %s%s", args, now, code, text, errs)
		}
		out = text
		return now == code && strings.Contains(errs, says), fmt.Sprintf("it ends with %d: %s%s", now, text, errs)
	})
	return out
}

// execute runs a command of kubectl tandem, and returns its exit code and what it wrote.
func (c *snapshotCluster) execute(kubeconfig string, args ...string) (code int, out, errs string) {
	if kubeconfig == "" {
		kubeconfig = os.DevNull
	}
	var o, e strings.Builder
	code = command.Execute(append(args, "--kubeconfig", kubeconfig, "--scheduler-insecure",
		"--scheduler-address", fmt.Sprintf("https://127.0.0.1:%d", c.port)),
		command.Streams{In: strings.NewReader(""), Out: &o, Errs: &e, Env: os.Getenv})
	return code, o.String(), e.String()
}
