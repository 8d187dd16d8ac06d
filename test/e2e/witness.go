package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// pipeDir of a device on the host.
func pipeDir(uuid string) string { return filepath.Join(mpsDir, uuid, "pipe") }

// story is what the program tenant of a pod has said so far in all of its lives, oldest first: one line for each event.
func story(pod *v1.Pod) ([]string, error) {
	lives, err := filepath.Glob(filepath.Join(logsOf(pod, "main"), "*.log"))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(lives, func(a, b string) int { return len(a) - len(b) + strings.Compare(a, b) })
	var said []string
	for _, path := range lives {
		log, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		_, own, _ := strings.Cut(string(log), " F told\n")
		for line := range strings.Lines(own) {
			if fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4); len(fields) == 4 {
				said = append(said, fields[3])
			}
		}
	}
	return said, nil
}

// works waits until the last output of the pod's program is that it is connected.
func (n *Tenant) works(pod *v1.Pod) {
	n.t.Helper()
	n.await("the work of pod "+pod.Name, func(context.Context) error {
		said, err := story(pod)
		if err == nil && (len(said) == 0 || !strings.HasPrefix(said[len(said)-1], "connected")) {
			err = fmt.Errorf("it said %q", said)
		}
		return err
	})
}

// working creates pods that work on their devices, waits until all have a connection and returns them. Sizes are slots.
func (n *Tenant) working(sizes ...int) []*v1.Pod {
	n.t.Helper()
	names := make([]string, 0, len(sizes))
	for i, size := range sizes {
		names = append(names, fmt.Sprintf("work-%d", i))
		n.create(newPod(names[i], work(size)))
	}
	pods := n.running(names...)
	for _, pod := range pods {
		n.works(pod)
	}
	return pods
}

// on returns those of the pods that have shares of the device, or those that have not.
func (n *Tenant) on(device string, pods []*v1.Pod, want bool) []*v1.Pod {
	n.t.Helper()
	var some []*v1.Pod
	for _, pod := range pods {
		if (n.device(pod) == device) == want {
			some = append(some, pod)
		}
	}
	if len(some) == 0 {
		n.t.Fatalf("no pod has the place that the scenario needs: on %s: %t", device, want)
	}
	return some
}

// witness remembers how containers are and what their programs said.
type witness struct {
	n          *Tenant
	pods       []*v1.Pod
	containers map[string]string
	stories    map[string][]string
}

func (n *Tenant) witness(pods []*v1.Pod) *witness {
	n.t.Helper()
	w := &witness{n: n, pods: pods}
	w.containers, w.stories = w.now()
	return w
}

func (w *witness) now() (containers map[string]string, stories map[string][]string) {
	w.n.t.Helper()
	names := make([]string, 0, len(w.pods))
	stories = map[string][]string{}
	for _, pod := range w.pods {
		names = append(names, pod.Name)
		said, err := story(pod)
		w.n.must(err)
		stories[pod.Name] = said
	}
	return w.n.containers(names...), stories
}

// undisturbed fails the test if a container has ended since, or its program met anything.
func (w *witness) undisturbed() {
	w.n.t.Helper()
	containers, stories := w.now()
	if diff := cmp.Diff(w.containers, containers); diff != "" {
		w.n.t.Errorf("containers that should not notice changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(w.stories, stories); diff != "" {
		w.n.t.Errorf("programs that should not notice met something (-before +after):\n%s", diff)
	}
}

// mpsPIDs returns the processes of the devices' control daemons and servers.
func (n *Tenant) mpsPIDs() map[string]string {
	n.t.Helper()
	pids := map[string]string{}
	for index := range gpus {
		daemon, err := os.ReadFile(filepath.Join(pipeDir(uuid(index)), "nvidia-cuda-mps-control.pid"))
		n.must(err)
		server := fakegpu.ReadUsage(n.layout.state(), uuid(index)).Server.PID
		if _, err := os.Stat(fmt.Sprintf("/proc/%s", strings.TrimSpace(string(daemon)))); err != nil || server == 0 {
			n.t.Fatalf("device %s is served by daemon %s and server %d: %v", uuid(index), daemon, server, err)
		}
		pids[uuid(index)] = fmt.Sprintf("daemon %s, server %d", daemon, server)
	}
	return pids
}

// soon is how long a client waits for a server that may be wedged, and patience for one that should not be.
const soon = 3 * time.Second

// connects returns nil when the device takes a new client within a time. A wedged server never answers.
func connects(ctx context.Context, uuid string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	client, err := fakegpu.Dial(ctx, pipeDir(uuid), fakegpu.ClientLoad{})
	if err == nil {
		client.Close()
	}
	return err
}

// wedged fails the test unless the device's server has a wedge.
func (n *Tenant) wedged(uuid string) {
	n.t.Helper()
	if err := connects(n.t.Context(), uuid, soon); !errors.Is(err, context.DeadlineExceeded) {
		n.t.Fatalf("a new client of device %s: %v, want that it waits for ever", uuid, err)
	}
}

// broken waits until the device's server refuses new clients for a fault.
func (n *Tenant) broken(uuid string) {
	n.t.Helper()
	n.await("the fault of device "+uuid, func(ctx context.Context) error {
		if err := connects(ctx, uuid, soon); !errors.Is(err, fakegpu.ErrFault) {
			return fmt.Errorf("a new client is answered %q, want %w", fmt.Sprint(err), fakegpu.ErrFault)
		}
		return nil
	})
}

// met waits until the pod's program has said a word, in whichever of its lives.
func (n *Tenant) met(pod *v1.Pod, word string) {
	n.t.Helper()
	n.await("word "+word+" of pod "+pod.Name, func(context.Context) error {
		said, err := story(pod)
		if err == nil && !slices.Contains(said, word) {
			err = fmt.Errorf("it said %q", said)
		}
		return err
	})
}

// sick waits until the GPUNode says that the device takes no work for the reason, or recovers from it already, and
// returns the message. The agent replaces a server without clients at once.
func (n *Tenant) sick(uuid, reason string) string {
	n.t.Helper()
	var message string
	n.await("the sickness "+reason, func(ctx context.Context) error {
		node, err := n.gpuNode(ctx)
		if err != nil {
			return err
		}
		for _, d := range node.Status.Devices {
			if d.ID == uuid && (d.Reason == reason || strings.Contains(d.Message, "recovers from "+reason)) {
				message = d.Message
				return nil
			}
		}
		return fmt.Errorf("the devices are %+v", node.Status.Devices)
	})
	return message
}

// recovered waits until all devices are healthy, the agent offers all slots again and the device takes a new client.
func (n *Tenant) recovered(device string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*patience)
	defer cancel()
	all := map[string]int{}
	for index := range gpus {
		all[uuid(index)] = slotsPerGPU
	}
	n.must(poll(ctx, "healthy devices", func(ctx context.Context) error {
		node, err := n.gpuNode(ctx)
		if err == nil && node.Status.HealthyCount != gpus {
			err = fmt.Errorf("the devices are %+v", node.Status.Devices)
		}
		return err
	}))
	n.must(poll(ctx, "healthy slots", func(context.Context) error { return n.healthySlots(all) }))
	n.must(n.awaitSlots(ctx))
	n.must(connects(ctx, device, patience))
}
