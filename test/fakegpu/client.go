package fakegpu

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// ClientLoad is the limits and the load of a client of MPS. The zero value is a client of root without limits and load.
type ClientLoad struct {
	// UID of the client; a daemon without -multiuser-server serves one user at a time.
	UID int `json:"uid"`
	// Percent is the client's CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, 0 for none. The value only lowers what the server
	// allows.
	Percent float64 `json:"percent,omitempty"`
	// Memory that the client has allocated, in bytes.
	Memory uint64 `json:"memory,omitempty"`
	// MemoryLimit is the client's CUDA_MPS_PINNED_DEVICE_MEM_LIMIT in bytes, 0 for none. The value only lowers the
	// server's.
	MemoryLimit uint64 `json:"memoryLimit,omitempty"`
	// SM and Bandwidth are what the client would use of the device, in percent. The percentage of the client bounds SM.
	SM        int `json:"sm,omitempty"`
	Bandwidth int `json:"bw,omitempty"`
	// Sensitivity and Pressure are what the client suffers from its neighbours and they from it: see Interference.
	Sensitivity float64 `json:"sensitivity,omitempty"`
	Pressure    float64 `json:"pressure,omitempty"`
	// InFlight clients have a queue of work on the GPU: if one of them ends without a message, that is a fatal fault of
	// its server. An H100 with driver 580.159 behaved so with 3 s of queued kernels, 6 times of 6. A SIGKILL to clients
	// that were idle, or ran short kernels one after the other, did no harm there.
	InFlight bool `json:"inFlight,omitempty"`
	// PID stands for the client's process ID, 0 for that of the process at the other end of the socket. So one process
	// of a test can be many clients.
	PID int `json:"pid,omitempty"`
}

// These errors tell clients what has happened to them.
var (
	// ErrTerminated: terminate_client ended the client's work. CUDA calls it CUDA_ERROR_MPS_CLIENT_TERMINATED.
	ErrTerminated = errors.New("MPS client was terminated")
	// ErrFault: the server is in FAULT. To a newcomer CUDA says CUDA_ERROR_MPS_SERVER_NOT_READY.
	ErrFault = errors.New("MPS server is in FAULT")
	// ErrGone: the server or its daemon has ended.
	ErrGone = errors.New("MPS server is gone")
	// ErrOutOfMemory: the allocation is above a limit or above what is free on the device.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrTooManyContexts: the device has as many clients as MPS allows. CUDA calls it CUDA_ERROR_MPS_MAX_CLIENTS_REACHED.
	ErrTooManyContexts = errors.New("too many contexts")
)

// refusals are the daemon's words for a no.
var refusals = map[string]error{
	"fault": ErrFault, "terminated": ErrTerminated, "out of memory": ErrOutOfMemory, "too many contexts": ErrTooManyContexts,
}

// Client is a context on a device through the fake MPS daemon.
type Client struct {
	server  int
	conn    net.Conn
	replies chan error
	speeds  chan float64
	done    chan struct{}

	mu  sync.Mutex
	err error
	// ended is true after the close of done, closed after this side closed the connection.
	ended, closed bool
}

// SocketPath returns the socket of the daemon in a pipe directory.
func SocketPath(pipeDir string) string { return filepath.Join(pipeDir, "control") }

// Dial connects to the daemon in pipeDir as a CUDA program does in cuInit. Dial blocks until the server takes the
// client: for ever if the server is wedged or the daemon hangs, so bound ctx. Errors are ErrFault, ErrOutOfMemory,
// ErrTooManyContexts or ErrGone; fs.ErrNotExist or ECONNREFUSED mean that there is no daemon.
func Dial(ctx context.Context, pipeDir string, load ClientLoad) (*Client, error) {
	raw, err := json.Marshal(load)
	if err != nil {
		return nil, fmt.Errorf("connect to MPS: %w", err)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", SocketPath(pipeDir))
	if err != nil {
		return nil, fmt.Errorf("connect to MPS: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	reader := bufio.NewReader(conn)
	server, err := greet(conn, reader, raw)
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("connect to MPS: %w", err)
	}
	c := &Client{server: server, conn: conn, replies: make(chan error, 1), speeds: make(chan float64, 1), done: make(chan struct{})}
	go c.listen(reader)
	return c, nil
}

// greet says who comes and returns the PID of the server that takes it.
func greet(conn net.Conn, reader *bufio.Reader, load []byte) (int, error) {
	if _, err := fmt.Fprintf(conn, "client %s\n", load); err != nil {
		return 0, ErrGone
	}
	line, err := reader.ReadString('\n')
	if err != nil {
		return 0, ErrGone
	}
	line = strings.TrimSpace(line)
	if refusal, ok := refusals[line]; ok {
		return 0, refusal
	}
	pid, ok := strings.CutPrefix(line, "ok ")
	if !ok {
		return 0, fmt.Errorf("the daemon says %q", line)
	}
	return strconv.Atoi(pid)
}

func (c *Client) listen(reader *bufio.Reader) {
	defer func() { _ = c.conn.Close() }()
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			c.end(ErrGone)
			return
		}
		switch line = strings.TrimSpace(line); line {
		case "loaded":
			c.replies <- nil
		case "out of memory":
			c.replies <- ErrOutOfMemory
		default:
			c.learn(line)
		}
	}
}

// learn takes in what else the daemon says.
func (c *Client) learn(line string) {
	if reason, ok := refusals[line]; ok {
		c.end(reason)
		return
	}
	if speed, ok := strings.CutPrefix(line, "progress "); ok {
		if v, err := strconv.ParseFloat(speed, 64); err == nil {
			c.speeds <- v
		}
	}
}

// end keeps the first reason.
func (c *Client) end(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	if !c.closed {
		c.err = reason
	}
	c.ended = true
	close(c.done)
}

// Server returns the PID of the server.
func (c *Client) Server() int { return c.server }

// Done is closed when the client can no longer use the device, by its own doing or not.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why Done is done: ErrTerminated, ErrFault or ErrGone; nil before, and after Close and Abandon.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the client in order.
func (c *Client) Close() { c.leave("bye\n") }

// Abandon closes the connection as the kernel does for a process after SIGKILL. With work in flight this is a fatal
// fault of the server, which breaks its other clients. The client is gone when the daemon has noticed, which Abandon
// does not wait for.
func (c *Client) Abandon() { c.leave("") }

func (c *Client) leave(last string) {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	if last != "" {
		_, _ = c.conn.Write([]byte(last))
	}
	_ = c.conn.Close()
	c.end(nil)
}

// Fault makes the client cause a fatal fault: it breaks every client of the server.
func (c *Client) Fault() error {
	if _, err := fmt.Fprintln(c.conn, "fault"); err != nil {
		return ErrGone
	}
	<-c.done
	return nil
}

// Progress returns the client's speed now: the work that it does ÷ what it does alone on the whole device in that time
// (see Interference). An honest tenant reports it, times its rate alone. Only one call may run at a time.
func (c *Client) Progress() (float64, error) {
	if err := c.Err(); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintln(c.conn, "progress"); err != nil {
		return 0, ErrGone
	}
	select {
	case speed := <-c.speeds:
		return speed, nil
	case <-c.done:
		return 0, cmp.Or(c.Err(), ErrGone)
	}
}

// Load changes the load of the client; its identity and its limits at the start stay. Load returns when the daemon has
// taken note. On ErrOutOfMemory the load stays as it was. Only one call may run at a time.
func (c *Client) Load(load ClientLoad) error {
	if err := c.Err(); err != nil {
		return err
	}
	raw, err := json.Marshal(load)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c.conn, "load %s\n", raw); err != nil {
		return ErrGone
	}
	select {
	case err := <-c.replies:
		return err
	case <-c.done:
		if err := c.Err(); err != nil {
			return err
		}
		return ErrGone
	}
}
