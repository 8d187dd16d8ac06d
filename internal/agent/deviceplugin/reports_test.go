package deviceplugin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// The agent reads what a pod reports, over HTTP and by annotation, and tells it in the GPUNode and as a metric.
func TestReportedRatesReachTheGPUNode(t *testing.T) {
	b := newBench(t)
	b.api()
	b.driver.measure(fixture.G0, nvml.Sample{})
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = fmt.Fprintf(w, "# TYPE steps gauge\nsteps 42\n")
	}))
	t.Cleanup(page.Close)
	var mu sync.Mutex
	var asked []string
	b.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		asked = append(asked, address)
		mu.Unlock()
		var d net.Dialer
		return d.DialContext(ctx, network, page.Listener.Addr().String())
	}
	b.run()
	shows, says := fixture.Placed(t, "shows", fixture.App(fixture.G0, 3)), fixture.Placed(t, "says", fixture.App(fixture.G0, 3))
	shows.Annotations[v1alpha1.AnnotationRateMetric] = "9400/stats#steps"
	shows.Status.Phase, shows.Status.PodIP, shows.Status.HostIP = v1.PodRunning, "10.0.0.7", "192.168.0.1"
	says.Annotations[v1alpha1.AnnotationReportedRate] = "12.5"
	astray := fixture.Placed(t, "astray", fixture.App(fixture.G1, 3))
	astray.Annotations[v1alpha1.AnnotationRateMetric] = "10250#steps"
	astray.Status.Phase, astray.Status.PodIP, astray.Status.HostIP = v1.PodRunning, "192.168.0.1", "192.168.0.1"
	for _, p := range []*v1.Pod{shows, says, astray} {
		b.kubelet.admit(p)
	}
	b.awaitMetric(`tandem_pod_reported_rate{namespace="team",pod="shows"}`, "42")
	b.awaitMetric(`tandem_pod_reported_rate{namespace="team",pod="says"}`, "12.5")
	fixture.Eventually(t, "the GPUNode", func() error {
		g, err := b.gpuNode()
		if err != nil {
			return err
		}
		rates := map[string]string{}
		for _, tenant := range g.Status.Devices[0].Tenants {
			if tenant.Rate != nil {
				rates[tenant.UID] = tenant.Rate.String()
			}
		}
		if diff := cmp.Diff(map[string]string{string(shows.UID): "42", string(says.UID): "12500m"}, rates); diff != "" {
			return fmt.Errorf("rates (-want +got): %s", diff)
		}
		return nil
	})
	fixture.Eventually(t, "the refusal of the node's address", func() error {
		if b.metric(`tandem_agent_rate_scrapes_total{result="address"}`) == "" {
			return fmt.Errorf("none is counted")
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if others := slices.DeleteFunc(asked, func(at string) bool { return at == "10.0.0.7:9400" }); len(others) > 0 {
		t.Errorf("connected to %v", others)
	}
}
