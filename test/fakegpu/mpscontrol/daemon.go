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

// background is the daemon: it tells its parent over descriptor 3 that it listens, or why it does not.
func background(dirs directories) error {
	parent := os.NewFile(3, "parent")
	syscall.CloseOnExec(3)
	err := serve(dirs, func() {
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
	dirs     directories
	device   string
	log      *log
	listener net.Listener

	mu sync.Mutex
	// percent and limits are the defaults for future servers, limits by device as it was named.
	percent float64
	limits  map[string]uint64
	servers []*server
	gone    map[int]bool
}

type server struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	uid     int
	percent float64
	limits  map[string]uint64
}

// serve answers commands until quit. ready is called once the socket listens.
func serve(dirs directories, ready func()) error {
	listener, lock, err := listen(dirs)
	if err != nil {
		return err
	}
	defer lock.Close()
	d := &daemon{
		dirs: dirs, device: os.Getenv("CUDA_VISIBLE_DEVICES"), log: &log{path: filepath.Join(dirs.log, "control.log")},
		listener: listener, percent: 100, limits: map[string]uint64{}, gone: map[int]bool{},
	}
	d.log.print("Starting control daemon using socket %s", dirs.socket())
	ready()
	go d.watchDirectory()
	d.accept()
	_ = os.Remove(dirs.pid())
	return nil
}

// watchDirectory ends the daemon when its pipe directory is removed. The real one would live on; this one would be
// left behind by every test that was killed.
func (d *daemon) watchDirectory() {
	for range time.Tick(time.Second) {
		if _, err := os.Stat(d.dirs.pipe); errors.Is(err, os.ErrNotExist) {
			_ = d.listener.Close()
			return
		}
	}
}

// listen takes the directories for this process. They are its own for as long as the lock is open.
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
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil {
				return
			}
			d.log.print("Cmd:%s", strings.TrimSpace(line))
			if d.orders().Hang {
				// Until the client gives up.
				_, _ = io.Copy(io.Discard, conn)
				return
			}
			d.answer(conn, strings.Fields(line))
		}()
	}
}

// orders reads what the state file wants of this daemon's device.
func (d *daemon) orders() fakegpu.MPS {
	s, err := fakegpu.Load(os.Getenv(fakegpu.StateVariable))
	if err != nil {
		return fakegpu.MPS{}
	}
	for _, g := range s.Devices {
		if g.UUID == d.device {
			return g.MPS
		}
	}
	return fakegpu.MPS{}
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
