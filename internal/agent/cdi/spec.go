package cdi

import (
	"fmt"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Annotations of the spec files. With them the folder describes itself; the container does not see them.
const (
	annotationUID        = v1alpha1.Domain + "/pod-uid"
	annotationNamespace  = v1alpha1.Domain + "/pod-namespace"
	annotationPod        = v1alpha1.Domain + "/pod-name"
	annotationContainer  = v1alpha1.Domain + "/container"
	annotationAssignment = v1alpha1.AnnotationAssignment
)

// Spec holds the edits of one container under one name.
type Spec struct {
	Name  string
	Owner Owner
	// Assignment is the pod's whole assignment at the time when the agent wrote the spec.
	Assignment string
	// Edits follow from the assignment.
	Edits Edits
	// Driver holds the driver's edits that every container of the node got at that time, empty where another component
	// adds them.
	Driver Edits
}

// Owner is the container that a spec is for.
type Owner struct {
	UID, Namespace, Pod, Container string
}

// String is for people: "namespace/pod, container name".
func (o Owner) String() string {
	return fmt.Sprintf("%s/%s, container %s", o.Namespace, o.Pod, o.Container)
}

// Edits is what the container runtime adds to the container.
type Edits struct {
	// Env holds "NAME=value", in the order of addition.
	Env     []string
	Devices []DeviceNode
	Mounts  []Mount
	Hooks   []Hook
}

// DeviceNode is a device file: where the host has it and where the container finds it.
type DeviceNode struct {
	Host, Container string
}

// Mount is a bind mount of a host path.
type Mount struct {
	Host, Container string
	Options         []string
}

// Hook is a program of the host that the runtime starts for the container.
type Hook struct {
	// Stage in the words of the OCI runtime specification: "createContainer" and others.
	Stage, Path string
	// Args begins with the program's name.
	Args, Env []string
}

// raw returns the spec in the form of the CDI library. The driver's part stands beside the device, so that fromRaw can
// separate the two.
func (s Spec) raw() (*specs.Spec, error) {
	raw := &specs.Spec{
		Kind: v1alpha1.CDIKind,
		Annotations: map[string]string{
			annotationUID:        s.Owner.UID,
			annotationNamespace:  s.Owner.Namespace,
			annotationPod:        s.Owner.Pod,
			annotationContainer:  s.Owner.Container,
			annotationAssignment: s.Assignment,
		},
		Devices:        []specs.Device{{Name: s.Name, ContainerEdits: s.Edits.raw()}},
		ContainerEdits: s.Driver.raw(),
	}
	version, err := specs.MinimumRequiredVersion(raw)
	if err != nil {
		return nil, fmt.Errorf("choose CDI version of %s: %w", s.Name, err)
	}
	raw.Version = version
	return raw, nil
}

func (e Edits) raw() specs.ContainerEdits {
	out := specs.ContainerEdits{Env: e.Env}
	for _, d := range e.Devices {
		out.DeviceNodes = append(out.DeviceNodes, &specs.DeviceNode{Path: d.Container, HostPath: d.Host, Permissions: "rw"})
	}
	for _, m := range e.Mounts {
		out.Mounts = append(out.Mounts, &specs.Mount{HostPath: m.Host, ContainerPath: m.Container, Options: m.Options})
	}
	for _, h := range e.Hooks {
		out.Hooks = append(out.Hooks, &specs.Hook{HookName: h.Stage, Path: h.Path, Args: h.Args, Env: h.Env})
	}
	return out
}

// fromRaw reads what raw wrote. A spec of another shape is an error: only the agent writes under our kind.
func fromRaw(raw *specs.Spec) (Spec, error) {
	if raw.Kind != v1alpha1.CDIKind || len(raw.Devices) != 1 {
		return Spec{}, fmt.Errorf("read CDI spec: kind %q with %d devices, want %q with one", raw.Kind, len(raw.Devices), v1alpha1.CDIKind)
	}
	d := raw.Devices[0]
	s := Spec{
		Name: d.Name,
		Owner: Owner{
			UID:       raw.Annotations[annotationUID],
			Namespace: raw.Annotations[annotationNamespace],
			Pod:       raw.Annotations[annotationPod],
			Container: raw.Annotations[annotationContainer],
		},
		Assignment: raw.Annotations[annotationAssignment],
		Edits:      editsFromRaw(d.ContainerEdits),
		Driver:     editsFromRaw(raw.ContainerEdits),
	}
	if s.Owner.UID == "" || s.Owner.Container == "" {
		return Spec{}, fmt.Errorf("read CDI spec %s: it does not say whose it is", s.Name)
	}
	return s, nil
}

func editsFromRaw(raw specs.ContainerEdits) Edits {
	e := Edits{Env: raw.Env}
	for _, n := range raw.DeviceNodes {
		e.Devices = append(e.Devices, DeviceNode{Host: n.HostPath, Container: n.Path})
	}
	for _, m := range raw.Mounts {
		e.Mounts = append(e.Mounts, Mount{Host: m.HostPath, Container: m.ContainerPath, Options: m.Options})
	}
	for _, h := range raw.Hooks {
		e.Hooks = append(e.Hooks, Hook{Stage: h.HookName, Path: h.Path, Args: h.Args, Env: h.Env})
	}
	return e
}
