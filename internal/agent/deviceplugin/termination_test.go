package deviceplugin

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
		writeProcess(b.t, filepath.Join(b.dir, "proc"), pid, "1", fmt.Sprintf("0::/kubepods/burstable/pod%s/%s\n", pod.UID, main64))
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
	eventually(b.t, "clients", func() error {
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
	leaving, patient, stays := placed(t, "leaving", app(g0, 3)), placed(t, "patient", app(g0, 3)), placed(t, "stays", app(g1, 3))
	b.clientsFor(leaving, g0, 100, 101)
	b.clientsFor(patient, g0, 200)
	b.clientsFor(stays, g1, 300)
	b.mps.mu.Lock()
	b.mps.clients[g0] = append(b.mps.clients[g0], 999) // of the host: its cgroup is not there
	b.mps.mu.Unlock()
	b.delete(patient, 3600)
	b.delete(leaving, 1) // not longer than the margin: at once
	b.awaitClients(g0, 200, 999)
	b.awaitMetric(`tandem_agent_clients_ended_total{cause="termination"}`, "2")
	// A client that comes while the pod ends is ended too.
	writeProcess(t, filepath.Join(b.dir, "proc"), 102, "1", fmt.Sprintf("0::/kubepods/pod%s/%s\n", leaving.UID, main64))
	b.mps.mu.Lock()
	b.mps.clients[g0] = append(b.mps.clients[g0], 102)
	b.mps.mu.Unlock()
	b.awaitClients(g0, 200, 999)
	b.awaitClients(g1, 300)
	b.awaitMetric("tandem_agent_termination_errors_total", "0")
}

// MPS that refuses is asked again, and does not hold up other devices.
func TestEndIsTriedAgain(t *testing.T) {
	b := newBench(t)
	b.run()
	one, two := placed(t, "one", app(g0, 3)), placed(t, "two", app(g1, 3))
	b.clientsFor(one, g0, 100)
	b.clientsFor(two, g1, 200)
	b.mps.mu.Lock()
	b.mps.stubborn[g0] = true
	b.mps.mu.Unlock()
	b.delete(one, 0)
	eventually(t, "an error", func() error {
		if b.metric("tandem_agent_termination_errors_total") == "0" {
			return errors.New("none")
		}
		return nil
	})
	b.delete(two, 0)
	b.awaitClients(g1)
	b.mps.mu.Lock()
	b.mps.stubborn[g0] = false
	b.mps.mu.Unlock()
	b.awaitClients(g0)
}

func TestWholeDevicesAreNoBusinessOfMPS(t *testing.T) {
	b := newBench(t)
	a := b.run()
	pod := placed(t, "big", want{name: "main", devices: []string{g0, g1}, slots: 10})
	b.kubelet.admit(pod)
	if err := b.kubelet.begin(pod, "main"); err != nil {
		t.Fatal(err)
	}
	writeProcess(t, filepath.Join(b.dir, "proc"), 100, "1", fmt.Sprintf("0::/kubepods/pod%s/%s\n", pod.UID, main64))
	b.mps.mu.Lock()
	b.mps.clients[g0] = []int{100}
	b.mps.mu.Unlock()
	b.delete(pod, 0)
	eventually(t, "the deletion to be seen", func() error {
		pods, _, _ := a.podWatch.snapshot()
		if p := pods[pod.UID]; p == nil || p.kill.IsZero() {
			return errors.New("not yet")
		}
		return nil
	})
	pods, _, _ := a.podWatch.snapshot()
	tm := a.newTerminator()
	tm.turn(t.Context(), pods, time.Now().Add(time.Hour))
	if len(tm.rounds) != 0 {
		t.Errorf("rounds %v, want none", tm.rounds)
	}
	b.awaitClients(g0, 100)
}

func TestEndComesTheMarginBeforeTheKill(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tm := &terminator{margin: 3 * time.Second}
	in := func(kill time.Duration) *tenant { return &tenant{kill: now.Add(kill)} }
	pods := map[types.UID]*tenant{
		"lives": {}, "later": in(8 * time.Second), "at the margin": in(3 * time.Second), "within": in(time.Second), "late": in(-time.Hour),
	}
	due, next := tm.due(pods, now)
	var names []string
	for uid := range due {
		names = append(names, string(uid))
	}
	slices.Sort(names)
	if got := strings.Join(names, ", "); got != "at the margin, late, within" {
		t.Errorf("due: %s", got)
	}
	if next != 5*time.Second {
		t.Errorf("the next is due in %v, want 5s", next)
	}
	if _, next := tm.due(map[types.UID]*tenant{"lives": {}}, now); next != beatEvery {
		t.Errorf("nobody leaves: %v", next)
	}
	if p := pauseFor(map[types.UID]*tenant{"a": in(-time.Minute), "b": in(time.Second)}, now); p != endAgain {
		t.Errorf("pause %v while a kill is near", p)
	}
	if p := pauseFor(map[types.UID]*tenant{"a": in(-time.Minute)}, now); p != endStuck {
		t.Errorf("pause %v for a pod that is stuck", p)
	}
}
