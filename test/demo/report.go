package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakekubelet"
)

// report has all observations, from independent sources: the source of the picture and the checks.
type report struct {
	devices    []device
	pods       map[string]*observed
	order      []string // of pods, as submitted
	containers []fakekubelet.Container
	refused    []answered
	drift      float64
}

// device is a GPU of a node, as the agent published it.
type device struct {
	node string
	vgpu.Device
}

func (d device) name() string { return fmt.Sprintf("g%d", d.Index) }

// observed is a pod with its assignment.
type observed struct {
	workload
	uid        string
	phase      v1.PodPhase
	assignment vgpu.Assignment
	broken     error // why there is no valid assignment
}

// check returns all deviations.
func (r *report) check() []error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, name := range r.order {
		p := r.pods[name]
		if p.phase != v1.PodRunning {
			problem("pod %s is %s, not running", name, p.phase)
		}
		if p.broken != nil {
			problem("pod %s: %w", name, p.broken)
			continue
		}
		problems = append(problems, r.checkPod(p)...)
	}
	for _, d := range r.devices {
		use := r.use(d)
		if use.Slots > d.Slots || use.Memory > d.Memory {
			problem("device %s/%s holds %d slots and %d bytes, more than its %d and %d", d.node, d.name(), use.Slots, use.Memory, d.Slots, d.Memory)
		}
	}
	if want := r.expectedContainers(); len(r.containers) != want {
		problem("%d containers started, want %d", len(r.containers), want)
	}
	for _, a := range r.refused {
		if a.denied != a.atOnce {
			problem("pod %s: denied %t, want %t", a.name, a.denied, a.atOnce)
		}
		for _, word := range a.want {
			if !strings.Contains(a.message, word) {
				problem("pod %s was refused without the word %q: %s", a.name, word, a.message)
			}
		}
	}
	if r.drift != 0 {
		problem("the agents saw %g containers drift from their assignments", r.drift)
	}
	return problems
}

// use adds up what runs on a device at its fullest moment: an init container has ended when the others run.
func (r *report) use(d device) (use vgpu.Use) {
	for _, p := range r.pods {
		var together, alone vgpu.Use
		for _, c := range p.assignment.Containers {
			if !slices.Contains(c.Devices, d.ID) {
				continue
			}
			if c.Kind == vgpu.Init {
				alone.Slots, alone.Memory = max(alone.Slots, c.Share.Slots), max(alone.Memory, c.Share.Memory)
			} else {
				together.Slots, together.Memory = together.Slots+c.Share.Slots, together.Memory+c.Share.Memory
			}
		}
		use.Slots += max(together.Slots, alone.Slots)
		use.Memory += max(together.Memory, alone.Memory)
	}
	return use
}

func (r *report) expectedContainers() int {
	n := 0
	for _, p := range r.pods {
		n += len(p.init) + len(p.containers)
	}
	return n
}

// checkPod compares the user's request, the assignment, and the devices of each container.
func (r *report) checkPod(p *observed) []error {
	var problems []error
	asks := append(slices.Clone(p.init), p.containers...)
	if len(p.assignment.Containers) != len(asks) {
		return []error{fmt.Errorf("pod %s: %d containers are assigned, want %d", p.name, len(p.assignment.Containers), len(asks))}
	}
	for i, c := range p.assignment.Containers {
		if total := int64(c.Share.Slots) * int64(len(c.Devices)); c.Name != asks[i].name || total != asks[i].slots {
			problems = append(problems, fmt.Errorf("pod %s: container %s holds %d slots; %s asked for %d", p.name, c.Name, total, asks[i].name, asks[i].slots))
		}
		if err := r.checkContainer(p, c); err != nil {
			problems = append(problems, fmt.Errorf("pod %s, container %s: %w", p.name, c.Name, err))
		}
	}
	return problems
}

// checkContainer compares an assignment with the record of the container, which comes from the CDI spec.
func (r *report) checkContainer(p *observed, c vgpu.ContainerAssignment) error {
	given := r.given(p.uid, c.Name)
	if given == nil {
		return errors.New("it never started")
	}
	ids := make([]string, 0, len(c.Devices))
	wantFiles := make([]string, 0, len(c.Devices))
	part := false
	for _, id := range c.Devices {
		d := r.device(id)
		if d == nil || d.node != p.assignment.Node {
			return fmt.Errorf("node %s has no device %s", p.assignment.Node, id)
		}
		ids = append(ids, string(id))
		wantFiles = append(wantFiles, fmt.Sprintf("/dev/nvidia%d", d.Index))
		part = c.Share.Slots < d.Slots
	}
	sortFiles(wantFiles)
	env := environment(given)
	for _, name := range []string{"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} {
		if want := strings.Join(ids, ","); env[name] != want {
			return fmt.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	if files := gpuFiles(given); !slices.Equal(files, wantFiles) {
		return fmt.Errorf("its device files are %v, want %v", files, wantFiles)
	}
	if got := len(given.Slots); got != int(c.Share.Slots)*len(c.Devices) {
		return fmt.Errorf("the kubelet gave it %d slot IDs, want %d", got, int(c.Share.Slots)*len(c.Devices))
	}
	wantPercent := ""
	if part {
		wantPercent = strconv.Itoa(int(c.Share.ComputeLimit / 10))
	}
	if got := env[mps.PercentVariable]; got != wantPercent {
		return fmt.Errorf("%s is %q, want %q", mps.PercentVariable, got, wantPercent)
	}
	return checkMemory(env[mps.MemoryVariable], part, ids[0], int64(c.Share.MemoryLimit))
}

// checkMemory compares the memory limit of the environment, "<uuid>=<n>M", with the assignment's to a MiB.
func checkMemory(value string, part bool, id string, limit int64) error {
	if !part {
		if value != "" {
			return fmt.Errorf("%s is %q on whole devices, want none", mps.MemoryVariable, value)
		}
		return nil
	}
	device, amount, _ := strings.Cut(value, "=")
	bytes, err := parseAmount(amount)
	if err != nil || device != id || bytes > limit || limit-bytes >= 1<<20 {
		return fmt.Errorf("%s is %q, want %d bytes of %s", mps.MemoryVariable, value, limit, id)
	}
	return nil
}

// parseAmount reads MPS's "12M" or "12G".
func parseAmount(s string) (int64, error) {
	for suffix, unit := range map[string]int64{"G": 1 << 30, "M": 1 << 20, "K": 1 << 10} {
		if number, found := strings.CutSuffix(s, suffix); found {
			n, err := strconv.ParseInt(number, 10, 64)
			return n * unit, err
		}
	}
	return 0, fmt.Errorf("read amount %q: no unit", s)
}

func (r *report) given(uid, container string) *fakekubelet.Container {
	for i := range r.containers {
		if r.containers[i].UID == uid && r.containers[i].Name == container {
			return &r.containers[i]
		}
	}
	return nil
}

func (r *report) device(id vgpu.DeviceID) *device {
	for i := range r.devices {
		if r.devices[i].ID == id {
			return &r.devices[i]
		}
	}
	return nil
}

func environment(c *fakekubelet.Container) map[string]string {
	env := map[string]string{}
	for _, e := range c.Env {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	return env
}

// gpuFiles returns the device files of GPUs, without the driver's control files.
func gpuFiles(c *fakekubelet.Container) []string {
	var files []string
	for _, f := range c.Devices {
		if digits := strings.TrimPrefix(f, "/dev/nvidia"); digits != f && digits != "" && strings.Trim(digits, "0123456789") == "" {
			files = append(files, f)
		}
	}
	sortFiles(files)
	return files
}

// sortFiles sorts by number: nvidia2 comes before nvidia10.
func sortFiles(files []string) {
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
}

// readMetric reads one metric without labels from an agent.
func readMetric(ctx context.Context, address, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}
