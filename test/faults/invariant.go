package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/fakekubelet"
)

// patience is how long a node may take to be whole after the end of all faults. The hold time of a device that relapsed
// five times is half a minute in quick tests; the rest is for slow machines.
const patience = 15 * time.Minute

// whole returns nil for a whole node: every claim of the package's sequences, without those that need the pods to be
// gone.
func (n *Node) whole(ctx context.Context) error {
	for _, claim := range []func(context.Context) error{n.serving, n.healthy, n.shares, n.noDrift, n.answering, n.working, n.noStrangers} {
		if err := claim(ctx); err != nil {
			return err
		}
	}
	return nil
}

// serving: the kubelet watches the agent that runs now, and the node offers all slots.
func (n *Node) serving(ctx context.Context) error {
	if p := n.agentProcess(); p == nil {
		return errors.New("no agent runs")
	} else if ended(p.Done()) {
		return fmt.Errorf("the agent ended: %w", p.Err())
	}
	if registered, err := n.Metric(ctx, "tandem_agent_registered"); err != nil || registered != 1 {
		return errors.Join(errors.New("the agent is not registered"), err)
	}
	offered, err := n.offered(ctx)
	if want := int64(n.spec.GPUs * n.spec.SlotsPerGPU); err == nil && offered != want {
		err = fmt.Errorf("the node offers %d slots, want %d", offered, want)
	}
	return err
}

// offered returns the slots that the node's object offers.
func (n *Node) offered(ctx context.Context) (int64, error) {
	node, err := n.world.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	slots := node.Status.Allocatable[v1.ResourceName(v1alpha1.ResourceVGPU)]
	return slots.Value(), nil
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// GPUNode reads what the agent published last.
func (n *Node) GPUNode(ctx context.Context) (*v1alpha1.GPUNode, error) {
	object, err := n.world.objects.Resource(v1alpha1.GPUNodes).Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	g := &v1alpha1.GPUNode{}
	return g, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, g)
}

// healthy: the GPUNode shows every device, healthy and with the driver's index, and the agent ready.
func (n *Node) healthy(ctx context.Context) error {
	g, err := n.GPUNode(ctx)
	if err != nil {
		return err
	}
	state, err := fakegpu.Load(n.state())
	if err != nil {
		return err
	}
	shown := make([]string, 0, len(g.Status.Devices))
	for _, d := range g.Status.Devices {
		if d.Health != v1alpha1.Healthy {
			return fmt.Errorf("device g%d is %s: %s: %s", d.Index, d.Health, d.Reason, d.Message)
		}
		if i := int(d.Index); i >= len(state.Devices) || state.Devices[i].UUID != d.ID {
			return fmt.Errorf("device %s is shown as g%d, where the driver has another", d.ID, i)
		}
		shown = append(shown, d.ID)
	}
	if want := slices.Sorted(slices.Values(n.uuids)); !slices.Equal(slices.Sorted(slices.Values(shown)), want) {
		return fmt.Errorf("the GPUNode shows the devices %v, want %v", shown, want)
	}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionDevicesHealthy, v1alpha1.ConditionMonitored} {
		if c := meta.FindStatusCondition(g.Status.Conditions, kind); c == nil || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("the GPUNode's condition %s is %+v", kind, c)
		}
	}
	return nil
}

// shares: every pod that the kubelet did not reject runs, with exactly what its assignment says in its environment, its
// CDI spec and the agent's checkpoint.
func (n *Node) shares(ctx context.Context) error {
	rejected, err := n.pods.rejected(ctx)
	if err != nil {
		return err
	}
	list, known := n.containers()
	if !known {
		return errors.New("the kubelet does not run")
	}
	store, err := cdi.Open(n.paths.CDI)
	if err != nil {
		return err
	}
	specs, err := store.List()
	if err != nil {
		return err
	}
	grants, err := n.grants()
	if err != nil {
		return err
	}
	for _, pod := range n.pods.list() {
		if _, gone := rejected[pod.uid]; gone {
			continue
		}
		if err := n.share(pod, list, specs); err != nil {
			return fmt.Errorf("pod %s: %w", pod.name, err)
		}
		if grants[pod.uid] != pod.assignment {
			return fmt.Errorf("pod %s: the agent's checkpoint grants %q, want %q", pod.name, grants[pod.uid], pod.assignment)
		}
	}
	return nil
}

func (n *Node) share(pod *Pod, list []fakekubelet.Container, specs []cdi.Spec) error {
	at := slices.IndexFunc(list, func(c fakekubelet.Container) bool { return c.UID == pod.uid && c.Name == container })
	if at < 0 {
		return errors.New("its container does not run")
	}
	given := list[at]
	for _, want := range n.limits(pod) {
		if !slices.Contains(given.Env, want) {
			return fmt.Errorf("its container was given %v, want %s", given.Env, want)
		}
	}
	at = slices.IndexFunc(specs, func(s cdi.Spec) bool { return s.Owner.UID == pod.uid && s.Owner.Container == container })
	if at < 0 {
		return errors.New("it has no CDI spec")
	}
	if name := cdi.Qualified(specs[at].Name); !slices.Contains(given.CDI, name) {
		return fmt.Errorf("its CDI spec is %s, its container was given %v", name, given.CDI)
	}
	for _, want := range n.limits(pod) {
		if !slices.Contains(specs[at].Edits.Env, want) {
			return fmt.Errorf("its CDI spec says %v, want %s", specs[at].Edits.Env, want)
		}
	}
	if specs[at].Assignment != pod.assignment {
		return fmt.Errorf("its CDI spec is for the assignment %s, want %s", specs[at].Assignment, pod.assignment)
	}
	return nil
}

// limits is the environment that a pod's container must have.
func (n *Node) limits(pod *Pod) []string {
	env := []string{"NVIDIA_VISIBLE_DEVICES=" + pod.device}
	if pod.slots < n.spec.SlotsPerGPU {
		env = append(env, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", 100*pod.slots/n.spec.SlotsPerGPU))
	}
	return env
}

// grants reads the agent's checkpoint: assignments by pod UID.
func (n *Node) grants() (map[string]string, error) {
	raw, err := os.ReadFile(n.path("state", "checkpoint.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // no pod ever got devices
	}
	if err != nil {
		return nil, err
	}
	var file struct {
		Data struct {
			Grants map[string]struct{ Assignment string }
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, fmt.Errorf("read the agent's checkpoint: %w", err)
	}
	grants := map[string]string{}
	for uid, g := range file.Data.Grants {
		grants[uid] = g.Assignment
	}
	return grants, nil
}

// noDrift: the agent finds every container as assigned.
func (n *Node) noDrift(ctx context.Context) error {
	drift, err := n.Metric(ctx, "tandem_agent_assignment_drift")
	if err == nil && drift != 0 {
		err = fmt.Errorf("the agent reports drift of %v containers", drift)
	}
	return err
}

// connectTimeout is how long a new client may take. A wedged server takes for ever.
const connectTimeout = 30 * time.Second

// answering: each device takes a new client.
func (n *Node) answering(ctx context.Context) error {
	for _, uuid := range n.uuids {
		if err := n.connects(ctx, uuid); err != nil {
			return fmt.Errorf("device %s: %w", uuid, err)
		}
	}
	return nil
}

// connects tries whether the device takes a new client.
func (n *Node) connects(ctx context.Context, uuid string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	client, err := fakegpu.Dial(ctx, n.pipe(uuid), fakegpu.ClientLoad{})
	if err != nil {
		return err
	}
	client.Close()
	return nil
}

// working: the program of each container with a share has a connection.
func (n *Node) working(ctx context.Context) error {
	rejected, err := n.pods.rejected(ctx)
	if err != nil {
		return err
	}
	for _, pod := range n.pods.list() {
		if _, gone := rejected[pod.uid]; gone {
			continue
		}
		want := "connected"
		if pod.slots >= n.spec.SlotsPerGPU {
			want = "without MPS"
		}
		if said := n.tenants.said(pod.uid); !strings.HasPrefix(said, want) {
			return fmt.Errorf("the program of pod %s said last: %q", pod.name, said)
		}
	}
	return nil
}

// noStrangers: each device has one daemon and at most one server, the agent's bystander lives.
func (n *Node) noStrangers(context.Context) error {
	daemons, servers := map[string]int{}, map[string]int{}
	for _, p := range n.belongings() {
		switch p.name {
		case controlName:
			daemons[p.device]++
		case serverName:
			servers[p.device]++
		}
	}
	for _, uuid := range n.uuids {
		if daemons[uuid] != 1 || servers[uuid] > 1 {
			return fmt.Errorf("device %s has %d daemons and %d servers", uuid, daemons[uuid], servers[uuid])
		}
	}
	if ended(n.bystander.Done()) {
		return errors.New("a process that is none of the agent's business was ended")
	}
	return nil
}

// empty returns nil when no trace of ended pods is left. The caller has deleted every pod.
func (n *Node) empty(context.Context) error {
	store, err := cdi.Open(n.paths.CDI)
	if err != nil {
		return err
	}
	specs, err := store.List()
	if err != nil || len(specs) > 0 {
		return errors.Join(fmt.Errorf("%d CDI specs are left", len(specs)), err)
	}
	grants, err := n.grants()
	if err != nil || len(grants) > 0 {
		return errors.Join(fmt.Errorf("%d grants are left", len(grants)), err)
	}
	if names, _ := filepath.Glob(n.path("state", "*.tmp")); len(names) > 0 {
		return fmt.Errorf("left in the state folder: %v", names)
	}
	return nil
}

// Metric reads a metric of the agent: the sum of its series with the labels, each written as name="value".
func (n *Node) Metric(ctx context.Context, name string, labels ...string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.address+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("read metrics of the agent: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // nothing was written by the test
	return sum(response.Body, name, labels)
}

// sum adds up the series of a metric that have all of the labels, each written as name="value".
func sum(page io.Reader, name string, labels []string) (float64, error) {
	total, found := 0.0, false
	for lines := bufio.NewScanner(page); lines.Scan(); {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		if slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(line, l) }) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("read metrics of the agent: %s: %w", line, err)
		}
		total, found = total+value, true
	}
	if !found && len(labels) == 0 {
		return 0, fmt.Errorf("read metrics of the agent: no %s", name)
	}
	return total, nil
}
