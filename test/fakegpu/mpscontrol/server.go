package main

import (
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// server is one server process and what it keeps for its clients.
type server struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	uid     int
	percent float64
	limits  map[string]uint64
	clients []*client
	// fault servers refuse newcomers; ordered ones are so without a client that could end it. Newcomers to a wedged
	// server wait for ever. A closing server takes no client and ends with its last one.
	fault, ordered, wedged, closing bool
}

func (s *server) pid() int { return s.cmd.Process.Pid }

// start starts a server process for a user with the defaults of this moment.
func (d *daemon) start(uid int) (*server, error) {
	s := &server{uid: uid, percent: d.percent, limits: maps.Clone(d.limits), fault: d.faultNext, ordered: d.faultNext, wedged: d.wedgeNext}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s.cmd = exec.Command(self)
	s.cmd.Args[0] = serverName
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	d.faultNext, d.wedgeNext = false, false
	d.servers = append(d.servers, s)
	go d.reap(s)
	d.log.print("Starting new server %d for user %d", s.pid(), uid)
	d.publish()
	return s, nil
}

// reap removes a server that ended, by command or by a signal from outside. Its clients lose their connection.
func (d *daemon) reap(s *server) {
	_ = s.cmd.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.servers = slices.DeleteFunc(d.servers, func(o *server) bool { return o == s })
	for _, c := range s.clients {
		_ = c.conn.Close()
	}
	d.publish()
}

// end has a server end now; its clients lose their connection.
func (d *daemon) end(s *server) { _ = s.stdin.Close() }

var errOtherUser = errors.New("the server of another user has clients")

// serverFor returns the server that takes clients of a user, and starts it if need be. Source: MPS documentation, "MPS
// Server": without -multiuser-server, a server of another user has to end first, which it does without clients.
func (d *daemon) serverFor(uid int) (*server, error) {
	for _, s := range d.servers {
		if !s.closing && (d.multiUser || s.uid == uid) {
			return s, nil
		}
	}
	for _, s := range d.servers {
		s.closing = true
		if len(s.clients) == 0 {
			d.end(s)
		}
	}
	if len(d.servers) > 0 {
		return nil, errOtherUser
	}
	return d.start(uid)
}

// status returns the documented word for a server's state.
func (d *daemon) status(s *server) string {
	switch {
	case s.fault || d.lost:
		return "FAULT"
	case d.orders.Initializing:
		return "INITIALIZING"
	}
	return "ACTIVE"
}

// publish writes down who uses the device, each process once.
func (d *daemon) publish() {
	if d.state.Path == "" || d.device == "" {
		return
	}
	if len(d.servers) == 0 {
		d.unpublish()
		return
	}
	u := fakegpu.Usage{Server: fakegpu.ServerUsage{PID: d.servers[0].pid()}, Clients: d.uses()}
	if err := u.Write(fakegpu.UsagePath(d.state.Path, d.device)); err != nil {
		d.log.print("%v", err)
	}
}

// uses lists what each process uses, all its contexts together: the most sensitive of them counts, and they press
// together.
func (d *daemon) uses() []fakegpu.ClientUsage {
	list := []fakegpu.ClientUsage{}
	at := map[int]int{}
	for _, s := range d.servers {
		for _, c := range s.clients {
			if c.terminated {
				continue
			}
			i, ok := at[c.pid]
			if !ok {
				i = len(list)
				at[c.pid] = i
				list = append(list, fakegpu.ClientUsage{PID: c.pid})
			}
			list[i].Memory += c.load.Memory
			if !c.broken {
				list[i].SM += c.sm()
				list[i].Bandwidth += c.load.Bandwidth
				list[i].Sensitivity = max(list[i].Sensitivity, c.load.Sensitivity)
				list[i].Pressure += c.load.Pressure
			}
		}
	}
	return list
}

// progress is the speed of a client now, 0 for one that has lost its work.
func (d *daemon) progress(c *client) float64 {
	state, list := d.state.State(), d.uses()
	at := slices.IndexFunc(list, func(u fakegpu.ClientUsage) bool { return u.PID == c.pid })
	if at < 0 {
		return 0
	}
	if state == nil {
		state = &fakegpu.State{}
	}
	alone := fakegpu.Contexts(d.state.Path, d.device)
	if device, instance := state.Find(d.device); device != nil && instance == nil {
		alone = append(alone, device.Processes...)
	}
	speed := state.Interference.Slow(list, alone, time.Now())[at]
	if c.load.SM > c.sm() {
		speed *= float64(c.sm()) / float64(c.load.SM)
	}
	return speed
}

func (d *daemon) unpublish() {
	if d.state.Path != "" && d.device != "" {
		_ = os.Remove(fakegpu.UsagePath(d.state.Path, d.device))
	}
}
