package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/tandem-gpu/tandem/test/must"
)

func example(name string) Spec {
	return Spec{
		Name:       name,
		Owner:      Owner{UID: "u-1", Namespace: "team", Pod: "train-0", Container: "main"},
		Assignment: `{"version":1}`,
		Edits: Edits{
			Env:     []string{"NVIDIA_VISIBLE_DEVICES=GPU-a", "CUDA_VISIBLE_DEVICES=GPU-a"},
			Devices: []DeviceNode{{Host: "/host/dev/nvidia0", Container: "/dev/nvidia0"}},
			Mounts:  []Mount{{Host: "/run/mps/a", Container: "/run/mps/a", Options: []string{"rw", "bind"}}},
		},
		Driver: Edits{
			Env:    []string{"NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"},
			Mounts: []Mount{{Host: "/driver/usr/lib64/libcuda.so.1", Container: "/usr/lib64/libcuda.so.1", Options: []string{"ro", "bind"}}},
			Hooks:  []Hook{{Stage: "createContainer", Path: "/usr/bin/hook", Args: []string{"hook", "update-ldcache"}, Env: []string{"DEBUG=false"}}},
		},
	}
}

func TestStoreGivesBackWhatItWrote(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cdi")
	store, err := Open(dir)
	must.OK(t, err)
	want := example("0123456789abcdef")
	for range 2 { // the second write replaces the first
		must.OK(t, store.Write(want))
	}
	got, err := store.Read(want.Name)
	must.OK(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	list, err := store.List()
	if diff := cmp.Diff([]Spec{want}, list); diff != "" || err != nil {
		t.Errorf("list: %v (-want +got):\n%s", err, diff)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("folder holds %v (%v), want one file and no temporary ones", entries, err)
	}
}

// The container runtime reads the folder with the same library: the name must resolve there.
func TestRuntimeResolvesTheName(t *testing.T) {
	dir := t.TempDir()
	store, err := Open(dir)
	must.OK(t, err)
	must.OK(t, store.Write(example("00000000000000aa")))
	runtime, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	must.OK(t, err)
	device := runtime.GetDevice(Qualified("00000000000000aa"))
	if device == nil {
		t.Fatalf("the runtime does not know %s; it knows %v, errors %v", Qualified("00000000000000aa"), runtime.ListDevices(), runtime.GetErrors())
	}
	if diff := cmp.Diff(example("00000000000000aa").Edits.Env, device.ContainerEdits.Env); diff != "" {
		t.Errorf("env (-want +got):\n%s", diff)
	}
}

// Both parts reach the container; where they disagree the assignment's part wins.
func TestRuntimeAppliesBothParts(t *testing.T) {
	dir := t.TempDir()
	store, err := Open(dir)
	must.OK(t, err)
	spec := example("00000000000000aa")
	spec.Edits.Devices = nil // the library looks for the files
	must.OK(t, store.Write(spec))
	runtime, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	must.OK(t, err)
	container := &oci.Spec{}
	if _, err := runtime.InjectDevices(container, Qualified(spec.Name)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"NVIDIA_VISIBLE_DEVICES=GPU-a", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64", "CUDA_VISIBLE_DEVICES=GPU-a"}, container.Process.Env); diff != "" {
		t.Errorf("env (-want +got):\n%s", diff)
	}
	if len(container.Mounts) != 2 || len(container.Hooks.CreateContainer) != 1 {
		t.Errorf("container %+v: want two mounts and a hook", container)
	}
}

func TestSpecsAreReadAgainWhenTheyChange(t *testing.T) {
	dir := t.TempDir()
	store, err := Open(dir)
	must.OK(t, err)
	other, err := Open(dir) // another agent
	must.OK(t, err)
	spec := example("0123456789abcdef")
	for _, uid := range []string{"u-1", "u-2", "u-3"} { // as long as one another
		spec.Owner.UID = uid
		must.OK(t, other.Write(spec))
		for range 2 {
			got, err := store.Read(spec.Name)
			if diff := cmp.Diff(spec, got); diff != "" || err != nil {
				t.Fatalf("%v (-want +got):\n%s", err, diff)
			}
		}
	}
	kept := example("00000000000000aa")
	must.OK(t, store.Write(kept))
	if list, err := store.List(); err != nil || len(list) != 2 {
		t.Fatalf("list %v, %v", list, err)
	}
	for _, name := range []string{spec.Name, kept.Name} {
		must.OK(t, other.Remove(name))
	}
	if got, err := store.Read(spec.Name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after another removed it: %+v, %v", got, err)
	}
	if list, err := store.List(); err != nil || len(list) != 0 {
		t.Errorf("list %v, %v", list, err)
	}
	if len(store.read) != 0 {
		t.Errorf("%d specs are remembered that are not there", len(store.read))
	}
}

// BenchmarkList reads a folder of 80 specs, as the agent does every ten seconds: under a millisecond where nothing has
// changed, 27 when every file is parsed.
func BenchmarkList(b *testing.B) {
	store, err := Open(b.TempDir())
	must.OK(b, err)
	for i := range 80 {
		spec := example(fmt.Sprintf("%016x", i))
		for j := range 40 {
			spec.Driver.Mounts = append(spec.Driver.Mounts, Mount{Host: "/a", Container: fmt.Sprintf("/usr/lib64/lib%d.so", j), Options: []string{"ro", "nosuid", "nodev", "rbind", "rprivate"}})
		}
		must.OK(b, store.Write(spec))
	}
	for b.Loop() {
		if list, err := store.List(); err != nil || len(list) != 80 {
			b.Fatal(len(list), err)
		}
	}
}

func TestListKeepsTheGoodAndNamesTheBad(t *testing.T) {
	dir := t.TempDir()
	store, err := Open(dir)
	must.OK(t, err)
	must.OK(t, store.Write(example("0123456789abcdef")))
	files := map[string]string{
		filename("1111111111111111"): "{broken",
		"nvidia.json":                "{not ours either",
		"tandem-gpu.io-vgpu_x.json":  "{no name of ours",
	}
	for name, content := range files {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	list, err := store.List()
	if len(list) != 1 || list[0].Name != "0123456789abcdef" {
		t.Errorf("list = %v, want the good spec only", list)
	}
	if err == nil || !strings.Contains(err.Error(), "1111111111111111") || strings.Contains(err.Error(), "nvidia.json") {
		t.Errorf("error %v, want it to name the broken file of ours and no other", err)
	}
}

func TestRemove(t *testing.T) {
	store, err := Open(t.TempDir())
	must.OK(t, err)
	spec := example("0123456789abcdef")
	must.OK(t, store.Write(spec))
	for range 2 { // the second time there is nothing to remove
		must.OK(t, store.Remove(spec.Name))
	}
	if _, err := store.Read(spec.Name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read after remove: %v, want fs.ErrNotExist", err)
	}
}

func TestNamesThatAreNotOursTouchNoFile(t *testing.T) {
	store, err := Open(t.TempDir())
	must.OK(t, err)
	for _, name := range []string{"", "../../etc/passwd", "0123456789ABCDEF", "0123456789abcde", "0123456789abcdef0"} {
		if err := store.Write(example(name)); err == nil {
			t.Errorf("write %q: no error", name)
		}
		if err := store.Remove(name); err == nil {
			t.Errorf("remove %q: no error", name)
		}
		if _, ok := ParseQualified(Qualified(name)); ok {
			t.Errorf("parse %q: taken for ours", Qualified(name))
		}
	}
}

func TestNewNameIsFreshAndOurs(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		name, err := NewName()
		must.OK(t, err)
		if seen[name] {
			t.Fatalf("name %s came twice", name)
		}
		seen[name] = true
		if got, ok := ParseQualified(Qualified(name)); !ok || got != name {
			t.Fatalf("ParseQualified(Qualified(%q)) = %q, %v", name, got, ok)
		}
	}
}
