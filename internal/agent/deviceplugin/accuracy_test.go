package deviceplugin

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/internal/agent/sharing"
	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// overFakes says that the test runs over the fakes.
const overFakes = "TANDEM_TEST_OVER_FAKES"

// tenantTruth is what a pod's program really uses of its device.
type tenantTruth struct {
	name          string
	slots         int
	memory        int64
	sm, bandwidth int // percent
	// arguments of the program, and what else its pod says.
	arguments []string
	says      func(*v1.Pod)
	program   *exec.Cmd
	pod       *v1.Pod
	container string
}

// Three pods share a GPU under MPS. The figures that the agent tells of each and of the device are within 5 % of what
// their programs use: where the driver tells of each client, as some are said to do, and where it tells of the server
// alone, as far as that can be known.
//
// The programs are processes of their own, clients of a daemon, and seen through NVML's binary interface; their cgroups
// are files that the test writes.
func TestUseAgreesWithTheTruth(t *testing.T) {
	if os.Getenv(overFakes) == "" {
		rerunOverFakes(t)
		return
	}
	b, state, gpus := newFakeBench(t)
	clientSamples(t, state, true)
	b.run()
	id := gpus[0].UUID
	pods := []*tenantTruth{
		{name: "train", slots: 4, memory: 12 << 30, sm: 38, bandwidth: 22},
		{name: "serve", slots: 3, memory: 5<<30 + 123<<20, sm: 17, bandwidth: 31},
		{name: "notebook", slots: 2, memory: 700 << 20, sm: 0, bandwidth: 0},
	}
	for i, p := range pods {
		b.startTenant(p, id, i)
	}
	total := tenantTruth{}
	for _, p := range pods {
		b.agrees("memory of "+p.name, podMetric("memory_used_bytes", p.name, "main", id), float64(p.memory))
		b.agrees("SM of "+p.name, measuredMetric("sm_utilization_ratio", p.name, "main", id, "measured"), float64(p.sm)/100)
		b.agrees("bandwidth of "+p.name, measuredMetric("memory_bandwidth_utilization_ratio", p.name, "main", id, "measured"), float64(p.bandwidth)/100)
		b.agrees("contexts of "+p.name, podMetric("contexts", p.name, "main", id), 1)
		b.agrees("slots of "+p.name, podMetric("slots", p.name, "main", id), float64(p.slots))
		b.agrees("request of "+p.name, podMetric("memory_request_bytes", p.name, "main", id), float64(p.slots)*4*float64(fixture.GiB))
		b.agrees("limit of "+p.name, podMetric("compute_limit_ratio", p.name, "main", id), float64(p.slots)/10)
		total.memory, total.sm, total.bandwidth = total.memory+p.memory, total.sm+p.sm, total.bandwidth+p.bandwidth
	}
	device := func(name string) string { return "tandem_device_" + name + `{device="` + id + `"}` }
	b.agrees("memory of the device", device("memory_used_bytes"), float64(total.memory))
	b.agrees("SM of the device", device("sm_utilization_ratio"), float64(total.sm)/100)
	b.agrees("bandwidth of the device", device("memory_bandwidth_utilization_ratio"), float64(total.bandwidth)/100)
	b.agrees("contexts of the device", device("contexts"), 3)
	b.agrees("unknown processes", device("unattributed_processes"), 0)
	b.agrees("power", device("power_watts"), 250)

	// If the driver tells of the server alone, the sum is right and divided by the limits: 40, 30 and 20 of 90.
	clientSamples(t, state, false)
	for _, p := range pods {
		part := float64(p.slots) / 9
		b.agrees("SM of "+p.name, measuredMetric("sm_utilization_ratio", p.name, "main", id, "apportioned"), part*float64(total.sm)/100)
		b.agrees("bandwidth of "+p.name, measuredMetric("memory_bandwidth_utilization_ratio", p.name, "main", id, "apportioned"), part*float64(total.bandwidth)/100)
		b.agrees("memory of "+p.name, podMetric("memory_used_bytes", p.name, "main", id), float64(p.memory))
	}
	b.endTenant(pods[0])
	b.agrees("contexts after an end", device("contexts"), 2)
	b.agrees("memory after an end", podMetric("memory_used_bytes", "train", "main", id), 0)
}

// clientSamples says whether the driver names the clients of MPS in its utilisation samples, or their server alone.
func clientSamples(t *testing.T, state string, named bool) {
	t.Helper()
	must.OK(t, fakegpu.Update(state, func(s *fakegpu.State) { s.ClientSamples = named }))
}

// rerunOverFakes runs the test once more over the fakes: the loader reads the library path when a program starts.
func rerunOverFakes(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fg")
	must.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must.OK(t, fakegpu.Build(t.Context(), dir))
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
	cmd.Env = append(append(os.Environ(), fakegpu.Env(dir, filepath.Join(dir, "state.json"))...), overFakes+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("over the fakes: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if _, figures, ok := strings.Cut(line, "accuracy_test.go:"); ok {
			t.Log(strings.TrimSpace(figures))
		}
	}
}

// newFakeBench is a node whose agent uses NVML and MPS, with the fakes behind them.
func newFakeBench(t *testing.T) (b *bench, state string, gpus []fakegpu.Device) {
	t.Helper()
	model, err := fakegpu.Profile("A100")
	must.OK(t, err)
	node := fakegpu.New(fixture.Node, model, model)
	for i := range node.Devices {
		node.Devices[i].PowerMilliwatts, node.Devices[i].Reserved = 250_000, 0 // placed counts with 40 GiB
	}
	state = os.Getenv(fakegpu.StateVariable)
	must.OK(t, node.Write(state))
	library, err := nvml.Open()
	must.OK(t, err)
	b = newBench(t)
	for _, d := range node.Devices {
		must.OK(t, os.WriteFile(filepath.Join(b.dir, "dev", fmt.Sprint("nvidia", d.MinorNumber)), nil, 0o600))
	}
	backend := mps.NewV2(mps.Options{Dir: filepath.Join(b.dir, "mps"), MultiUser: true, Canary: []string{"sh", "-c", "exit 1"}, Timeout: time.Minute})
	b.options = func(o *Options) { o.Driver, o.Sharing = FromNVML(library), sharing.FromMPS(backend) }
	t.Cleanup(func() {
		_ = b.stop()
		for _, d := range node.Devices {
			ctx, cancel := context.WithTimeout(context.Background(), fixture.TooLong)
			if err := backend.Stop(ctx, d.UUID); err != nil {
				t.Error(err)
			}
			cancel()
		}
		_ = library.Close()
	})
	return b, state, node.Devices
}

// startTenant starts the pod of a tenant, and then its program with what the container was given.
func (b *bench) startTenant(p *tenantTruth, device string, number int) {
	b.t.Helper()
	p.pod, p.container = fixture.Placed(b.t, p.name, fixture.App(device, p.slots)), strings.Repeat(strconv.Itoa(number), 64)
	if p.says != nil {
		p.says(p.pod)
	}
	b.kubelet.admit(p.pod)
	must.OK(b.t, b.kubelet.begin(p.pod, "main"))
	b.kubelet.change(string(p.pod.UID), func(pod *v1.Pod) {
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + p.container}}
	})
	spec, err := b.spec(p.pod, "main")
	must.OK(b.t, err)
	p.program = exec.Command(filepath.Join(os.Getenv(overFakes), fakegpu.TenantName),
		append(p.arguments, "--memory", fmt.Sprint(p.memory), "--sm", fmt.Sprint(p.sm), "--bw", fmt.Sprint(p.bandwidth))...)
	p.program.Env = append(os.Environ(), spec.Edits.Env...)
	for _, m := range spec.Edits.Mounts {
		if m.Container == mps.ContainerPipeDirectory {
			p.program.Env = append(p.program.Env, mps.PipeVariable+"="+m.Host) // there is no container to mount it into
		}
	}
	out, err := p.program.StdoutPipe()
	must.OK(b.t, err)
	must.OK(b.t, p.program.Start())
	b.t.Cleanup(func() { b.endTenant(p) })
	fixture.WriteProcess(b.t, filepath.Join(b.dir, "proc"), p.program.Process.Pid, "1", fmt.Sprintf("0::/kubepods/burstable/pod%s/%s\n", p.pod.UID, p.container))
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if strings.HasPrefix(line, "blocked") { // a busy machine: the server is late
		line, err = lines.ReadString('\n')
	}
	if err != nil || !strings.HasPrefix(line, "connected") {
		b.t.Fatalf("tenant %s: %q (%v), want that it is connected", p.name, line, err)
	}
}

func (b *bench) endTenant(p *tenantTruth) {
	b.t.Helper()
	if p.program.ProcessState != nil {
		return
	}
	if err := p.program.Process.Signal(os.Interrupt); err != nil {
		b.t.Error(err)
	}
	if err := p.program.Wait(); err != nil {
		b.t.Errorf("tenant %s: %v", p.name, err)
	}
}

// agrees waits until a metric is within 5 % of the truth.
func (b *bench) agrees(what, metric string, truth float64) {
	b.t.Helper()
	var have float64
	fixture.Eventually(b.t, what, func() (err error) {
		if have, err = strconv.ParseFloat(b.metric(metric), 64); err != nil {
			return fmt.Errorf("metric %s: %w", metric, err)
		}
		if math.Abs(have-truth) > 0.05*truth {
			return fmt.Errorf("%v, the truth is %v", have, truth)
		}
		return nil
	})
	b.t.Logf("%s: %v, the truth is %v", what, have, truth)
}
