package binding

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/edit"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
)

// finding is one container whose spec differs from its pod's assignment.
type finding struct {
	Owner cdi.Owner
	Name  string
	Why   string
}

// drift compares the specs of containers with the assignments of their pods. The kubelet's checkpoint, where it has the
// name, says to which pod a spec belongs, so drift also finds a spec that the agent wrote for the wrong container. Pods
// that have ended and specs whose pod the kubelet no longer knows do not count.
func drift(specs []cdi.Spec, held []allocation.Holding, pods map[string]*v1.Pod, devices []inventory.Device, r edit.Renderer) []finding {
	owners := map[string]allocation.Holding{}
	for _, h := range held {
		owners[h.Name] = h
	}
	var found []finding
	for _, s := range specs {
		owner := s.Owner
		if h, ok := owners[s.Name]; ok {
			owner.UID, owner.Container = h.UID, h.Container
		}
		pod := pods[owner.UID]
		if pod == nil || podsource.Over(pod) {
			continue
		}
		owner.Namespace, owner.Pod = pod.Namespace, pod.Name
		if why := differs(s, owner, pod, devices, r); why != "" {
			found = append(found, finding{Owner: owner, Name: s.Name, Why: why})
		}
	}
	return found
}

// differs says how a spec differs from the assignment of the pod, "" where it does not.
func differs(s cdi.Spec, owner cdi.Owner, pod *v1.Pod, devices []inventory.Device, r edit.Renderer) string {
	if s.Owner.UID != owner.UID || s.Owner.Container != owner.Container {
		return fmt.Sprintf("its CDI spec was written for %v", s.Owner)
	}
	a, err := kube.AssignmentOf(pod)
	if err != nil {
		return err.Error()
	}
	c := containerOf(a, owner.Container)
	if c == nil {
		return "its pod's assignment does not name it"
	}
	want, err := r.Render(*c, devices)
	if err != nil {
		return err.Error()
	}
	if have, want := essence(s.Edits), essence(want); !slices.Equal(have, want) {
		return fmt.Sprintf("it was given %v, its assignment says %v", have, want)
	}
	return ""
}

// essence is the part of the edits that depends on the assignment, sorted: environment, device files and mounts. Files
// that serve all devices are no part of it, since they change with the driver's modules.
func essence(e cdi.Edits) []string {
	list := edit.Assigned(e.Env)
	for _, d := range e.Devices {
		if !slices.Contains(edit.ControlFiles, strings.TrimPrefix(d.Container, "/dev/")) {
			list = append(list, d.Container+"="+d.Host)
		}
	}
	for _, m := range e.Mounts {
		list = append(list, m.Container+"="+m.Host)
	}
	slices.Sort(list)
	return list
}
