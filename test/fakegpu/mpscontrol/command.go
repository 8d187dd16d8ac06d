package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// command executes one command, unless the daemon hangs.
func (d *daemon) command(conn net.Conn, words []string) {
	d.mu.Lock()
	d.obey()
	if d.orders.Hang {
		d.mu.Unlock()
		d.hang(conn)
		return
	}
	defer d.mu.Unlock()
	if len(words) > 0 && !strings.HasPrefix(words[0], "get_") && !privileged(conn) {
		refuse(conn, words[0])
		return
	}
	d.answer(conn, words)
}

// privileged says whether the other side is root or the user who started the daemon.
func privileged(conn net.Conn) bool {
	uid, _ := credentials(conn)
	return uid == 0 || uid == os.Geteuid()
}

// refuse answers a command that changes something, of a user who may not. On an H100 with driver 580.159 all users may
// read, and only root and the daemon's user may end a client, also one of their own.
func refuse(conn net.Conn, command string) {
	if command == "quit" {
		fmt.Fprintln(conn, "Not enough privilege to execute quit command")
		return
	}
	uid, _ := credentials(conn)
	fmt.Fprintf(conn, "Insufficient privileges for UID %d. Control deamon settings can only be modified by the user who started it or by the root user.\n", uid)
	if command == "terminate_client" {
		fmt.Fprintln(conn, "800")
	}
}

// hang says nothing until the other side gives up.
func (d *daemon) hang(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// answer answers one command. The answer to a rejected command is a text, as the manual page says.
func (d *daemon) answer(out io.Writer, words []string) {
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
	fmt.Fprintf(out, "Unknown command \"%s\"\n", words[0])
}

func (d *daemon) serverList(out io.Writer, _ []string) {
	for _, s := range d.servers {
		fmt.Fprintln(out, s.pid())
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
	if _, err := d.start(uid); err != nil {
		fmt.Fprintf(out, "Failed to start server: %v\n", err)
	}
}

// find returns the server with the PID that is the one argument.
func (d *daemon) find(out io.Writer, args []string) *server {
	if len(args) == 1 {
		for _, s := range d.servers {
			if strconv.Itoa(s.pid()) == args[0] {
				return s
			}
		}
	}
	fmt.Fprintf(out, "Server not found: %s\n", strings.Join(args, " "))
	return nil
}

func (d *daemon) serverStatus(out io.Writer, args []string) {
	if s := d.find(out, args); s != nil {
		fmt.Fprintln(out, d.status(s))
	}
}

func (d *daemon) clientList(out io.Writer, args []string) {
	s := d.find(out, args)
	if s == nil {
		return
	}
	said := map[int]bool{}
	for _, c := range s.clients {
		if !c.terminated && !said[c.pid] {
			said[c.pid] = true
			fmt.Fprintln(out, c.pid)
		}
	}
}

// terminateClient ends the work of a process on the GPU. The process lives on and finds out at its next call.
func (d *daemon) terminateClient(out io.Writer, args []string) {
	s := d.find(out, args[:min(1, len(args))])
	if s == nil {
		return
	}
	found := false
	for _, c := range s.clients {
		if len(args) == 2 && strconv.Itoa(c.pid) == args[1] && !c.terminated {
			found, c.terminated = true, true
			c.say("terminated")
		}
	}
	if !found {
		fmt.Fprintf(out, "Client not found: %s\n", strings.Join(args[1:], " "))
		return
	}
	d.publish()
}

// shutdownServer ends a server when its clients have gone; with -f, now.
func (d *daemon) shutdownServer(out io.Writer, args []string) {
	force := len(args) == 2 && args[1] == "-f"
	if force {
		args = args[:1]
	}
	s := d.find(out, args)
	if s == nil {
		return
	}
	s.closing = true
	if force || len(s.clients) == 0 {
		d.end(s)
	}
}

// quitStep is how often quit looks whether the clients have gone.
const quitStep = 5 * time.Millisecond

// quit ends the daemon and its servers, when all clients have gone or after the seconds of -t. The answer comes then,
// unless the state file wants the daemon to linger. Terminated clients have gone.
func (d *daemon) quit(out io.Writer, args []string) {
	var limit <-chan time.Time
	if len(args) == 2 && args[0] == "-t" {
		seconds, err := strconv.Atoi(args[1])
		if err != nil || seconds < 0 {
			fmt.Fprintf(out, "Invalid timeout: %s\n", args[1])
			return
		}
		limit = time.After(time.Duration(seconds) * time.Second)
	}
	d.quitting = true
	d.log.print("Quit")
	for expired := false; !expired && d.busy(); {
		d.mu.Unlock()
		select {
		case <-time.After(quitStep):
		case <-limit:
			expired = true
		}
		d.mu.Lock()
	}
	for _, s := range d.servers {
		d.end(s)
	}
	d.unpublish()
	if linger := time.Duration(d.orders.LingerMillis) * time.Millisecond; linger > 0 {
		time.AfterFunc(linger, func() { _ = d.listener.Close() })
		return
	}
	// Closing also removes the socket.
	_ = d.listener.Close()
}

func (d *daemon) busy() bool {
	for _, s := range d.servers {
		if slices.ContainsFunc(s.clients, func(c *client) bool { return !c.terminated }) {
			return true
		}
	}
	return false
}
