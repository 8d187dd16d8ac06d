package deviceplugin

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
)

// containerID is the ID of some container.
const containerID = "aa64b1a7c1d2e3f405162738495a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6"

// clientsFor starts the pod's container with processes that are clients of MPS, and with one of the host.
func (b *bench) clientsFor(pod *v1.Pod, device string, pids ...int) {
	b.t.Helper()
	b.kubelet.admit(pod)
	for _, c := range pod.Spec.Containers {
		if err := b.kubelet.begin(pod, c.Name); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, pid := range pids {
		fixture.WriteProcess(b.t, filepath.Join(b.dir, "proc"), pid, "1", fmt.Sprintf("0::/kubepods/burstable/pod%s/%s\n", pod.UID, containerID))
	}
	b.mps.mu.Lock()
	defer b.mps.mu.Unlock()
	b.mps.clients[device] = append(b.mps.clients[device], pids...)
}

func (b *bench) delete(pod *v1.Pod, grace int64) {
	b.kubelet.change(string(pod.UID), func(p *v1.Pod) {
		at := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second))
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	})
}

func (b *bench) clientsOn(device string) []int {
	b.mps.mu.Lock()
	defer b.mps.mu.Unlock()
	return slices.Clone(b.mps.clients[device])
}

func (b *bench) awaitClients(device string, want ...int) {
	b.t.Helper()
	fixture.Eventually(b.t, "clients", func() error {
		if have := b.clientsOn(device); !slices.Equal(have, want) {
			return fmt.Errorf("%v, want %v", have, want)
		}
		return nil
	})
}

// With no grace left, the clients of the pod that is deleted are ended, and nobody else's: not those of its neighbour
// with a long grace, nor of the host, nor on other devices.
func TestClientsOfATerminatingPodAreEnded(t *testing.T) {
	b := newBench(t)
	b.run()
	leaving, patient, stays := fixture.Placed(t, "leaving", fixture.App(fixture.G0, 3)), fixture.Placed(t, "patient", fixture.App(fixture.G0, 3)), fixture.Placed(t, "stays", fixture.App(fixture.G1, 3))
	b.clientsFor(leaving, fixture.G0, 100, 101)
	b.clientsFor(patient, fixture.G0, 200)
	b.clientsFor(stays, fixture.G1, 300)
	b.mps.mu.Lock()
	b.mps.clients[fixture.G0] = append(b.mps.clients[fixture.G0], 999) // of the host: its cgroup is not there
	b.mps.mu.Unlock()
	b.delete(patient, 3600)
	b.delete(leaving, 1) // not longer than the margin: at once
	b.awaitClients(fixture.G0, 200, 999)
	b.awaitMetric(`tandem_agent_clients_ended_total{cause="termination"}`, "2")
	// A client that comes while the pod ends is ended too.
	fixture.WriteProcess(t, filepath.Join(b.dir, "proc"), 102, "1", fmt.Sprintf("0::/kubepods/pod%s/%s\n", leaving.UID, containerID))
	b.mps.mu.Lock()
	b.mps.clients[fixture.G0] = append(b.mps.clients[fixture.G0], 102)
	b.mps.mu.Unlock()
	b.awaitClients(fixture.G0, 200, 999)
	b.awaitClients(fixture.G1, 300)
	b.awaitMetric("tandem_agent_termination_errors_total", "0")
}

// MPS that refuses is asked again, and does not hold up other devices.
func TestEndIsTriedAgain(t *testing.T) {
	b := newBench(t)
	b.run()
	one, two := fixture.Placed(t, "one", fixture.App(fixture.G0, 3)), fixture.Placed(t, "two", fixture.App(fixture.G1, 3))
	b.clientsFor(one, fixture.G0, 100)
	b.clientsFor(two, fixture.G1, 200)
	b.mps.mu.Lock()
	b.mps.stubborn[fixture.G0] = true
	b.mps.mu.Unlock()
	b.delete(one, 0)
	fixture.Eventually(t, "an error", func() error {
		if b.metric("tandem_agent_termination_errors_total") == "0" {
			return errors.New("none")
		}
		return nil
	})
	b.delete(two, 0)
	b.awaitClients(fixture.G1)
	b.mps.mu.Lock()
	b.mps.stubborn[fixture.G0] = false
	b.mps.mu.Unlock()
	b.awaitClients(fixture.G0)
}
