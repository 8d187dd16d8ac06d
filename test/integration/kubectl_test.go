package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/internal/kubectl/command"
)

// kubectl runs commands of kubectl tandem against the scheduler, with unlike credentials. Nothing forwards a port here, since no
// kubelet runs: the commands get the address.
func (c *snapshotCluster) kubectl(t *testing.T) {
	auditor, err := c.plane.ServiceAccount(life(t), "default", "auditor")
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := c.plane.ServiceAccount(life(t), "default", "stranger")
	if err != nil {
		t.Fatal(err)
	}
	admin, err := c.plane.Kubeconfig("admin", []string{"system:masters"})
	if err != nil {
		t.Fatal(err)
	}
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
			code, out, errs := c.tandem(test.kubeconfig, "snapshot")
			if code != test.code || !strings.Contains(errs, test.says) {
				t.Fatalf("exit code %d, want %d: %s", code, test.code, errs)
			}
			if code != 0 {
				return
			}
			s, err := snapshotjson.Read([]byte(out))
			if err != nil {
				t.Fatal(err)
			}
			expectNames(t, s, "team-a/train:3", "team-b/hidden-infer:5")
		})
	}
	t.Run("the map and the reason of a caller who sees one namespace", func(t *testing.T) {
		reader, err := c.plane.ServiceAccount(life(t), "default", "reader")
		if err != nil {
			t.Fatal(err)
		}
		code, out, errs := c.tandem(reader, "map")
		if code != 0 || !strings.Contains(out, "team-a/train") || !strings.Contains(out, "another team") || strings.Contains(out, "hidden") {
			t.Errorf("exit code %d: %s%s", code, out, errs)
		}
		code, out, errs = c.tandem(reader, "why", "train", "-n", "team-a")
		if code != 0 || !strings.Contains(out, "team-a/train runs on ") {
			t.Errorf("exit code %d: %s%s", code, out, errs)
		}
		code, out, errs = c.tandem(reader, "why", "hidden-waits", "-n", "team-b")
		if code != command.Failed || out != "" || !strings.Contains(errs, "you may not see the pods of all namespaces") {
			t.Errorf("exit code %d: %s%s", code, out, errs)
		}
	})
	t.Run("the reason of a pod that waits", func(t *testing.T) {
		code, out, errs := c.tandem(auditor, "why", "hidden-waits", "-n", "team-b")
		if code != 0 || !strings.HasPrefix(out, "team-b/hidden-waits waits: ") || !strings.Contains(out, "What to change: ") {
			t.Errorf("exit code %d: %s%s", code, out, errs)
		}
	})
}

// tandem runs a command of kubectl tandem, and returns its exit code and what it wrote.
func (c *snapshotCluster) tandem(kubeconfig string, args ...string) (code int, out, errs string) {
	if kubeconfig == "" {
		kubeconfig = os.DevNull
	}
	var o, e strings.Builder
	code = command.Execute(append(args, "--kubeconfig", kubeconfig, "--scheduler-insecure",
		"--scheduler-address", fmt.Sprintf("https://127.0.0.1:%d", c.port)),
		command.Streams{In: strings.NewReader(""), Out: &o, Errs: &e, Env: os.Getenv})
	return code, o.String(), e.String()
}
