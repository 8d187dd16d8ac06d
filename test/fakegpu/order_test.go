package fakegpu_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

func TestFaultByOrder(t *testing.T) {
	g := newGPU(t)
	c := g.dial(fakegpu.ClientLoad{})
	g.order(func(d *fakegpu.Device) { d.MPS.Fault = true })
	ended(t, c, fakegpu.ErrFault)
	if got := g.status(); got != "FAULT" {
		t.Errorf("status %s, want FAULT", got)
	}
	// The clients' end cures it, the order stands or not.
	c.Close()
	eventually(t, "the server is active again", func() bool { return g.status() == "ACTIVE" })
	g.dial(fakegpu.ClientLoad{}).Close()
	// It is one fault, not one for each look; the next comes with the next order.
	g.order(func(d *fakegpu.Device) { d.MPS.Fault = false })
	eventually(t, "no client is left", func() bool { return g.clients() == "" })
	g.order(func(d *fakegpu.Device) { d.MPS.Fault = true })
	if got := g.status(); got != "FAULT" {
		t.Errorf("status without clients %s, want FAULT", got)
	}
	g.order(func(d *fakegpu.Device) { d.MPS.Fault = false })
	if got := g.status(); got != "ACTIVE" {
		t.Errorf("status after the order %s, want ACTIVE", got)
	}
}

func TestOrdersSpareANewDaemon(t *testing.T) {
	g := newGPU(t)
	g.dial(fakegpu.ClientLoad{}).Close()
	g.order(func(d *fakegpu.Device) { d.MPS = fakegpu.MPS{Wedge: true, Fault: true} })
	if !g.blocks() {
		t.Error("not wedged by order")
	}
	g.restart()
	c := g.dial(fakegpu.ClientLoad{})
	if got := g.status(); got != "ACTIVE" {
		t.Errorf("status of the new server %s, want ACTIVE", got)
	}
	c.Close()
	// Withdrawn and given again, the orders find the new daemon. The wedge stays when its order goes.
	g.order(func(d *fakegpu.Device) { d.MPS = fakegpu.MPS{} })
	g.status()
	g.order(func(d *fakegpu.Device) { d.MPS.Wedge = true })
	g.status()
	g.order(func(d *fakegpu.Device) { d.MPS.Wedge = false })
	if !g.blocks() {
		t.Error("not wedged by the second order")
	}
}

func TestOrdersWithoutAServerWaitForOne(t *testing.T) {
	for _, order := range []fakegpu.MPS{{Fault: true}, {Wedge: true}} {
		g := newGPU(t)
		g.order(func(d *fakegpu.Device) { d.MPS = order })
		if order.Wedge {
			if !g.blocks() {
				t.Error("not wedged")
			}
			continue
		}
		g.refused(fakegpu.ClientLoad{}, fakegpu.ErrFault)
		g.order(func(d *fakegpu.Device) { d.MPS = fakegpu.MPS{} })
		g.dial(fakegpu.ClientLoad{})
	}
}

func TestHangInitializingAndNoStart(t *testing.T) {
	g := newGPU(t)
	c := g.dial(fakegpu.ClientLoad{})
	g.order(func(d *fakegpu.Device) { d.MPS.Initializing = true })
	if got := g.status(); got != "INITIALIZING" {
		t.Errorf("status %s, want INITIALIZING", got)
	}
	if !g.blocks() {
		t.Error("a server that initializes takes clients")
	}
	g.order(func(d *fakegpu.Device) { d.MPS = fakegpu.MPS{Hang: true} })
	if !g.blocks() {
		t.Error("a daemon that hangs takes clients")
	}
	g.order(func(d *fakegpu.Device) { d.MPS = fakegpu.MPS{NoStart: true} })
	if err := c.Load(fakegpu.ClientLoad{}); err != nil {
		t.Errorf("the client that was there: %v", err)
	}
	g.say("quit -t 0")
	out, code := g.run("", "-d")
	if code == 0 || !strings.Contains(out, "Failed to start") {
		t.Errorf("start said %q, exit status %d", out, code)
	}
}

func TestLostDeviceBreaksItsClients(t *testing.T) {
	g := newGPU(t)
	c := g.dial(fakegpu.ClientLoad{})
	g.order(func(d *fakegpu.Device) { d.Lost = true })
	ended(t, c, fakegpu.ErrFault)
	c.Close()
	g.refused(fakegpu.ClientLoad{}, fakegpu.ErrFault)
	if got := g.status(); got != "FAULT" {
		t.Errorf("status %s, want FAULT", got)
	}
	g.order(func(d *fakegpu.Device) { d.Lost = false })
	eventually(t, "the server is active again", func() bool { return g.status() == "ACTIVE" })
	g.dial(fakegpu.ClientLoad{})
}

func TestMemoryLimits(t *testing.T) {
	g := newGPU(t)
	g.say("set_default_device_pinned_mem_limit " + g.uuid + " 4G")
	c := g.dial(fakegpu.ClientLoad{Memory: 4 << 30})
	g.refused(fakegpu.ClientLoad{Memory: 4<<30 + 1}, fakegpu.ErrOutOfMemory)
	// The environment lowers the limit and does not raise it.
	g.refused(fakegpu.ClientLoad{Memory: 2 << 30, MemoryLimit: 1 << 30}, fakegpu.ErrOutOfMemory)
	g.refused(fakegpu.ClientLoad{Memory: 5 << 30, MemoryLimit: 8 << 30}, fakegpu.ErrOutOfMemory)
	if err := c.Load(fakegpu.ClientLoad{Memory: 5 << 30}); !errors.Is(err, fakegpu.ErrOutOfMemory) {
		t.Errorf("Load above the limit: %v", err)
	}
	if got := fakegpu.ReadUsage(g.state, g.uuid).Clients[0].Memory; got != 4<<30 {
		t.Errorf("memory %d after a refused allocation, want %d", got, 4<<30)
	}
	// A running server keeps its limits.
	g.say("set_default_device_pinned_mem_limit " + g.uuid + " 1G")
	g.dial(fakegpu.ClientLoad{Memory: 3 << 30})
	// The device itself is a limit: 40960 MiB, 620 MiB reserved, 7 GiB taken.
	g.say("set_device_pinned_mem_limit " + g.server() + " " + g.uuid + " 100G")
	g.dial(fakegpu.ClientLoad{Memory: (40960 - 620 - 7*1024) << 20}).Close()
	g.refused(fakegpu.ClientLoad{Memory: (40960-620-7*1024)<<20 + 1}, fakegpu.ErrOutOfMemory)
}

func TestPercentageCutsTheLoad(t *testing.T) {
	g := newGPU(t)
	g.say("set_default_active_thread_percentage 50")
	for i, load := range []fakegpu.ClientLoad{{SM: 80}, {SM: 80, Percent: 20}, {SM: 80, Percent: 70}, {SM: 10, Percent: 20}} {
		load.PID = 70 + i
		g.dial(load)
	}
	// A server's new percentage is for clients to come.
	g.say("set_active_thread_percentage " + g.server() + " 5")
	g.dial(fakegpu.ClientLoad{SM: 80, PID: 74})
	want := []fakegpu.ClientUsage{{PID: 70, SM: 50}, {PID: 71, SM: 20}, {PID: 72, SM: 50}, {PID: 73, SM: 10}, {PID: 74, SM: 5}}
	if diff := cmp.Diff(want, fakegpu.ReadUsage(g.state, g.uuid).Clients); diff != "" {
		t.Error(diff)
	}
}

func TestContextsAreLimited(t *testing.T) {
	for cuda, limit := range map[int]int{13000: 48, 13010: 60} {
		g := newGPU(t)
		if err := fakegpu.Update(g.state, func(s *fakegpu.State) { s.CUDAVersion = cuda }); err != nil {
			t.Fatal(err)
		}
		var last *fakegpu.Client
		for range limit {
			last = g.dial(fakegpu.ClientLoad{})
		}
		g.refused(fakegpu.ClientLoad{}, fakegpu.ErrTooManyContexts)
		last.Close()
		eventually(t, "a context is free", func() bool {
			c, err := fakegpu.Dial(t.Context(), g.pipe(), fakegpu.ClientLoad{})
			if err == nil {
				c.Close()
			}
			return err == nil
		})
	}
	old := fakegpu.State{CUDAVersion: 13010, Devices: []fakegpu.Device{{UUID: "GPU-1", Major: 6}}}
	if got := old.ContextLimit("GPU-1"); got != 16 {
		t.Errorf("%d contexts before Volta, want 16", got)
	}
}

func TestOneUserAtATime(t *testing.T) {
	g := newGPU(t)
	root := g.dial(fakegpu.ClientLoad{})
	second := make(chan *fakegpu.Client)
	go func() {
		c, err := fakegpu.Dial(t.Context(), g.pipe(), fakegpu.ClientLoad{UID: 1000})
		if err != nil {
			t.Error(err)
		}
		second <- c
	}()
	select {
	case <-second:
		t.Error("the second user did not wait for the first")
	case <-time.After(300 * time.Millisecond):
	}
	root.Close()
	c := <-second
	if c == nil || c.Server() == root.Server() {
		t.Fatal("users share a server")
	}
	c.Close()

	g = newGPU(t, "-multiuser-server")
	if a, b := g.dial(fakegpu.ClientLoad{}), g.dial(fakegpu.ClientLoad{UID: 1000}); a.Server() != b.Server() {
		t.Error("users of a multi-user server have two")
	}
}

func TestUpdatesAtOnceAreAllKept(t *testing.T) {
	path := write(t, node(t, "T4", 1))
	var wg sync.WaitGroup
	const writers, each = 8, 25
	for range writers {
		wg.Go(func() {
			for i := range each {
				if err := fakegpu.Update(path, func(s *fakegpu.State) { s.Events = append(s.Events, fakegpu.Event{XID: uint64(i)}) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s, err := fakegpu.Load(path)
	if err != nil || len(s.Events) != writers*each {
		t.Errorf("%d events, %v, want %d", len(s.Events), err, writers*each)
	}
}

func TestTooManyInstancesAreRefused(t *testing.T) {
	s := node(t, "A100", 1)
	for i := range fakegpu.MaxInstances + 1 {
		s.Devices[0].MIG.Instances = append(s.Devices[0].MIG.Instances, fakegpu.MIGInstance{UUID: fmt.Sprintf("MIG-%d", i)})
	}
	if _, err := fakegpu.Load(write(t, s)); err == nil || !strings.Contains(err.Error(), "at most 7") {
		t.Errorf("%v, want an error with the limit", err)
	}
}
