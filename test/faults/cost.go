package faults

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"sigs.k8s.io/yaml"
)

// Range is what a measurement may give.
type Range struct {
	Name string `json:"name"`
	// Unit is the benchmark's, Max the upper bound.
	Unit string  `json:"unit"`
	Max  float64 `json:"max"`
	// Measured is what a quiet machine gave, for the reader; 0 before one did.
	Measured float64 `json:"measured,omitempty"`
}

// LoadRanges reads a file of ranges. Unknown fields are errors.
func LoadRanges(path string) (map[string]Range, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load ranges: %w", err)
	}
	var list []Range
	if err := yaml.UnmarshalStrict(raw, &list); err != nil {
		return nil, fmt.Errorf("load ranges: %s: %w", path, err)
	}
	ranges := map[string]Range{}
	for _, r := range list {
		ranges[r.Unit] = r
	}
	return ranges, nil
}

// ticksPerSecond is the unit of processor times in /proc (USER_HZ), which is 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// cpu returns the processor time of a process and of its children that have ended.
func cpu(pid int) (own, children time.Duration, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// Fields 14 to 17 of proc_pid_stat(5); the name, in parentheses, may hold blanks.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	var ticks [4]time.Duration
	for i := range ticks {
		n, err := strconv.ParseInt(string(fields[11+i]), 10, 64)
		if err != nil {
			return 0, 0, err
		}
		ticks[i] = time.Duration(n) * time.Second / ticksPerSecond
	}
	return ticks[0] + ticks[1], ticks[2] + ticks[3], nil
}

// resident returns the memory of a process in bytes, as a container's limit counts it: without what it maps of files.
func resident(pid int) (anonymous, all int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	read := func(field string) int64 {
		_, rest, _ := strings.Cut(string(status), field+":")
		kib, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		n, e := strconv.ParseInt(kib, 10, 64)
		if e != nil {
			err = fmt.Errorf("read %s of process %d: %w", field, pid, e)
		}
		return n << 10
	}
	return read("RssAnon"), read("VmRSS"), err
}

// registrar is as much of a kubelet as a registration needs.
type registrar struct {
	pluginapi.UnimplementedRegistrationServer
	dir    string
	listed chan int // slots in the first list of each registration
	err    chan error

	mu          sync.Mutex
	connections []*grpc.ClientConn
}

// Register follows the list of the plugin's slots, as the kubelet does.
func (r *registrar) Register(_ context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	connection, err := grpc.NewClient("unix://"+filepath.Join(r.dir, request.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.connections = append(r.connections, connection)
	r.mu.Unlock()
	go func() {
		client := pluginapi.NewDevicePluginClient(connection)
		if _, err := client.GetDevicePluginOptions(context.Background(), &pluginapi.Empty{}); err != nil {
			r.err <- err
			return
		}
		stream, err := client.ListAndWatch(context.Background(), &pluginapi.Empty{})
		if err != nil {
			r.err <- err
			return
		}
		list, err := stream.Recv()
		if err != nil {
			r.err <- err
			return
		}
		r.listed <- len(list.Devices)
	}()
	return &pluginapi.Empty{}, nil
}

// register opens the kubelet's socket and returns how long it took until the agent had registered and listed its slots.
func (n *Node) register(want int) (time.Duration, error) {
	path := filepath.Join(n.paths.DevicePlugins, "kubelet.sock")
	_ = os.Remove(path) // of the one before
	r := &registrar{dir: n.paths.DevicePlugins, listed: make(chan int, 8), err: make(chan error, 8)}
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, r)
	begin := time.Now()
	listener, err := net.Listen("unix", path)
	if err != nil {
		return 0, err
	}
	go func() { _ = server.Serve(listener) }() // ends with Stop
	defer func() {
		server.Stop()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, c := range r.connections {
			_ = c.Close() // as a kubelet that ends
		}
	}()
	select {
	case slots := <-r.listed:
		if slots != want {
			return 0, fmt.Errorf("the agent lists %d slots, want %d", slots, want)
		}
		return time.Since(begin), nil
	case err := <-r.err:
		return 0, err
	case <-time.After(time.Minute):
		return 0, fmt.Errorf("the agent has not registered within a minute\n%s", n.Log())
	}
}
