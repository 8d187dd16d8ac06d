// Command mpscontrol is an nvidia-cuda-mps-control for machines without a GPU. Build it under that name.
//
// The interface is that of NVIDIA's program. -d starts a daemon in the background, with a socket "control" and a file
// nvidia-cuda-mps-control.pid in CUDA_MPS_PIPE_DIRECTORY and a control.log in CUDA_MPS_LOG_DIRECTORY. A second daemon
// in the same directory fails. Without options the program reads commands from the standard input and prints the
// daemon's answers. Clients come over the same socket (package fakegpu, Dial), and their context is the connection. The
// state file of package fakegpu can order it to hang, to break its servers and to drop limits; without that file it
// behaves. The daemon writes the use of its clients beside that file, for the fake NVML.
//
// These facts are from NVIDIA's MPS documentation and the manual page. They are the commands and their meanings, also
// that quit waits for the clients without -t. There is one server per user, and a client of another user waits for the
// server to be empty. FAULT breaks every client of the server and lasts until the last of them has gone. Limits hold
// for later servers and clients, and a client's environment only lowers them. The number of contexts is from there too.
// Only users report these facts: the wedge after a SIGKILL to a client with work in flight, and that commands do not
// show it. The state file orders it; no client causes it here.
//
// These facts are from an H100 with driver 580.159 (docs/experiments/gpu.md). A SIGKILL to a client with a queue of
// work on the GPU is a fatal fault of its server. The server says FAULT, breaks the neighbours, refuses newcomers until
// the last of them has gone and then serves again by itself. A client whose work terminate_client ended before does no
// harm, nor does one that is idle. On that GPU the client always had a neighbour; the fake assumes that a server
// without one serves on.
//
// These are assumptions: undocumented texts (error messages, the display of a limit), on which callers must not depend;
// that a terminated client leaves the client list at once. A client behind a wedge gets an error when the server ends.
// A server of a lost device is in FAULT until the device is back. The protocol of the socket is this program's own, and
// so is the end of the daemon within a second after a removal of its pipe directory.
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
	// childVariable marks a started process as the daemon.
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

// ask passes the commands to the daemon, one connection each, and prints the answers.
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
