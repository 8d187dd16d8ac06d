package deviceplugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/config"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/test/must"
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
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o750))
	must.OK(t, os.WriteFile(path, []byte(content), 0o700))
}

func newHost(t *testing.T, edits string) *bench {
	b := newBench(t)
	b.hostRoot = filepath.Join(b.dir, "host")
	must.OK(t, os.Mkdir(b.hostRoot, 0o750))
	b.config.Driver = config.DriverConfig{Root: "/", Edits: edits}
	return b
}

func TestContainerGetsTheDriversLibraries(t *testing.T) {
	b := newHost(t, "")
	b.install()
	b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G1, 3))
	b.kubelet.admit(pod)
	must.OK(t, b.kubelet.begin(pod, "main"))
	got, err := b.spec(pod, "main")
	must.OK(t, err)
	if len(got.Driver.Mounts) != 1 || got.Driver.Mounts[0].Host != libcuda || got.Driver.Mounts[0].Container != libcuda {
		t.Errorf("mounts of the driver %+v, want %s as the host has it", got.Driver.Mounts, libcuda)
	}
	if len(got.Driver.Hooks) == 0 || got.Driver.Hooks[0].Path != "/usr/bin/nvidia-cdi-hook" {
		t.Errorf("hooks %+v, want the host's", got.Driver.Hooks)
	}
	want := []string{"NVIDIA_VISIBLE_DEVICES=void", "CUDA_VISIBLE_DEVICES=" + fixture.G1}
	if diff := cmp.Diff(want, got.Edits.Env[:2]); diff != "" {
		t.Errorf("NVIDIA's runtime would add the libraries again (-want +got):\n%s", diff)
	}
	if len(got.Edits.Mounts) != 1 || len(got.Edits.Devices) != 3 {
		t.Errorf("edits %+v, want those of a share beside the driver's", got.Edits)
	}
	b.awaitMetric("tandem_agent_cdi_specs", "1")
	b.awaitMetric("tandem_agent_assignment_drift", "0")

	// The next agent gives device files alone: the running containers have not drifted.
	must.OK(t, b.stop())
	b.config.Driver.Edits = "devices"
	b.run()
	b.awaitMetric("tandem_agent_cdi_specs", "1")
	b.awaitMetric("tandem_agent_assignment_drift", "0")
}

func TestContainerGetsDeviceFilesWhereTheHostHasNoLibraries(t *testing.T) {
	for name, b := range map[string]*bench{"auto": newHost(t, "auto"), "devices": newHost(t, "devices")} {
		if name == "devices" {
			b.install()
		}
		b.run()
		pod := fixture.Placed(t, "train", fixture.App(fixture.G1, 3))
		b.kubelet.admit(pod)
		if err := b.kubelet.begin(pod, "main"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := b.spec(pod, "main")
		must.OK(t, err)
		if diff := cmp.Diff(cdi.Edits{}, got.Driver); diff != "" {
			t.Errorf("%s: of the driver (-want +got):\n%s", name, diff)
		}
		if got.Edits.Env[0] != "NVIDIA_VISIBLE_DEVICES="+fixture.G1 {
			t.Errorf("%s: %s: NVIDIA's runtime must know the devices to bring the libraries", name, got.Edits.Env[0])
		}
		must.OK(t, b.stop())
	}
}

func TestLibrariesThatAreInsistedOn(t *testing.T) {
	b := newHost(t, "library")
	b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G1, 3))
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
