package binding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/computemode"
	"github.com/tandem-gpu/tandem/internal/agent/edit"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
	"github.com/tandem-gpu/tandem/internal/agent/sharing"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Sharing lists the clients of a device.
type Sharing interface {
	Look(ctx context.Context, id string) (sharing.Tenancy, error)
}

// Binder gives the CDI names of starting containers their meaning.
type Binder struct {
	Node      string
	Inventory *inventory.Inventory
	Resolver  *Resolver
	Pods      podsource.Reader
	Sharing   Sharing
	Renderer  edit.Renderer
	Libraries *edit.Libraries
	Specs     *cdi.Store
	Records   *allocation.Records

	// SharingWait bounds the wait for MPS inside one call; it must leave room within the kubelet's limit.
	SharingWait time.Duration

	// Exclusive is nil where the agent leaves the compute mode alone.
	Exclusive *computemode.Exclusivity

	// Bound receives a signal, without waiting, when Bind has written specs.
	Bound chan<- struct{}

	// granting makes the check of the capacity and the record of the grant one step.
	granting sync.Mutex
}

const (
	// SharingWait leaves 12 s of the kubelet's 30 s: two questions to a kubelet that is coming back take 10 s at most.
	SharingWait = 18 * time.Second
	// sharingPoll is the pause between two questions about a device that is not ready.
	sharingPoll = 200 * time.Millisecond
)

// Bind allows the container that holds exactly these slots to start, or says why not. When it returns nil, Bind has
// written the specs of all containers of the pod that hold any of the slots.
func (b *Binder) Bind(ctx context.Context, ids []string) error {
	r, err := b.Resolver.resolve(ctx, ids)
	if err != nil {
		return err
	}
	if err := b.bindPod(ctx, r); err != nil {
		return about(r, err)
	}
	select {
	case b.Bound <- struct{}{}:
	default:
	}
	klog.FromContext(ctx).V(2).Info("Container may start", "pod", klog.KObj(r.pod), "podUID", r.pod.UID,
		"containers", containersOf(r.starting), "slots", allocation.SlotSet(ids))
	return nil
}

func (b *Binder) bindPod(ctx context.Context, r resolved) error {
	assignment, err := b.check(r)
	if err != nil {
		return err
	}
	if err := b.gate(ctx, assignment, r.starting); err != nil {
		return err
	}
	b.granting.Lock()
	defer b.granting.Unlock()
	if err := b.admit(ctx, r.pod, assignment); err != nil {
		return err
	}
	g := allocation.Grant{Pod: r.pod.Namespace + "/" + r.pod.Name, Assignment: r.pod.Annotations[v1alpha1.AnnotationAssignment]}
	if err := b.Records.Granted(string(r.pod.UID), g); err != nil {
		return err
	}
	if err := b.setModes(ctx, assignment, r.starting); err != nil {
		return err
	}
	return b.write(r.pod, assignment, r.sharing)
}

// about puts the pod and the container in front of what is wrong.
func about(r resolved, err error) error {
	prefix := fmt.Sprintf("pod %s/%s, container %s: ", r.pod.Namespace, r.pod.Name, strings.Join(containersOf(r.starting), " or "))
	var no *refused
	if errors.As(err, &no) {
		return &refused{reason: no.reason, text: prefix + no.text}
	}
	return fmt.Errorf("%s%w", prefix, err)
}

func containersOf(list []allocation.Holding) []string {
	names := make([]string, len(list))
	for i, h := range list {
		names[i] = h.Container
	}
	return names
}

// check compares the pod's assignment with the pod, the node's devices and the slots that the kubelet handed out.
func (b *Binder) check(r resolved) (vgpu.Assignment, error) {
	a, err := kube.AssignmentOf(r.pod)
	if errors.Is(err, kube.ErrNoAssignment) {
		return a, refuse(reasonNoAssignment, "%s", unassigned(r.pod))
	}
	if err != nil {
		return a, refuse(reasonMismatch, "the annotation %s is not one that the Tandem scheduler wrote for this pod: %v; create the pod again without it", v1alpha1.AnnotationAssignment, err)
	}
	if a.Node != b.Node {
		return a, refuse(reasonMismatch, "the assignment is for node %s, this is %s"+kube.CreateAgain, a.Node, b.Node)
	}
	if g, ok := b.Records.Grant(string(r.pod.UID)); ok && g.Assignment != r.pod.Annotations[v1alpha1.AnnotationAssignment] {
		return a, refuse(reasonChanged, "the annotation %s changed after the pod was started"+kube.CreateAgain, v1alpha1.AnnotationAssignment)
	}
	devices, err := b.devices()
	if err != nil {
		return a, err
	}
	if err := kube.CheckAssignment(a, devices); err != nil {
		return a, refuse(reasonMismatch, "the assignment does not suit the node: %v"+kube.CreateAgain, err)
	}
	if err := proportional(r.pod, a, devices); err != nil {
		return a, err
	}
	for _, h := range r.sharing {
		if err := slotsAgree(a, h); err != nil {
			return a, err
		}
	}
	return a, nil
}

// unassigned says what a pod without an assignment did wrong.
func unassigned(pod *v1.Pod) string {
	if pod.Spec.SchedulerName != v1alpha1.SchedulerName {
		return fmt.Sprintf("no GPU was assigned: the pod asks for %s but was placed by %q; set spec.schedulerName to %q and create it again",
			v1alpha1.ResourceVGPU, pod.Spec.SchedulerName, v1alpha1.SchedulerName)
	}
	return fmt.Sprintf("no GPU was assigned: the pod was bound past the scheduler %q (spec.nodeName was set?); leave spec.nodeName empty and create it again",
		v1alpha1.SchedulerName)
}

// proportional checks the memory of containers that name none: it follows from their slots and the device.
func proportional(pod *v1.Pod, a vgpu.Assignment, devices []vgpu.Device) error {
	// Bind does not read annotations: a user may change, and break, them after the binding.
	containers, err := kube.Containers(pod)
	if err != nil {
		return refuse(reasonMismatch, "%v", err)
	}
	for i := range containers {
		c := &containers[i]
		given := containerOf(a, c.Name)
		if given == nil || len(given.Devices) == 0 {
			continue // AssignmentOf has compared the lists
		}
		c.Slots = given.Share.Slots * vgpu.Slots(given.Share.Devices) // which AssignmentOf has compared too
		for j := range devices {
			if devices[j].ID != given.Devices[0] {
				continue
			}
			share, no := c.On(&devices[j], 0, 0)
			if no != nil || share.Memory != given.Share.Memory {
				return refuse(reasonMismatch, "the assignment gives container %s %d bytes of device memory, its request is worth %d"+kube.CreateAgain,
					c.Name, given.Share.Memory, share.Memory)
			}
		}
	}
	return nil
}

// slotsAgree compares the number of slots that the kubelet handed out with the container's assignment.
func slotsAgree(a vgpu.Assignment, h allocation.Holding) error {
	c := containerOf(a, h.Container)
	if c == nil {
		return refuse(reasonMismatch, "the assignment does not name container %s"+kube.CreateAgain, h.Container)
	}
	if want := Tokens(c); want != len(h.IDs) {
		return refuse(reasonMismatch, "the assignment gives container %s %d slots, the kubelet handed out %d"+kube.CreateAgain,
			h.Container, want, len(h.IDs))
	}
	return nil
}

// Tokens is the number of slot IDs that the kubelet hands out for a share: the request of the container. A wanted rate
// can make the share larger than that.
func Tokens(c *vgpu.ContainerAssignment) int {
	if c.Asked > 0 {
		return int(c.Asked)
	}
	return int(c.Share.Slots) * len(c.Devices)
}

func containerOf(a vgpu.Assignment, name string) *vgpu.ContainerAssignment {
	for i := range a.Containers {
		if a.Containers[i].Name == name {
			return &a.Containers[i]
		}
	}
	return nil
}

// devices returns the inventory as the ledger sees it, by way of the published form: agent and scheduler must not
// differ in what a device has.
func (b *Binder) devices() ([]vgpu.Device, error) {
	list, _ := b.Inventory.Snapshot()
	return ledgerDevices(list)
}

func ledgerDevices(list []inventory.Device) ([]vgpu.Device, error) {
	return kube.Devices(&v1alpha1.GPUNode{Status: inventory.Status(list, "")})
}

// gate waits until the devices of the starting containers take clients.
func (b *Binder) gate(ctx context.Context, a vgpu.Assignment, starting []allocation.Holding) error {
	ctx, cancel := context.WithTimeout(ctx, b.SharingWait)
	defer cancel()
	list, _ := b.Inventory.Snapshot()
	for _, h := range starting {
		c := containerOf(a, h.Container)
		for _, id := range c.Devices {
			d := inventory.Find(list, string(id))
			if d == nil { // since the check
				return refuse(reasonMismatch, "the node has no device %s any more"+kube.CreateAgain, id)
			}
			if d.Sick != nil {
				return refuse(reasonSick, "device g%d (%s) takes no work now: %v; the container starts when the device has recovered, or delete the pod to have it placed elsewhere", d.Index, d.ID, d.Sick)
			}
			if !inventory.NeedsSharing(*c, d) {
				continue
			}
			if err := b.waitSharing(ctx, d); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Binder) waitSharing(ctx context.Context, d *inventory.Device) error {
	poll := time.NewTicker(sharingPoll)
	defer poll.Stop()
	var err error
	for {
		now := b.askSharing(ctx, d)
		if now == nil {
			return nil
		}
		if err == nil || ctx.Err() == nil { // a question that ctx cut short says less than the answer before
			err = now
		}
		select {
		case <-ctx.Done():
			if errors.Is(err, errExhausted) {
				return refuse(reasonContexts, "device g%d (%s): %v; the container starts when a client of the device has ended, or delete the pod to have it placed elsewhere", d.Index, d.ID, err)
			}
			return refuse(reasonSharing, "MPS of device g%d (%s) is not ready: %v; the agent goes on trying and the kubelet starts the container again", d.Index, d.ID, err)
		case <-poll.C:
		}
	}
}

// errExhausted: the device serves as many clients as it can.
var errExhausted = errors.New("all MPS client contexts are in use")

// askSharing checks that a device takes one client more, and gives up with ctx: a device that is just starting answers
// late. A program may have several processes with a context each; the check covers the first only.
func (b *Binder) askSharing(ctx context.Context, d *inventory.Device) error {
	type answer struct {
		t   sharing.Tenancy
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		t, err := b.Sharing.Look(ctx, d.ID)
		answers <- answer{t, err}
	}()
	select {
	case a := <-answers:
		switch {
		case a.err != nil:
			return a.err
		case a.t.Fault:
			return sharing.ErrFault
		case d.Contexts > 0 && len(a.t.Clients) >= d.Contexts:
			return fmt.Errorf("%w: %d of %d", errExhausted, len(a.t.Clients), d.Contexts)
		}
		return nil
	case <-ctx.Done():
		return errors.New("it has not answered yet")
	}
}

// write puts the specs of the containers in place.
func (b *Binder) write(pod *v1.Pod, a vgpu.Assignment, list []allocation.Holding) error {
	devices, _ := b.Inventory.Snapshot()
	for _, h := range list {
		if h.Name == "" {
			return refuse(reasonNoHolder, "container %s: the kubelet's record of its slots has no CDI name of this agent; delete the pod to have it admitted again", h.Container)
		}
		spec, err := b.specFor(pod, a, h, devices)
		if err != nil {
			return err
		}
		if err := b.Specs.Write(spec); err != nil {
			return err
		}
	}
	return nil
}

func (b *Binder) specFor(pod *v1.Pod, a vgpu.Assignment, h allocation.Holding, devices []inventory.Device) (cdi.Spec, error) {
	c := containerOf(a, h.Container)
	if c == nil {
		return cdi.Spec{}, fmt.Errorf("write CDI spec: the assignment of pod %s/%s does not name container %s", pod.Namespace, pod.Name, h.Container)
	}
	edits, err := b.Renderer.Render(*c, devices)
	if err != nil {
		return cdi.Spec{}, err
	}
	spec := cdi.Spec{
		Name:       h.Name,
		Owner:      cdi.Owner{UID: string(pod.UID), Namespace: pod.Namespace, Pod: pod.Name, Container: h.Container},
		Assignment: pod.Annotations[v1alpha1.AnnotationAssignment],
		Edits:      edits,
	}
	if err := b.Libraries.Complete(&spec); err != nil {
		return cdi.Spec{}, fmt.Errorf("write CDI spec for container %s: %w", h.Container, err)
	}
	return spec, nil
}
