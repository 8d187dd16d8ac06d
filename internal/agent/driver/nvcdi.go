package driver

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
)

// question is the query to nvcdi. root is a path of this process, hook and ldconfig are paths of the host.
type question struct {
	root, hook, ldconfig string
}

// ask returns the edits of nvcdi for every container, whatever its devices.
func ask(q question, stand nvml.Interface) (edits *specs.ContainerEdits, err error) {
	// The stand-in answers one call; a release of nvcdi that makes another one must not end the agent.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("nvcdi: %v", r)
		}
	}()
	options := []nvcdi.Option{
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithNvmlLib(stand),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils), // nvcdi would load a library of the driver here
		nvcdi.WithLogger(silent{}),
		nvcdi.WithDriverRoot(q.root),
		nvcdi.WithNVIDIACDIHookPath(q.hook),
		nvcdi.WithLdconfigPath(q.ldconfig),
	}
	library, err := nvcdi.New(options...)
	if err != nil {
		return nil, fmt.Errorf("nvcdi: %w", err)
	}
	common, err := library.GetCommonEdits()
	if err != nil {
		return nil, fmt.Errorf("nvcdi: %w", err)
	}
	return common.ContainerEdits, nil
}

// answers is the NVML that nvcdi gets.
type answers struct {
	nvml.Interface
	version string
}

// Init says that all is well.
func (answers) Init() nvml.Return { return nvml.SUCCESS }

// Shutdown says that all is well.
func (answers) Shutdown() nvml.Return { return nvml.SUCCESS }

// SystemGetDriverVersion returns the version that the agent read.
func (a answers) SystemGetDriverVersion() (string, nvml.Return) { return a.version, nvml.SUCCESS }

// silent drops nvcdi's log: it names every file that a driver might have and this one has not. Its errors say what
// matters.
type silent struct{}

func (silent) Debugf(string, ...any)   {}
func (silent) Errorf(string, ...any)   {}
func (silent) Infof(string, ...any)    {}
func (silent) Warningf(string, ...any) {}
func (silent) Tracef(string, ...any)   {}

// keep takes over what a CUDA program needs, by host path, in a stable order. keep leaves out device files: they follow
// from the assignment.
func (o Options) keep(raw *specs.ContainerEdits) (cdi.Edits, error) {
	edits := cdi.Edits{Env: slices.Clone(raw.Env)}
	for _, m := range raw.Mounts {
		if !needed(m.ContainerPath) {
			continue
		}
		host, ok := o.onHost(m.HostPath)
		if !ok {
			return cdi.Edits{}, fmt.Errorf("%s is outside of %s: a link of the driver's folder leads out of it", m.HostPath, o.HostRoot)
		}
		edits.Mounts = append(edits.Mounts, cdi.Mount{Host: host, Container: m.ContainerPath, Options: m.Options})
	}
	slices.SortFunc(edits.Mounts, func(a, b cdi.Mount) int { return cmp.Compare(a.Container, b.Container) })
	for _, h := range raw.Hooks {
		edits.Hooks = append(edits.Hooks, cdi.Hook{Stage: h.HookName, Path: h.Path, Args: h.Args, Env: h.Env})
	}
	return edits, nil
}

// needed reports whether a CUDA program needs a file of the driver: libraries, and nvidia-smi for people. Tenants do
// not need the rest of nvcdi's list. With the host's own MPS pipes in /tmp/nvidia-mps and the MPS programs a tenant
// would reach daemons of other devices. The rest are sockets of host daemons, firmware, and settings of graphics
// programs.
func needed(path string) bool {
	name := filepath.Base(path)
	return strings.Contains(name, ".so") || name == "nvidia-smi"
}
