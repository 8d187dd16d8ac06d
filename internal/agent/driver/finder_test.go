package driver

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/test/must"
)

const version = "580.95.05"

// host makes a host's root with the given files, which end in "->target" for a link and in "*" for a program.
func host(t *testing.T, files ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, f := range files {
		name, target, isLink := strings.Cut(f, "->")
		name, isProgram := strings.CutSuffix(name, "*")
		path := filepath.Join(root, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		mode := os.FileMode(0o644)
		if isProgram {
			mode = 0o755
		}
		var err error
		if isLink {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, nil, mode)
		}
		must.OK(t, err)
	}
	return root
}

const lib = "/usr/lib/x86_64-linux-gnu/"

// packages is a host whose distribution installed the driver and the container toolkit.
func packages(more ...string) []string {
	return append([]string{
		"/usr/bin/nvidia-cdi-hook*", "/sbin/ldconfig*", "/sbin/ldconfig.real*",
		lib + "libcuda.so." + version, lib + "libcuda.so.1->libcuda.so." + version,
		lib + "libnvidia-ml.so." + version, lib + "libnvidia-ptxjitcompiler.so." + version,
		lib + "libcuda.so.535.1.1", // what an upgrade left behind
		lib + "libc.so.6",
		"/usr/bin/nvidia-smi*", "/usr/bin/nvidia-cuda-mps-control*", "/usr/bin/nvidia-cuda-mps-server*", "/usr/bin/nvidia-persistenced*",
		"/run/nvidia-persistenced/socket", "/tmp/nvidia-mps/control",
		"/usr/share/nvidia/nvoptix.bin", "/lib/firmware/nvidia/" + version + "/gsp_tu10x.bin",
	}, more...)
}

func containerPaths(mounts []cdi.Mount) []string {
	paths := make([]string, 0, len(mounts))
	for _, m := range mounts {
		paths = append(paths, m.Container)
	}
	return paths
}

var wantPaths = []string{
	"/usr/bin/nvidia-smi",
	lib + "libcuda.so." + version, lib + "libnvidia-ml.so." + version, lib + "libnvidia-ptxjitcompiler.so." + version,
}

func TestLibrariesOfAPackagedDriver(t *testing.T) {
	root := host(t, packages()...)
	got, err := New(Options{HostRoot: root}).Edits(version)
	must.OK(t, err)
	if diff := cmp.Diff(wantPaths, containerPaths(got.Mounts)); diff != "" {
		t.Errorf("mounts: libraries of this version and nvidia-smi, nothing of MPS, sockets or firmware (-want +got):\n%s", diff)
	}
	for _, m := range got.Mounts {
		if m.Host != m.Container {
			t.Errorf("mount %v: the runtime sees the host without %s", m, root)
		}
		if !slices.Contains(m.Options, "ro") {
			t.Errorf("mount %v can be written to", m)
		}
	}
	if len(got.Devices) != 0 {
		t.Errorf("devices %v, want none: they follow from the assignment", got.Devices)
	}
	if !slices.Contains(got.Env, "NVIDIA_VISIBLE_DEVICES=void") {
		t.Errorf("env %q lets NVIDIA's runtime add devices of its own", got.Env)
	}
	checkHooks(t, got.Hooks, "/usr/bin/nvidia-cdi-hook", "--ldconfig-path /sbin/ldconfig.real", "create-symlinks --link libcuda.so.1::"+lib+"libcuda.so")
	for _, h := range got.Hooks {
		if strings.Contains(strings.Join(h.Args, " "), root) {
			t.Errorf("hook %v names a path of this process", h)
		}
	}
}

func checkHooks(t *testing.T, hooks []cdi.Hook, path string, says ...string) {
	t.Helper()
	lines := make([]string, 0, len(hooks))
	for _, h := range hooks {
		if h.Path != path || h.Stage != "createContainer" {
			t.Errorf("hook %v, want %s at createContainer", h, path)
		}
		lines = append(lines, strings.Join(h.Args, " "))
	}
	all := strings.Join(lines, "\n")
	for _, part := range append(says, "update-ldcache", "--folder "+strings.TrimSuffix(lib, "/")) {
		if !strings.Contains(all, part) {
			t.Errorf("hooks say\n%s\nwithout %q", all, part)
		}
	}
}

func TestLibrariesOfADriverContainer(t *testing.T) {
	const root = "/run/nvidia/driver"
	files := []string{"/usr/local/nvidia/toolkit/nvidia-cdi-hook*"}
	for _, f := range packages() {
		if !strings.Contains(f, "hook") {
			files = append(files, root+f)
		}
	}
	files = append(files, "/var/run->../run")
	seen := host(t, files...)
	for _, at := range []string{root, "/var/run/nvidia/driver", root + "/"} {
		got, err := New(Options{Root: at, HostRoot: seen}).Edits(version)
		must.OK(t, err)
		if diff := cmp.Diff(wantPaths, containerPaths(got.Mounts)); diff != "" {
			t.Errorf("root %s: in the container (-want +got):\n%s", at, diff)
		}
		for _, m := range got.Mounts {
			if m.Host != root+m.Container {
				t.Errorf("root %s: mount %v, want it from %s", at, m, root+m.Container)
			}
		}
		checkHooks(t, got.Hooks, "/usr/local/nvidia/toolkit/nvidia-cdi-hook")
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	without := func(drop string) []string {
		return slices.DeleteFunc(packages(), func(f string) bool { return strings.Contains(f, drop) })
	}
	cases := []struct {
		name    string
		files   []string
		options Options
		version string
		is      error
		says    string
	}{
		{"no hook", without("cdi-hook"), Options{}, version, ErrNoHook, "Container Toolkit"},
		{"a hook that cannot be run", append(without("cdi-hook"), "/usr/bin/nvidia-cdi-hook"), Options{}, version, ErrNoHook, "nvidia-cdi-hook"},
		{"no driver", []string{"/usr/bin/nvidia-cdi-hook*", lib + "libc.so.6"}, Options{}, version, nil, "libcuda.so"},
		{"no libcuda", without("libcuda"), Options{}, version, ErrNoLibraries, version},
		{"libraries of another version", packages(), Options{}, "590.1.1", nil, "590.1.1"},
		{"no root", packages(), Options{Root: "/run/nvidia/driver"}, version, os.ErrNotExist, "/run/nvidia/driver"},
		{"a root elsewhere", packages("/driver->" + os.TempDir()), Options{Root: "/driver"}, version, nil, "leads out of"},
		{"version unknown", packages(), Options{}, "", nil, "version is not known"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.options.HostRoot = host(t, c.files...)
			edits, err := New(c.options).Edits(c.version)
			if err == nil {
				t.Fatalf("got %+v, want an error", edits)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %q is not %q", err, c.is)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %q does not say %q", err, c.says)
			}
		})
	}
}

// A library that is a link to somewhere else would be mounted from a host path that means something else there.
func TestALibraryOutsideOfTheHostIsRefused(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "libnvidia-nvvm.so."+version)
	must.OK(t, os.WriteFile(elsewhere, nil, 0o600))
	if edits, err := (Options{HostRoot: "/host"}).keep(&specs.ContainerEdits{Mounts: []*specs.Mount{{HostPath: elsewhere, ContainerPath: elsewhere}}}); err == nil {
		t.Errorf("got %+v, want an error", edits)
	}
}

func TestEditsAreFoundOnceAndAgainWhenTheDriverChanges(t *testing.T) {
	root := host(t, packages()...)
	f := New(Options{HostRoot: root})
	find := func(version string) []string {
		t.Helper()
		e, err := f.Edits(version)
		must.OK(t, err)
		return containerPaths(e.Mounts)
	}
	find(version)
	added := filepath.Join(root, lib, "libnvidia-new.so."+version)
	must.OK(t, os.WriteFile(added, nil, 0o600))
	if got := find(version); len(got) != len(wantPaths) {
		t.Errorf("asked again: %v, want what was found first", got)
	}
	must.OK(t, os.Remove(filepath.Join(root, lib, "libnvidia-ml.so."+version)))
	if got := find(version); !slices.Contains(got, lib+"libnvidia-new.so."+version) || slices.Contains(got, lib+"libnvidia-ml.so."+version) {
		t.Errorf("after a file went: %v, want what is there now", got)
	}
	if got := find("535.1.1"); !slices.Contains(got, lib+"libcuda.so.535.1.1") || len(got) != 2 {
		t.Errorf("another version: %v, want its libcuda and nvidia-smi", got)
	}
	for _, name := range []string{"libcuda.so.535.1.1", "libcuda.so." + version} {
		must.OK(t, os.Remove(filepath.Join(root, lib, name)))
	}
	if got, err := f.Edits("535.1.1"); err == nil {
		t.Errorf("the driver has gone: %v, want an error", got)
	}
}

// nvcdi asks NVML for the version only. A release that asks for more must not end the agent.
func TestAnotherQuestionToNVMLIsAnError(t *testing.T) {
	root := host(t, packages()...)
	if edits, err := ask(question{root: root, hook: hooks[0]}, struct{ nvml.Interface }{}); err == nil || !strings.Contains(err.Error(), "nvcdi") {
		t.Errorf("got %v, %v, want an error of nvcdi", edits, err)
	}
}
