package deviceplugin

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// A neighbour slows a pod down by hidden figures. A learner gets only what the GPUNode then says: each pod's use of the
// SMs and the rate that it reports, a lie from one that lies, and the bandwidth of the device alone.
func TestInterferenceShowsInTheGPUNode(t *testing.T) {
	if os.Getenv(overFakes) == "" {
		rerunOverFakes(t)
		return
	}
	b, state, gpus := newFakeBench(t)
	clientSamples(t, state, true) // the server's samples would not show how much of them is whose
	b.api()
	b.timing.reports = time.Second
	b.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		var d net.Dialer
		return d.DialContext(ctx, network, net.JoinHostPort(ownHost(), port)) // there is no network of pods
	}
	b.run()
	// Alone it does 100 steps a second; beside the other 100/(1 + 1·1) = 50, on half of its SMs.
	victim := &tenantTruth{name: "victim", slots: 4, sm: 40, bandwidth: 30}
	b.reportAs(victim, "9410", "tenant_steps_total", "--sensitivity", "1", "--pressure", "0.2")
	b.startTenant(victim, gpus[0].UUID, 0)
	b.publishes(victim, 40, 100)
	// It does 100/(1 + 0.5·0.2) = 90.9 and says three times as much.
	liar := &tenantTruth{name: "liar", slots: 4, sm: 40, bandwidth: 20}
	b.reportAs(liar, "9411", "tenant_rate", "--sensitivity", "0.5", "--pressure", "1", "--lie", "3")
	b.startTenant(liar, gpus[0].UUID, 1)
	b.publishes(victim, 20, 50)
	b.publishes(liar, 36, 3*100/1.1)
	// 30·0.5 + 20/1.1 = 33 %
	b.agrees("bandwidth of the device", `tandem_device_memory_bandwidth_utilization_ratio{device="`+gpus[0].UUID+`"}`, 0.33)
	b.endTenant(liar)
	b.publishes(victim, 40, 100)
}

// ownHost is a loopback address of this process alone, so that no other program has taken its ports.
func ownHost() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 1+pid>>16, pid>>8&0xff, pid&0xff) // a PID has 22 bits
}

// reportAs has a tenant serve its rate at a port, and its pod say where.
func (b *bench) reportAs(p *tenantTruth, port, metric string, arguments ...string) {
	p.arguments = slices.Concat(arguments, []string{"--rate", "100", "--serve", net.JoinHostPort(ownHost(), port)})
	p.says = func(pod *v1.Pod) {
		pod.Annotations[v1alpha1.AnnotationRateMetric] = port + "#" + metric
		pod.Status.Phase, pod.Status.PodIP = v1.PodRunning, "10.0.0.9"
	}
}

// unpublished is by how many points the utilisation may differ from what is published: less than what makes the agent publish anew.
const unpublished = 4

// publishes waits until the GPUNode says of a tenant what is true: its rate to 5 %.
func (b *bench) publishes(p *tenantTruth, percent int32, rate float64) {
	b.t.Helper()
	fixture.Eventually(b.t, "tenant "+p.name, func() error {
		g, err := b.gpuNode()
		if err != nil {
			return err
		}
		for _, tenant := range g.Status.Devices[0].Tenants {
			if tenant.UID != string(p.pod.UID) {
				continue
			}
			if tenant.SMUtilizationPercent == nil || max(*tenant.SMUtilizationPercent-percent, percent-*tenant.SMUtilizationPercent) > unpublished || !tenant.Measured || tenant.Rate == nil {
				return fmt.Errorf("%+v, want %d %% and a rate", tenant, percent)
			}
			if have := tenant.Rate.AsApproximateFloat64(); math.Abs(have-rate) > 0.05*rate {
				return fmt.Errorf("rate %v, want %v", have, rate)
			}
			b.t.Logf("%s: %d %%, %s a second, the truth is %d %% and %.1f", p.name, *tenant.SMUtilizationPercent, tenant.Rate, percent, rate)
			return nil
		}
		return fmt.Errorf("tenants %+v", g.Status.Devices[0].Tenants)
	})
}
