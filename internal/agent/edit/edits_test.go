package edit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/sharing"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

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
		if diff := cmp.Diff(c.want, Assigned(c.env)); diff != "" {
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
		putFile(t, filepath.Join(root, "dev", name), "")
	}
	putFile(t, filepath.Join(root, migMinors), strings.Join([]string{
		"config 1", "monitor 2",
		"gpu0/gi3/access 3", "gpu0/gi3/ci0/access 4", // another GPU
		"gpu1/gi3/access 30", "gpu1/gi3/ci0/access 31", "gpu1/gi3/ci1/access 102",
		"gpu1/gi13/access 130", "gpu1/gi13/ci0/access 131", // without files
	}, "\n")+"\n")
	instance := func(gi, ci int) inventory.Device {
		return inventory.Device{Slots: 1, GPU: inventory.GPU{ID: "MIG-" + string(rune('a'+gi+ci)), Index: 8, Minor: 1, Parent: fixture.G0, GI: gi, CI: ci, ComputeMajor: 8}}
	}
	r := Renderer{DevRoot: root}
	cases := []struct {
		name    string
		devices []inventory.Device
		want    []string
		says    string
	}{
		{"one", []inventory.Device{instance(3, 0)}, []string{"nvidia1", "nvidia-caps/nvidia-cap30", "nvidia-caps/nvidia-cap31", "nvidiactl"}, ""},
		{"two of one GPU", []inventory.Device{instance(3, 0), instance(3, 1)}, []string{"nvidia1", "nvidia-caps/nvidia-cap30", "nvidia-caps/nvidia-cap31", "nvidia-caps/nvidia-cap102", "nvidiactl"}, ""},
		{"unknown to the driver", []inventory.Device{instance(3, 7)}, nil, "gpu1/gi3/ci7/access"},
		{"no device files", []inventory.Device{instance(13, 0)}, nil, "nvidia-cap130"},
	}
	for _, c := range cases {
		a := vgpu.ContainerAssignment{Name: "main", Share: vgpu.Share{Slots: 1}}
		for i := range c.devices {
			a.Devices = append(a.Devices, vgpu.DeviceID(c.devices[i].ID))
		}
		edits, err := r.Render(a, c.devices)
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

// refuser is an MPS that no container may ask.
type refuser struct{ t *testing.T }

func (r refuser) Client(sharing.Client) sharing.Surroundings {
	r.t.Error("a container with a whole device is made a client of MPS")
	return sharing.Surroundings{}
}

func TestOneWholeDeviceIsUsedWithoutMPS(t *testing.T) {
	root := t.TempDir()
	putFile(t, filepath.Join(root, "dev", "nvidia5"), "")
	whole := vgpu.ContainerAssignment{Name: "main", Devices: []vgpu.DeviceID{"GPU-a"}, Share: vgpu.Share{Slots: 10, Devices: 1}}
	d := inventory.Device{GPU: inventory.GPU{ID: "GPU-a", Minor: 5, ComputeMajor: 8}, Slots: 10}
	edits, err := Renderer{DevRoot: root, Sharing: refuser{t}}.Render(whole, []inventory.Device{d})
	if err != nil || len(edits.Env) != 2 || len(edits.Mounts) != 0 {
		t.Errorf("one whole device: %+v (%v), want no MPS", edits, err)
	}
}

// putFile writes a file and the folders above it.
func putFile(t *testing.T, path, content string) {
	t.Helper()
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o750))
	must.OK(t, os.WriteFile(path, []byte(content), 0o700))
}
