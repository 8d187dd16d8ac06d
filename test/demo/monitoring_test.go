package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestMonitoring plays the demo while a real Prometheus scrapes its programs by the jobs of deploy/monitoring, breaks a GPU, and asks
// Prometheus for what each panel shows. No alert has anything to say before that, and the alert of the GPU has afterwards.
func TestMonitoring(t *testing.T) {
	if os.Getenv("TANDEM_OPERATORS") != "1" {
		t.Skip("needs Prometheus, minutes of building that no other test here needs: make test-operators runs it (TANDEM_OPERATORS=1)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out := newTerminal(os.Stderr)
	built, err := build(ctx, out, "")
	must.OK(t, err)
	c, err := startCluster(ctx, out, built)
	must.OK(t, err)
	defer c.stop()
	defer func() {
		if t.Failed() {
			t.Log(c.logs())
		}
	}()
	p := startPrometheus(ctx, t, c)
	if _, err := play(ctx, out, c); err != nil {
		t.Fatal(err)
	}
	must.OK(t, c.tell(ctx, out))
	p.await(ctx, t, "no alert has anything to say", p.quiet)
	c.breakGPUs(t)
	c.measureFleet(ctx, t)
	c.submitOdd(ctx, t)
	c.refuseStart(ctx, t)
	p.await(ctx, t, "TandemDeviceUnhealthy is about to fire", func(ctx context.Context) (string, error) {
		active, err := p.active(ctx)
		if err != nil || slices.Contains(active, "TandemDeviceUnhealthy") {
			return "", err
		}
		return fmt.Sprint(active), nil
	})
	p.await(ctx, t, "all panels have data, and all that alerts read is served", func(ctx context.Context) (string, error) {
		empty, err := p.empty(ctx)
		if err != nil {
			return "", err
		}
		unserved, err := p.unserved(ctx)
		return strings.Trim(empty+"; "+unserved, "; "), err
	})
}

// breakGPUs has the driver of one node report an XID that ends with its programs, and another device that is hot and slow. A device of another
// node falls off the bus.
func (c *cluster) breakGPUs(t *testing.T) {
	t.Helper()
	c.change(t, 2, func(s *fakegpu.State) {
		s.Events = append(s.Events, fakegpu.Event{UUID: s.Devices[1].UUID, XID: 79})
		s.Devices[1].Lost = true
	})
	c.change(t, 3, func(s *fakegpu.State) {
		s.Events = append(s.Events, fakegpu.Event{UUID: s.Devices[0].UUID, XID: 94})
		hot := &s.Devices[1]
		hot.ThrottleReasons, hot.Temperature, hot.PowerMilliwatts = 0x40, 92, 70_000 // nvmlClocksEventReasonHwThermalSlowdown
	})
}

// change changes the GPUs of a node.
func (c *cluster) change(t *testing.T, node int, change func(*fakegpu.State)) {
	t.Helper()
	must.OK(t, fakegpu.Update(filepath.Join(c.dir, c.nodes[node].name, "gpus.json"), change))
}

// submitOdd has jane report the rate of a pod, and submit a gang that is larger than the cluster.
func (c *cluster) submitOdd(ctx context.Context, t *testing.T) {
	t.Helper()
	rate := fmt.Sprintf(`{"metadata": {"annotations": {%q: "12.5"}}}`, v1alpha1.AnnotationReportedRate)
	if _, err := c.user.CoreV1().Pods(namespace).Patch(ctx, "infer-ocr", types.MergePatchType, []byte(rate), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	const members = 3
	for i := range members {
		pod := workload{name: fmt.Sprintf("large-%d", i), kind: training, gpu: "a100", containers: alone(20), annotations: map[string]string{
			v1alpha1.AnnotationMinMembers: fmt.Sprint(members),
		}}.pod()
		pod.Labels[v1alpha1.LabelGang] = "large"
		if _, err := c.user.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// refuseStart has the kubelet of a node ask for a container that holds no slots, which the agent refuses.
func (c *cluster) refuseStart(ctx context.Context, t *testing.T) {
	t.Helper()
	sockets, err := filepath.Glob(filepath.Join(c.dir, c.nodes[2].name, "device-plugins", "tandem-*.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("the agent listens at %v: %v", sockets, err)
	}
	connection, err := grpc.NewClient("unix:"+sockets[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.OK(t, err)
	defer connection.Close()
	request := &pluginapi.PreStartContainerRequest{DevicesIds: []string{"held by nobody"}}
	if _, err := pluginapi.NewDevicePluginClient(connection).PreStartContainer(ctx, request); err == nil {
		t.Error("the agent lets a container start that holds no slots")
	}
}

// measureFleet has the fleet measure a latency within its promise, and the requests that arrive.
func (c *cluster) measureFleet(ctx context.Context, t *testing.T) {
	t.Helper()
	answers := map[string]string{"requests": "5", "latency": "0.4"}
	measured, err := newSite(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [%d, %q]}]}}`, c.quick().Unix(), answers[r.FormValue("query")])
	}))
	must.OK(t, err)
	t.Cleanup(measured.close)
	patch := fmt.Sprintf(`{"spec": {"metrics": {"prometheusURL": %q, "queries": {"rate": "requests", "latency": "latency"}}}}`, measured.url())
	if _, err := c.objects.Resource(v1alpha1.InferenceFleets).Namespace(namespace).Patch(ctx, fleetName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
