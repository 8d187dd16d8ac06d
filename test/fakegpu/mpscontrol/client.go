package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// client is a process with a context on the device.
type client struct {
	conn   net.Conn
	pid    int
	load   fakegpu.ClientLoad
	server *server
	// percent is the share of the SMs that the client may use, fixed at its start: its own wish can only lower the
	// server's.
	percent float64
	// terminated clients lost their work to terminate_client, broken ones to a fault; neither can harm when it goes.
	terminated, broken bool
	// stuck is the wedged server that the client waits for.
	stuck *server
}

// say sends the client an event. A client that does not read must not hold up the daemon.
func (c *client) say(word string) {
	_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintln(c.conn, word)
}

// sm is what the client gets of what it wants.
func (c *client) sm() int { return min(c.load.SM, int(c.percent)) }

// serveClient serves one client until its connection ends.
func (d *daemon) serveClient(conn net.Conn, reader *bufio.Reader, load string) {
	c := &client{conn: conn}
	if err := json.Unmarshal([]byte(load), &c.load); err != nil {
		c.say(err.Error())
		return
	}
	if c.pid = c.load.PID; c.pid == 0 {
		c.pid = peer(conn)
	}
	lines := make(chan string)
	done := make(chan struct{})
	defer close(done)
	go func() {
		defer close(lines)
		for {
			line, err := reader.ReadString('\n')
			if err != nil {
				return
			}
			select {
			case lines <- strings.TrimSpace(line):
			case <-done:
				return
			}
		}
	}()
	if !d.connect(c, lines) {
		return
	}
	clean := false
	for line := range lines {
		if clean = line == "bye"; clean {
			break
		}
		d.handle(c, line)
	}
	d.leave(c, clean)
}

// peer returns the PID of the process at the other end, as this process's PID namespace numbers it.
func peer(conn net.Conn) int {
	_, pid := credentials(conn)
	return pid
}

// credentials returns the user and the PID at the other end; user -1 is unknown.
func credentials(conn net.Conn) (uid, pid int) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return -1, 0
	}
	uid = -1
	_ = raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			uid, pid = int(cred.Uid), int(cred.Pid)
		}
	})
	return uid, pid
}

// connect waits until a server takes the client. The result is false after a refusal, or when the client goes before.
func (d *daemon) connect(c *client, lines <-chan string) bool {
	tick := time.NewTicker(lookStep)
	defer tick.Stop()
	for {
		answer, decided := d.admit(c)
		if decided {
			if answer != "" {
				c.say(answer)
			}
			return c.server != nil
		}
		select {
		case _, ok := <-lines:
			if !ok {
				return false
			}
		case <-tick.C:
		}
	}
}

// admit takes or refuses a client, or has it wait. Without an answer a refused one loses its connection.
func (d *daemon) admit(c *client) (answer string, decided bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.obey()
	switch {
	case d.orders.Hang:
		return "", false
	case d.quitting:
		return "", true
	case c.stuck != nil:
		return "", !slices.Contains(d.servers, c.stuck)
	}
	s, err := d.serverFor(c.load.UID)
	switch {
	case errors.Is(err, errOtherUser):
		return "", false
	case err != nil:
		return err.Error(), true
	case s.wedged:
		c.stuck = s
		return "", false
	case s.fault || d.lost:
		return "fault", true
	case d.orders.Initializing:
		return "", false
	case d.contexts() >= d.contextLimit():
		return "too many contexts", true
	case d.exceeds(c, s, c.load):
		return "out of memory", true
	}
	c.server, c.percent = s, s.percent
	if c.load.Percent > 0 {
		c.percent = min(c.load.Percent, s.percent)
	}
	s.clients = append(s.clients, c)
	d.publish()
	return fmt.Sprintf("ok %d", s.pid()), true
}

func (d *daemon) contexts() int {
	n := 0
	for _, s := range d.servers {
		n += len(s.clients)
	}
	return n
}

func (d *daemon) contextLimit() int {
	s := d.state.State()
	if s == nil {
		s = &fakegpu.State{}
	}
	return s.ContextLimit(d.device)
}

// handle carries out a line of a client.
func (d *daemon) handle(c *client, line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.broken || c.terminated {
		return
	}
	if line == "fault" {
		d.fault(c.server, false)
		return
	}
	if line == "progress" {
		c.say(fmt.Sprintf("progress %g", d.progress(c)))
		return
	}
	raw, ok := strings.CutPrefix(line, "load ")
	// Missing fields of a line are 0.
	var load fakegpu.ClientLoad
	if !ok || json.Unmarshal([]byte(raw), &load) != nil {
		return
	}
	load.UID, load.PID, load.Percent, load.MemoryLimit = c.load.UID, c.load.PID, c.load.Percent, c.load.MemoryLimit
	if d.exceeds(c, c.server, load) {
		c.say("out of memory")
		return
	}
	c.load = load
	d.publish()
	c.say("loaded")
}

// exceeds says whether a load is above the limit of its client or above what is free on the device.
func (d *daemon) exceeds(c *client, s *server, load fakegpu.ClientLoad) bool {
	// The daemon sees one device, which is also number 0.
	for _, limit := range []uint64{load.MemoryLimit, s.limits[d.device], s.limits["0"]} {
		if limit > 0 && load.Memory > limit {
			return true
		}
	}
	free, known := d.free(c)
	return known && load.Memory > free
}

// free is the memory of the device that no other client has.
func (d *daemon) free(c *client) (uint64, bool) {
	s := d.state.State()
	if s == nil {
		return 0, false
	}
	device, instance := s.Find(d.device)
	var room uint64
	switch {
	case device == nil:
		return 0, false
	case instance != nil:
		room = instance.Memory
	default:
		room = device.Memory - device.Reserved - device.UsedMemory
	}
	for _, s := range d.servers {
		for _, o := range s.clients {
			if o != c && !o.terminated {
				room -= min(room, o.load.Memory)
			}
		}
	}
	return room, true
}

// leave removes a client. A client that goes without a message while its work is on the GPU is a fatal fault of its
// server, as on an H100 with driver 580.159.
func (d *daemon) leave(c *client, clean bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := c.server
	s.clients = slices.DeleteFunc(s.clients, func(o *client) bool { return o == c })
	if !clean && c.load.InFlight && !c.terminated && !c.broken {
		d.log.print("Client %d of server %d has gone with work in flight", c.pid, s.pid())
		if slices.Contains(d.servers, s) { // one that has ended has taken its clients with it
			d.fault(s, false)
		}
	}
	d.recover(s)
	if s.closing && len(s.clients) == 0 {
		d.end(s)
	}
	d.publish()
}
