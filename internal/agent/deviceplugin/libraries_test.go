package deviceplugin

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const libcuda = "/usr/lib64/libcuda.so.580.95.05" // the version that the bench's driver tells

// install puts a driver and the hook program into the host of the bench.
func (b *bench) install() {
	b.t.Helper()
	for _, path := range []string{libcuda, "/usr/bin/nvidia-cdi-hook"} {
		writeFile(b.t, filepath.Join(b.hostRoot, path), "")
	}
}

// writeFile writes a program.
func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
}

func newHost(t *testing.T, edits string) *bench {
	b := newBench(t)
	b.hostRoot = filepath.Join(b.dir, "host")
	if err := os.Mkdir(b.hostRoot, 0o750); err != nil {
		t.Fatal(err)
	}
	b.config.Driver = DriverConfig{Root: "/", Edits: edits}
	return b
}

func TestContainerGetsTheDriversLibraries(t *testing.T) {
	b := newHost(t, "")
	b.install()
	b.run()
	pod := placed(t, "train", app(g1, 3))
	b.kubelet.admit(pod)
	if err := b.kubelet.begin(pod, "main"); err != nil {
		t.Fatal(err)
	}
	got, err := b.spec(pod, "main")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Driver.Mounts) != 1 || got.Driver.Mounts[0].Host != libcuda || got.Driver.Mounts[0].Container != libcuda {
		t.Errorf("mounts of the driver %+v, want %s as the host has it", got.Driver.Mounts, libcuda)
	}
	if len(got.Driver.Hooks) == 0 || got.Driver.Hooks[0].Path != "/usr/bin/nvidia-cdi-hook" {
		t.Errorf("hooks %+v, want the host's", got.Driver.Hooks)
	}
	want := []string{"NVIDIA_VISIBLE_DEVICES=void", "CUDA_VISIBLE_DEVICES=" + g1}
	if diff := cmp.Diff(want, got.Edits.Env[:2]); diff != "" {
		t.Errorf("NVIDIA's runtime would add the libraries again (-want +got):\n%s", diff)
	}
	if len(got.Edits.Mounts) != 1 || len(got.Edits.Devices) != 3 {
		t.Errorf("edits %+v, want those of a share beside the driver's", got.Edits)
	}
	b.awaitMetric("tandem_agent_cdi_specs", "1")
	b.awaitMetric("tandem_agent_assignment_drift", "0")

	// The next agent gives device files alone: what runs has not drifted.
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	b.config.Driver.Edits = editsDevices
	b.run()
	b.awaitMetric("tandem_agent_cdi_specs", "1")
	b.awaitMetric("tandem_agent_assignment_drift", "0")
}

func TestContainerGetsDeviceFilesWhereTheHostHasNoLibraries(t *testing.T) {
	for name, b := range map[string]*bench{"auto": newHost(t, editsAuto), "devices": newHost(t, editsDevices)} {
		if name == editsDevices {
			b.install()
		}
		b.run()
		pod := placed(t, "train", app(g1, 3))
		b.kubelet.admit(pod)
		if err := b.kubelet.begin(pod, "main"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := b.spec(pod, "main")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(cdi.Edits{}, got.Driver); diff != "" {
			t.Errorf("%s: of the driver (-want +got):\n%s", name, diff)
		}
		if got.Edits.Env[0] != "NVIDIA_VISIBLE_DEVICES="+g1 {
			t.Errorf("%s: %s: NVIDIA's runtime must know the devices to bring the libraries", name, got.Edits.Env[0])
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLibrariesThatAreInsistedOn(t *testing.T) {
	b := newHost(t, editsLibrary)
	b.run()
	pod := placed(t, "train", app(g1, 3))
	b.kubelet.admit(pod)
	err := b.kubelet.begin(pod, "main")
	if err == nil {
		t.Fatal("the container starts without libraries")
	}
	for _, part := range []string{"driver.edits", "libcuda", "main"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	b.install()
	if err := b.kubelet.begin(pod, "main"); err != nil {
		t.Errorf("after the driver came: %v", err)
	}
}

func TestEssenceOfAnEnvironment(t *testing.T) {
	other := "CUDA_MPS_PIPE_DIRECTORY=/run/mps"
	cases := []struct {
		name      string
		env, want []string
	}{
		{"device files alone", []string{"NVIDIA_VISIBLE_DEVICES=GPU-a", "CUDA_VISIBLE_DEVICES=GPU-a", other}, []string{"NVIDIA_VISIBLE_DEVICES=GPU-a", "CUDA_VISIBLE_DEVICES=GPU-a", other}},
		{"with libraries", []string{"NVIDIA_VISIBLE_DEVICES=void", "CUDA_VISIBLE_DEVICES=GPU-a", other}, []string{"NVIDIA_VISIBLE_DEVICES=GPU-a", "CUDA_VISIBLE_DEVICES=GPU-a", other}},
		{"of another device", []string{"NVIDIA_VISIBLE_DEVICES=GPU-b", "CUDA_VISIBLE_DEVICES=GPU-a"}, []string{"NVIDIA_VISIBLE_DEVICES=GPU-b", "CUDA_VISIBLE_DEVICES=GPU-a"}},
		{"nothing for CUDA", []string{"NVIDIA_VISIBLE_DEVICES=void"}, []string{"NVIDIA_VISIBLE_DEVICES=void"}},
	}
	for _, c := range cases {
		before := slices.Clone(c.env)
		if diff := cmp.Diff(c.want, assigned(c.env)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if !slices.Equal(before, c.env) {
			t.Errorf("%s: the environment was changed", c.name)
		}
	}
}

func TestFilesOfMIGInstances(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"nvidia1", "nvidiactl", "nvidia-caps/nvidia-cap30", "nvidia-caps/nvidia-cap31", "nvidia-caps/nvidia-cap102"} {
		writeFile(t, filepath.Join(root, "dev", name), "")
	}
	writeFile(t, filepath.Join(root, migMinors), strings.Join([]string{
		"config 1", "monitor 2",
		"gpu0/gi3/access 3", "gpu0/gi3/ci0/access 4", // another GPU
		"gpu1/gi3/access 30", "gpu1/gi3/ci0/access 31", "gpu1/gi3/ci1/access 102",
		"gpu1/gi13/access 130", "gpu1/gi13/ci0/access 131", // without files
	}, "\n")+"\n")
	instance := func(gi, ci int) device {
		return device{Slots: 1, GPU: GPU{ID: "MIG-" + string(rune('a'+gi+ci)), Index: 8, Minor: 1, Parent: g0, GI: gi, CI: ci, ComputeMajor: 8}}
	}
	r := renderer{devRoot: root}
	cases := []struct {
		name    string
		devices []device
		want    []string
		says    string
	}{
		{"one", []device{instance(3, 0)}, []string{"nvidia1", "nvidia-caps/nvidia-cap30", "nvidia-caps/nvidia-cap31", "nvidiactl"}, ""},
		{"two of one GPU", []device{instance(3, 0), instance(3, 1)}, []string{"nvidia1", "nvidia-caps/nvidia-cap30", "nvidia-caps/nvidia-cap31", "nvidia-caps/nvidia-cap102", "nvidiactl"}, ""},
		{"unknown to the driver", []device{instance(3, 7)}, nil, "gpu1/gi3/ci7/access"},
		{"no device files", []device{instance(13, 0)}, nil, "nvidia-cap130"},
	}
	for _, c := range cases {
		a := vgpu.ContainerAssignment{Name: "main", Share: vgpu.Share{Slots: 1}}
		for i := range c.devices {
			a.Devices = append(a.Devices, vgpu.DeviceID(c.devices[i].ID))
		}
		edits, err := r.render(a, c.devices)
		got := make([]string, 0, len(edits.Devices))
		for _, n := range edits.Devices {
			got = append(got, strings.TrimPrefix(n.Container, "/dev/"))
		}
		switch {
		case c.says != "":
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: error %v, want %q in it", c.name, err, c.says)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		default:
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.name, diff)
			}
		}
	}
}
