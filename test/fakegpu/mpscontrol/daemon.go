package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// detach starts this program again in a session of its own and waits until it listens.
func detach(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "nvidia-cuda-mps-control"
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.ExtraFiles = []*os.File{writer}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = writer.Close()
	said, err := io.ReadAll(reader)
	if err != nil {
		return err
	}
	if text := string(said); text != "ready" {
		return fmt.Errorf("%s", strings.TrimSpace(text))
	}
	return cmd.Process.Release()
}

// background is the daemon: it reports to its parent over descriptor 3 that it listens, or why it does not.
func background(dirs directories, multiUser bool) error {
	parent := os.NewFile(3, "parent")
	syscall.CloseOnExec(3)
	err := serve(dirs, multiUser, func() {
		_, _ = parent.WriteString("ready")
		_ = parent.Close()
	})
	if err != nil {
		_, _ = parent.WriteString(err.Error())
	}
	return err
}

// daemon is the state behind the control socket.
type daemon struct {
	dirs      directories
	device    string
	multiUser bool
	log       *log
	listener  net.Listener
	state     *fakegpu.Reader

	mu sync.Mutex
	// percent and limits are the defaults for future servers, limits by device as it was named.
	percent float64
	limits  map[string]uint64
	servers []*server
	// orders are what the state file said last; lost, faultNext and wedgeNext are what follows.
	orders               fakegpu.MPS
	lost                 bool
	faultNext, wedgeNext bool
	// quitting daemons take no new client.
	quitting bool
}

// serve answers commands and clients until quit, and calls ready once the socket listens.
func serve(dirs directories, multiUser bool, ready func()) error {
	d := &daemon{
		dirs: dirs, device: os.Getenv("CUDA_VISIBLE_DEVICES"), multiUser: multiUser,
		log: &log{path: filepath.Join(dirs.log, "control.log")}, percent: 100, limits: map[string]uint64{},
		state: &fakegpu.Reader{Path: os.Getenv(fakegpu.StateVariable)},
	}
	if s := d.state.State(); s != nil {
		d.orders, d.lost = s.Orders(d.device)
	}
	if d.orders.NoStart {
		return message("Failed to start the MPS control daemon")
	}
	listener, lock, err := listen(dirs)
	if err != nil {
		return err
	}
	defer lock.Close()
	d.listener = listener
	d.publish()
	d.log.print("Starting control daemon using socket %s", dirs.socket())
	ready()
	go d.watch()
	d.accept()
	_ = os.Remove(dirs.pid())
	return nil
}

const (
	// lookStep is how often the daemon looks at the state file. Larger finds orders later.
	lookStep = 20 * time.Millisecond
	// directorySteps is how many looks pass between two at the pipe directory.
	directorySteps = 50
)

// watch obeys the state file, and ends the daemon after a removal of its pipe directory. The real one would go on; this
// one would be left behind by every interrupted test.
func (d *daemon) watch() {
	step := 0
	for range time.Tick(lookStep) {
		d.mu.Lock()
		d.obey()
		d.mu.Unlock()
		if step++; step%directorySteps != 0 {
			continue
		}
		if _, err := os.Stat(d.dirs.pipe); errors.Is(err, os.ErrNotExist) {
			d.mu.Lock()
			d.unpublish()
			_ = d.listener.Close()
			d.mu.Unlock()
			return
		}
	}
}

// listen takes the directories for this process. The directories are its own for as long as the lock is open.
func listen(dirs directories) (net.Listener, io.Closer, error) {
	for _, d := range []string{dirs.pipe, dirs.log} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, nil, err
		}
	}
	lock, err := os.OpenFile(dirs.lock(), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, nil, message("An instance of this daemon is already running")
	}
	if err := os.Remove(dirs.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	listener, err := net.Listen("unix", dirs.socket())
	if err != nil {
		return nil, nil, fmt.Errorf("start the control daemon: %w", err)
	}
	// Clients of other users connect here too.
	if err := os.Chmod(dirs.socket(), 0o666); err != nil {
		return nil, nil, err
	}
	return listener, lock, os.WriteFile(dirs.pid(), fmt.Appendf(nil, "%d", os.Getpid()), 0o644)
}

func (d *daemon) accept() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			reader := bufio.NewReader(conn)
			line, err := reader.ReadString('\n')
			if err != nil {
				return
			}
			if load, ok := strings.CutPrefix(line, "client "); ok {
				d.serveClient(conn, reader, load)
				return
			}
			d.log.print("Cmd:%s", strings.TrimSpace(line))
			d.command(conn, strings.Fields(line))
		}()
	}
}

// log appends lines in the form of NVIDIA's control.log.
type log struct {
	mu   sync.Mutex
	path string
}

func (l *log) print(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = fmt.Fprintf(f, "[%s Control %5d] %s\n", time.Now().UTC().Format("2006-01-02 15:04:05.000"), os.Getpid(), fmt.Sprintf(format, args...))
}
