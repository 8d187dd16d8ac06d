package command_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/internal/kubectl/command"
	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/test/must"
)

// absentPod returns a pod that asks for so many slots, and has a scheduler, a node and a phase.
func absentPod(slots int64, scheduler, node string, phase v1.PodPhase) *v1.Pod {
	p := &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"},
		Spec: v1.PodSpec{SchedulerName: scheduler, NodeName: node, Containers: []v1.Container{{Name: "main"}}}, Status: v1.PodStatus{Phase: phase},
	}
	if slots > 0 {
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1alpha1.ResourceVGPU: *resource.NewQuantity(slots, resource.DecimalSI)}
	}
	return p
}

// TestAbsentPods: where the snapshot of the scheduler lacks a pod, the API server is asked why, with the caller's rights.
func TestAbsentPods(t *testing.T) {
	for _, test := range []struct {
		name string
		code int
		pod  *v1.Pod
		says string
	}{
		{"other scheduler", 200, absentPod(3, "default-scheduler", "", v1.PodPending), "a/p waits for the scheduler default-scheduler: pods with shares of GPUs need schedulerName: tandem-scheduler"},
		{"no vGPU", 200, absentPod(0, "tandem-scheduler", "", v1.PodPending), "a/p asks for no tandem-gpu.io/vgpu"},
		{"ended", 200, absentPod(3, "tandem-scheduler", "n1", v1.PodSucceeded), "a/p has ended: its phase is Succeeded"},
		{"not counted", 200, absentPod(3, "tandem-scheduler", "n1", v1.PodRunning), "a/p has the node n1"},
		{"new", 200, absentPod(3, "tandem-scheduler", "", v1.PodPending), "ask again in a moment"},
		{"no such pod", 404, nil, "there is no pod p in the namespace a: its name is another, or its owner did not create it or has parked it"},
		{"no right", 403, nil, "the snapshot has no pod p in the namespace a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var body any = test.pod
			if test.pod == nil {
				body = &metav1.Status{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(test.code),
					Reason: map[int]metav1.StatusReason{404: metav1.StatusReasonNotFound, 403: metav1.StatusReasonForbidden}[test.code],
				}
			}
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/api/v1/namespaces/a/pods/p" {
					t.Errorf("asked for %s", r.URL.Path)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.code)
				_ = json.NewEncoder(w).Encode(body)
			}))
			defer api.Close()
			scheduler := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(empty)) }))
			defer scheduler.Close()
			config := filepath.Join(t.TempDir(), "config")
			must.OK(t, os.WriteFile(config, fmt.Appendf(nil, kubeconfig, api.URL), 0o600))
			code, out, errs := run("", "why", "po/p", "-n", "a", "--kubeconfig", config, "--scheduler-address", scheduler.URL, "--scheduler-insecure")
			if code != command.Failed || out != "" || !strings.Contains(errs, test.says) {
				t.Errorf("exit code %d, %q, %q, want %q", code, out, errs, test.says)
			}
		})
	}
}

// TestPodThatDoesNotStart: a pod whose devices the agent refuses does not run, and why says so with the kubelet's sentence.
func TestPodThatDoesNotStart(t *testing.T) {
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: at}
	c, err := testkit.Parse("n1: g0 A100 [a/p:3]\n")
	must.OK(t, err)
	s.Nodes = []snapshot.Node{snapshot.NodeOf(c.Nodes()[0])}
	raw, err := snapshotjson.Write(s)
	must.OK(t, err)
	for says, state := range map[string]v1.ContainerState{
		"a/p has its devices and does not run on n1: container main waits with CreateContainerConfigError, no assignment fits.\n": {
			Waiting: &v1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: "no assignment fits"},
		},
		"a/p runs on n1.\n": {Running: &v1.ContainerStateRunning{}},
	} {
		p := absentPod(3, "tandem-scheduler", "n1", v1.PodPending)
		p.UID = types.UID(s.Nodes[0].Pods[0].UID)
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: state}}
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(p)
		}))
		defer api.Close()
		scheduler := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw) }))
		defer scheduler.Close()
		config := filepath.Join(t.TempDir(), "config")
		must.OK(t, os.WriteFile(config, fmt.Appendf(nil, kubeconfig, api.URL), 0o600))
		code, out, errs := run("", "why", "p", "-n", "a", "--kubeconfig", config, "--scheduler-address", scheduler.URL, "--scheduler-insecure")
		if code != 0 || !strings.HasPrefix(out, says) {
			t.Errorf("exit code %d, %q, %q, want %q", code, out, errs, says)
		}
	}
}

// TestAbsentInFile: a snapshot in a file may be of another cluster, so the API server is not asked about a pod that it lacks.
// The answer tells what the reader may not see, and what is beyond the bound of the snapshot, and does not guess it.
func TestAbsentFromAPart(t *testing.T) {
	for want, x := range map[string]struct {
		pod   *v1.Pod
		shown wording.Shown
	}{
		"a/p is not shown to you, or":          {absentPod(3, "tandem-scheduler", "n1", v1.PodRunning), wording.Shown{Redacted: true}},
		"a/p waits for the scheduler default-": {absentPod(3, "default-scheduler", "", v1.PodPending), wording.Shown{Redacted: true}},
		"5 pods more wait, this one perhaps":   {absentPod(3, "tandem-scheduler", "", v1.PodPending), wording.Shown{LeftOut: 5}},
		"does not have it yet; ask again":      {absentPod(3, "tandem-scheduler", "", v1.PodPending), wording.Shown{}},
	} {
		if got := wording.Absent(x.pod, "tandem-scheduler", x.shown); !strings.Contains(got, want) {
			t.Errorf("%q, want %q in it", got, want)
		}
	}
}

func TestAbsentInFile(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL.Path) }))
	defer api.Close()
	config := filepath.Join(t.TempDir(), "config")
	must.OK(t, os.WriteFile(config, fmt.Appendf(nil, kubeconfig, api.URL), 0o600))
	if code, out, errs := run(empty, "why", "p", "-n", "a", "--kubeconfig", config, "--snapshot", "-"); code != command.Failed || !strings.Contains(errs, "the snapshot has no pod p") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

// kubeconfig names an API server.
const kubeconfig = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: t}}]
`
