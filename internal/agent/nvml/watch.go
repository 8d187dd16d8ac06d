package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Event is an XID error that the driver logged, or several equal ones of the same moment.
type Event struct {
	// UUID of the device: of each MIG instance that the error is about, and of the GPU outside MIG mode.
	UUID string
	XID  uint64
	// Class of the XID: ClassOf.
	Class Class
	// Critical errors mean that the device is unhealthy; the others are faults of a program, or only news.
	Critical bool
	// Count is how many such errors there were, at least 1.
	Count int
}

const (
	// watchStepMillis is how long one wait inside of NVML lasts. Watch notices the end of its context, and makes room
	// for Close and Devices, after at most that time.
	watchStepMillis = 500
	// maxBurst is the number of errors that Watch takes from the driver before it reports them. Larger reports less in
	// a storm of equal errors; an error waits for at most this many others.
	maxBurst = 256
	// registerEvery is how often Watch looks for devices that it has not registered yet.
	registerEvery = 5 * time.Second
	// wholeDevice is NVML's word for an error that no GPU instance or compute instance has to itself.
	wholeDevice = 0xFFFFFFFF
)

// errReopened ends a Watch whose handles are stale.
var errReopened = errors.New("the library was opened again")

// Watch reports the XID errors of all devices from now on. Watch returns nil when the context ends. An error means that
// the driver stopped answering, that a device is lost or that Devices opened the library again.
//
// Watch registers devices that come, or come back, within some seconds. MIG instances it knows by what they were when
// their GPU was taken up. So the caller starts Watch again after an error. It also ends Watch by its context and starts
// it again when Devices lists other UUIDs than before. Very old devices have no error events.
//
// Watch reports equal errors that are ready at the same time as one: in a storm of thousands per second it calls report
// once per kind of error and burst. Watch calls report from one goroutine, with no lock held.
func (l *Library) Watch(ctx context.Context, report func(Event)) error {
	w, err := l.watcher()
	if err != nil {
		return fmt.Errorf("watch errors: %w", err)
	}
	defer w.free()
	for ctx.Err() == nil {
		events, err := w.next()
		for _, e := range events {
			report(e)
		}
		if err != nil {
			return fmt.Errorf("watch errors: %w", err)
		}
	}
	return nil
}

// watcher is one event set with its registered devices.
type watcher struct {
	l          *Library
	set        nvml.EventSet
	generation int
	// places by the handle that events carry. A place has the UUID: a lost device does not answer with it any more, and
	// may have another index when it comes back.
	places map[nvml.Device]place
	// eventless devices have no error events at all.
	eventless map[nvml.Device]bool
	// registered is when it was last looked for devices.
	registered time.Time
}

// watcher registers every device that answers.
func (l *Library) watcher() (*watcher, error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	set, ret := l.api.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("create event set: %s", text(ret))
	}
	w := &watcher{l: l, set: set, generation: l.generation, places: map[nvml.Device]place{}, eventless: map[nvml.Device]bool{}}
	if err := w.register(); err != nil {
		_ = set.Free()
		return nil, err
	}
	return w, nil
}

// register takes up the devices that are not yet. A device that fails stays out, so that the agent still gets the
// errors of the others. register fails only when errors leave no device.
func (w *watcher) register() error {
	w.registered = time.Now()
	count, ret := w.l.api.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("count devices: %s", text(ret))
	}
	var failed error
	for i := range count {
		switch ret := w.add(i); ret {
		case nvml.SUCCESS, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_GPU_IS_LOST:
		default:
			failed = fmt.Errorf("register device %d: %s", i, text(ret))
		}
	}
	if len(w.places) > 0 {
		return nil
	}
	return failed
}

// add takes up the device at an index.
func (w *watcher) add(index int) nvml.Return {
	h, ret := w.l.api.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return ret
	}
	if _, known := w.places[h]; known || w.eventless[h] {
		return nvml.SUCCESS
	}
	uuid, ret := h.GetUUID()
	if ret != nvml.SUCCESS {
		return ret
	}
	ret = h.RegisterEvents(nvml.EventTypeXidCriticalError, w.set)
	switch ret {
	case nvml.SUCCESS:
		w.places[h] = place{gpu: Device{UUID: uuid}, instances: w.instances(uuid, h)}
	case nvml.ERROR_NOT_SUPPORTED:
		w.eventless[h] = true
	}
	return ret
}

// instances returns the MIG devices of a GPU. If it cannot read them, Watch reports the errors for the GPU.
func (w *watcher) instances(uuid string, h nvml.Device) []Device {
	if split, _ := w.l.split(h); !split {
		return nil
	}
	list, ret := w.l.instances(Device{UUID: uuid}, h)
	if ret != nvml.SUCCESS {
		return nil
	}
	return list
}

// free must not touch a set that an earlier opening of the library made.
func (w *watcher) free() {
	if w.l.enter() != nil {
		return
	}
	defer w.l.leave()
	if w.generation == w.l.generation {
		_ = w.set.Free()
	}
}

// kind is what makes two errors equal.
type kind struct {
	device nvml.Device
	xid    uint64
	gi, ci uint32
}

// burst holds the errors that were ready at one time, ordered by the first of each kind.
type burst struct {
	events []Event
	// of finds the events of a kind: one for each device that it is about.
	of map[kind][]int
}

func (b *burst) add(w *watcher, data nvml.EventData) {
	k := kind{data.Device, data.EventData, data.GpuInstanceId, data.ComputeInstanceId}
	if _, ok := b.of[k]; !ok {
		for _, uuid := range w.concerned(k) {
			b.of[k] = append(b.of[k], len(b.events))
			class := ClassOf(k.xid)
			b.events = append(b.events, Event{UUID: uuid, XID: k.xid, Class: class, Critical: class.Critical()})
		}
	}
	for _, i := range b.of[k] {
		b.events[i].Count++
	}
}

// next waits for an error and takes what else is ready. next may return both events and an error.
func (w *watcher) next() ([]Event, error) {
	for w.l.wanted.Load() { // otherwise a TryLock finds no gap between waits; the other caller gives up after exclusiveWait
		time.Sleep(time.Millisecond)
	}
	if err := w.l.enter(); err != nil {
		return nil, err
	}
	defer w.l.leave()
	if w.generation != w.l.generation {
		return nil, errReopened
	}
	if time.Since(w.registered) >= registerEvery {
		// The next round repeats what fails now, and Wait returns an error when the driver is gone.
		_ = w.register()
	}
	b := burst{of: map[kind][]int{}}
	for n, wait := 0, uint32(watchStepMillis); n < maxBurst; n, wait = n+1, 0 {
		data, ret := w.set.Wait(wait)
		switch {
		case ret == nvml.ERROR_TIMEOUT:
			return b.events, nil
		case ret != nvml.SUCCESS:
			// Also when one device is gone: waiting again would return at once. Health finds out which one.
			return b.events, fmt.Errorf("wait: %s", text(ret))
		case data.EventType == nvml.EventTypeXidCriticalError:
			b.add(w, data)
		}
	}
	return b.events, nil
}

// concerned returns the UUIDs of the devices that an error is about. An error of an instance that came after Watch
// began counts for all instances of its GPU: to drain a healthy device is better than to let an unhealthy one serve.
func (w *watcher) concerned(k kind) []string {
	p, ok := w.places[k.device]
	if !ok {
		return nil
	}
	if len(p.instances) == 0 {
		return []string{p.gpu.UUID}
	}
	all := make([]string, 0, len(p.instances))
	var some []string
	for _, d := range p.instances {
		all = append(all, d.UUID)
		if k.gi == uint32(d.GI) && (k.ci == wholeDevice || k.ci == uint32(d.CI)) {
			some = append(some, d.UUID)
		}
	}
	if len(some) == 0 {
		return all
	}
	return some
}
