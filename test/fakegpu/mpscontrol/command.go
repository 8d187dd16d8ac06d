package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// answer executes one command. Rejected commands are answered with a text, as the manual page says.
func (d *daemon) answer(out io.Writer, words []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	commands := map[string]func(io.Writer, []string){
		"get_server_list":                      d.serverList,
		"start_server":                         d.startServer,
		"get_server_status":                    d.serverStatus,
		"get_client_list":                      d.clientList,
		"terminate_client":                     d.terminateClient,
		"shutdown_server":                      d.shutdownServer,
		"set_default_active_thread_percentage": d.setDefaultPercent,
		"get_default_active_thread_percentage": d.getDefaultPercent,
		"set_active_thread_percentage":         d.setPercent,
		"get_active_thread_percentage":         d.getPercent,
		"set_default_device_pinned_mem_limit":  d.setDefaultLimit,
		"get_default_device_pinned_mem_limit":  d.getDefaultLimit,
		"set_device_pinned_mem_limit":          d.setLimit,
		"get_device_pinned_mem_limit":          d.getLimit,
		"quit":                                 d.quit,
	}
	if len(words) == 0 {
		return
	}
	if run, ok := commands[words[0]]; ok {
		run(out, words[1:])
		return
	}
	fmt.Fprintf(out, "Unrecognized command: %s\n", words[0])
}

func (d *daemon) serverList(out io.Writer, _ []string) {
	for _, s := range d.servers {
		fmt.Fprintln(out, s.cmd.Process.Pid)
	}
}

func (d *daemon) startServer(out io.Writer, args []string) {
	if len(args) != 2 || args[0] != "-uid" {
		fmt.Fprintln(out, "usage: start_server -uid <user id>")
		return
	}
	uid, err := strconv.Atoi(args[1])
	if err != nil || uid < 0 {
		fmt.Fprintf(out, "Invalid user id: %s\n", args[1])
		return
	}
	if slices.ContainsFunc(d.servers, func(s *server) bool { return s.uid == uid }) {
		fmt.Fprintf(out, "Server for user %d is already running\n", uid)
		return
	}
	s := &server{uid: uid, percent: d.percent, limits: maps.Clone(d.limits)}
	self, err := os.Executable()
	if err == nil {
		s.cmd = exec.Command(self)
		s.cmd.Args[0] = serverName
		s.stdin, err = s.cmd.StdinPipe()
	}
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(out, "Failed to start server: %v\n", err)
		return
	}
	d.servers = append(d.servers, s)
	go d.reap(s)
	d.log.print("Starting new server %d for user %d", s.cmd.Process.Pid, uid)
}

// reap forgets a server that ended, by command or by a signal from outside.
func (d *daemon) reap(s *server) {
	_ = s.cmd.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.servers = slices.DeleteFunc(d.servers, func(o *server) bool { return o == s })
}

// find returns the server with the PID in args[0], if there are enough arguments.
func (d *daemon) find(out io.Writer, args []string, want int) *server {
	if len(args) == want {
		for _, s := range d.servers {
			if strconv.Itoa(s.cmd.Process.Pid) == args[0] {
				return s
			}
		}
	}
	fmt.Fprintf(out, "Server not found: %s\n", strings.Join(args, " "))
	return nil
}

func (d *daemon) serverStatus(out io.Writer, args []string) {
	if d.find(out, args, 1) == nil {
		return
	}
	if d.orders().Fault {
		fmt.Fprintln(out, "FAULT")
		return
	}
	fmt.Fprintln(out, "ACTIVE")
}

func (d *daemon) clientList(out io.Writer, args []string) {
	s := d.find(out, args, 1)
	if s == nil || s != d.servers[0] {
		return
	}
	for _, pid := range d.clients() {
		if !d.gone[pid] {
			fmt.Fprintln(out, pid)
		}
	}
}

func (d *daemon) terminateClient(out io.Writer, args []string) {
	if d.find(out, args, 2) == nil {
		return
	}
	pid, err := strconv.Atoi(args[1])
	if err != nil || !slices.Contains(d.clients(), pid) {
		fmt.Fprintf(out, "Client not found: %s\n", args[1])
		return
	}
	d.gone[pid] = true
}

func (d *daemon) shutdownServer(out io.Writer, args []string) {
	if len(args) == 2 && args[1] == "-f" {
		args = args[:1]
	}
	if s := d.find(out, args, 1); s != nil {
		_ = s.stdin.Close()
	}
}

func (d *daemon) quit(_ io.Writer, _ []string) {
	for _, s := range d.servers {
		_ = s.stdin.Close()
	}
	d.log.print("Quit")
	linger := time.Duration(d.orders().LingerMillis) * time.Millisecond
	if linger > 0 {
		time.AfterFunc(linger, func() { _ = d.listener.Close() })
		return
	}
	// Closing also removes the socket.
	_ = d.listener.Close()
}

func (d *daemon) clients() []int { return nil }
