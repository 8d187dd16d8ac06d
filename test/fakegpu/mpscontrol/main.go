// Command mpscontrol is an nvidia-cuda-mps-control for machines without a GPU. Build it under that name.
//
// It keeps the outside of NVIDIA's program: -d starts a daemon in the background, with a socket "control" and a file
// nvidia-cuda-mps-control.pid in CUDA_MPS_PIPE_DIRECTORY and a control.log in CUDA_MPS_LOG_DIRECTORY; a second daemon
// in the same directory is refused; without options it reads commands from the standard input and prints what the
// daemon answers. Clients come over the same socket (package fakegpu, Dial), and their context is the connection. The
// state file of package fakegpu can order it to hang, to break its servers and to forget limits; without that file it
// behaves. It writes what its clients use beside that file, for the fake NVML.
//
// Read in NVIDIA's MPS documentation and in the manual page: the commands and what they mean, also that quit waits for
// the clients without -t; one server per user, and that a client of another user waits for the server to be empty; that
// FAULT breaks every client of the server and lasts until the last of them has gone; that limits hold for servers and
// clients to come, and that a client's environment only lowers them; the number of contexts. Read in reports of users, and
// not seen: the wedge after a client was killed with work in flight, and that commands show nothing of it. The state file
// orders it; no client causes it here.
//
// Seen on an H100 with driver 580.159 (docs/experiments/gpu.md): a client that is killed with a queue of work on the GPU
// is a fatal fault of its server, which says FAULT, breaks the neighbours, refuses newcomers until the last of them has
// gone and then serves again by itself; a client whose work terminate_client ended before harms nobody, nor does one
// that is idle. There the killed client always had a neighbour: that a server without one serves on is assumed.
//
// Assumed: texts that are not documented (error messages, how a limit is shown), on which callers must not depend; that
// a terminated client is off the client list at once; that clients which a wedge blocks get an error when the server
// ends; that a server whose device is lost is in FAULT until the device is back. What goes over the socket is this
// program's own, and so is that the daemon ends within a second when its pipe directory is removed.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// serverName is the name under which the daemon starts its server processes.
	serverName = "nvidia-cuda-mps-server"
	// childVariable tells a started process that it is the daemon.
	childVariable = "TANDEM_FAKEMPS_CHILD"
)

func main() {
	if filepath.Base(os.Args[0]) == serverName {
		// A server lives as long as its daemon holds the other end of the standard input.
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(args []string) error {
	dirs := directories{pipe: os.Getenv("CUDA_MPS_PIPE_DIRECTORY"), log: os.Getenv("CUDA_MPS_LOG_DIRECTORY")}
	if dirs.pipe == "" {
		dirs.pipe = "/tmp/nvidia-mps"
	}
	if dirs.log == "" {
		dirs.log = "/var/log/nvidia-mps"
	}
	known := []string{"-d", "-f", "-multiuser-server"}
	for _, a := range args {
		if !slices.Contains(known, a) {
			return fmt.Errorf("usage: nvidia-cuda-mps-control [-d | -f] [-multiuser-server]")
		}
	}
	multiUser := slices.Contains(args, "-multiuser-server")
	switch {
	case os.Getenv(childVariable) != "":
		return background(dirs, multiUser)
	case slices.Contains(args, "-d"):
		return detach(args)
	case slices.Contains(args, "-f"):
		return serve(dirs, multiUser, func() {})
	}
	return ask(dirs, os.Stdin, os.Stdout)
}

type directories struct{ pipe, log string }

func (d directories) socket() string { return filepath.Join(d.pipe, "control") }
func (d directories) pid() string    { return filepath.Join(d.pipe, "nvidia-cuda-mps-control.pid") }
func (d directories) lock() string   { return filepath.Join(d.pipe, "control_lock") }

// message is an error in the words of the real program, which begin with a capital.
type message string

func (m message) Error() string { return string(m) }

const errNoDaemon = message("Cannot find MPS control daemon process")

// ask hands the commands to the daemon, one connection each, and prints the answers.
func ask(dirs directories, in io.Reader, out io.Writer) error {
	raw, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	for command := range strings.Lines(string(raw)) {
		command = strings.TrimSpace(command)
		if command == "" {
			continue
		}
		conn, err := net.Dial("unix", dirs.socket())
		if err != nil {
			return errNoDaemon
		}
		_, err = fmt.Fprintln(conn, command)
		if err == nil {
			_, err = io.Copy(out, conn)
		}
		_ = conn.Close()
		if err != nil {
			return fmt.Errorf("connection to the MPS control daemon broke: %w", err)
		}
	}
	return nil
}
