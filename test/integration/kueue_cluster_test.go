package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/controller/placeable"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

const kueueModule = "sigs.k8s.io/kueue"

// kueueMetrics is where Kueue reads the certificate of its metrics, whatever its configuration says.
const kueueMetrics = "/etc/kueue/metrics/certs"

// kueueConfig is Kueue's configuration without the parts that need a cluster around it: its certificates come from files, and it serves no
// aggregated API.
const kueueConfig = `apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
namespace: kueue-system
health: {healthProbeBindAddress: "127.0.0.1:%d"}
metrics: {bindAddress: "127.0.0.1:%d"}
webhook: {host: 127.0.0.1, port: %d, certDir: %s}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
featureGates: {VisibilityOnDemand: false}
integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}
`

// startKueue starts Kueue with its webhooks for Jobs, JobSets and its own kinds, and makes the queues of examples/kueue.
func (c *gangCluster) startKueue(t *testing.T) {
	t.Helper()
	source, err := sandbox.OperatorSource(t.Context(), kueueModule)
	must.OK(t, err)
	c.applyFolder(t, filepath.Join(source, "config", "components", "crd", "bases"))
	ports, err := sandbox.FreePorts(3)
	must.OK(t, err)
	dir := t.TempDir()
	c.certificates(t, dir)
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(filepath.Dir(kueueMetrics))) })
	c.certificates(t, kueueMetrics)
	if _, err := c.admin.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kueue-system"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.yaml")
	must.OK(t, os.WriteFile(config, fmt.Appendf(nil, kueueConfig, ports[0], ports[1], ports[2], dir), 0o600))
	c.operator(t, kueueModule, "./cmd/kueue", "--config", config)
	awaitReady(t, fmt.Sprintf("http://127.0.0.1:%d/readyz", ports[0]))
	c.applyWebhooks(t, kueueModule, "config/components/webhook/manifests.yaml", ports[2],
		"job", "jobset", "workload", "clusterqueue", "resourceflavor", "cohort")
}

// applyFolder applies the manifests of a folder.
func (c *gangCluster) applyFolder(t *testing.T, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has %d manifests: %v", folder, len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		must.OK(t, err)
		c.plane.ApplyForTest(t.Context(), t, string(raw))
	}
}

// applyFile applies a file of the repository.
func (c *gangCluster) applyFile(t *testing.T, path ...string) {
	t.Helper()
	root, err := sandbox.Root()
	must.OK(t, err)
	raw, err := fs.ReadFile(os.DirFS(root), strings.Join(path, "/"))
	must.OK(t, err)
	c.plane.ApplyForTest(t.Context(), t, string(raw))
}

// awaitReady waits until a program says that it is ready.
func awaitReady(t *testing.T, url string) {
	t.Helper()
	gangPoll(t, url+" answers", func() (bool, string) {
		request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, url, nil)
		must.OK(t, err)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err.Error()
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK, response.Status
	})
}

// localQueues makes the queues a and b in the namespace of the test.
func (c *gangCluster) localQueues(t *testing.T) {
	t.Helper()
	for _, queue := range []string{"a", "b"} {
		c.plane.ApplyForTest(t.Context(), t, fmt.Sprintf(`apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: %s, namespace: %s}
spec: {clusterQueue: team-%s}
`, queue, c.namespace, queue))
	}
}

// checksOf gives a ClusterQueue these AdmissionChecks. At the end of the test it has the one of examples/kueue again.
func checksOf(queue string, checks ...string) func(*testing.T, *gangCluster) {
	clusterQueues := placeable.Workloads.GroupVersion().WithResource("clusterqueues")
	return func(t *testing.T, c *gangCluster) {
		give := func(checks []string) {
			raw, err := json.Marshal(map[string]any{"spec": map[string]any{"admissionChecks": checks}})
			must.OK(t, err)
			if _, err := c.objects.Resource(clusterQueues).Patch(life(t), queue, types.MergePatchType, raw, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		give(checks)
		t.Cleanup(func() { give([]string{"placeable"}) })
	}
}

var jobSets = schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}

// unqueue removes Jobs and JobSets, and what garbage collection, which does not run here, would remove after them: all of the namespace
// whose names begin with these, "" for all.
func (c *gangCluster) unqueue(t *testing.T, names ...string) {
	t.Helper()
	background := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	removes := func(name string) bool {
		for _, prefix := range names {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
		return false
	}
	c.await(t, fmt.Sprintf("%v are gone", names), func() (bool, string) {
		left := 0
		for _, resource := range []schema.GroupVersionResource{jobSets, {Group: "batch", Version: "v1", Resource: "jobs"}, placeable.Workloads} {
			client := c.objects.Resource(resource).Namespace(c.namespace)
			list, err := client.List(life(t), metav1.ListOptions{})
			must.OK(t, err)
			for i := range list.Items {
				name := list.Items[i].GetName()
				of := strings.TrimPrefix(strings.TrimPrefix(name, "jobset-"), "job-")
				if removes(name) || resource == placeable.Workloads && removes(of) {
					left++
					_ = client.Delete(life(t), name, background)
				}
			}
		}
		for _, p := range c.pods(t) {
			if removes(p.Name) {
				left++
				_ = c.admin.CoreV1().Pods(c.namespace).Delete(life(t), p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
			}
		}
		return left == 0, fmt.Sprintf("%d are left", left)
	})
}
