package fakekubelet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-gpu/tandem/test/must"
)

// resource is what the scripted plugin serves.
const resource = "example.com/slot"

// scripted is a device plugin that writes down what it is asked and answers by its fields.
type scripted struct {
	pluginapi.UnimplementedDevicePluginServer
	paths  string // directory of kubelet.sock
	cdi    string // directory of CDI specs
	socket string
	server *grpc.Server

	mu     sync.Mutex
	calls  []string
	names  int
	prefer []string // answered to GetPreferredAllocation, where available
	refuse string   // answered by PreStartContainer, when not empty
	lists  chan []*pluginapi.Device
}

func healthy(ids ...string) []*pluginapi.Device {
	var devices []*pluginapi.Device
	for _, id := range ids {
		devices = append(devices, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	return devices
}

func (p *scripted) note(format string, args ...any) {
	p.calls = append(p.calls, fmt.Sprintf(format, args...))
}

// take returns the calls since the last take.
func (p *scripted) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = nil
	return calls
}

func (p *scripted) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *scripted) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("options")
	return &pluginapi.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}, nil
}

func (p *scripted) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case devices := <-p.lists:
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
		}
	}
}

func (p *scripted) GetPreferredAllocation(_ context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.ContainerRequests[0]
	p.note("prefer %d of %s with %s", q.AllocationSize, join(q.AvailableDeviceIDs), join(q.MustIncludeDeviceIDs))
	return &pluginapi.PreferredAllocationResponse{
		ContainerResponses: []*pluginapi.ContainerPreferredAllocationResponse{{DeviceIDs: p.prefer}},
	}, nil
}

func (p *scripted) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names++
	p.note("allocate %s", join(r.ContainerRequests[0].DevicesIds))
	name := fmt.Sprintf("example.com/slot=c%d", p.names)
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{{
		CdiDevices: []*pluginapi.CDIDevice{{Name: name}}, Envs: map[string]string{"FROM_ALLOCATE": "yes"},
	}}}, nil
}

// PreStartContainer writes a CDI spec for every name that was ever answered: the latest possible moment.
func (p *scripted) PreStartContainer(_ context.Context, r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("prestart %s", join(r.DevicesIds))
	if p.refuse != "" {
		return nil, errors.New(p.refuse)
	}
	var devices []any
	for i := 1; i <= p.names; i++ {
		devices = append(devices, map[string]any{"name": fmt.Sprintf("c%d", i), "containerEdits": map[string]any{
			"env":         []string{fmt.Sprintf("NAME=c%d", i)},
			"deviceNodes": []any{map[string]any{"path": fmt.Sprintf("/dev/slot%d", i), "type": "c", "major": 195, "minor": i}},
		}})
	}
	spec, err := json.Marshal(map[string]any{"cdiVersion": "0.6.0", "kind": "example.com/slot", "devices": devices})
	if err != nil {
		return nil, err
	}
	return &pluginapi.PreStartContainerResponse{}, os.WriteFile(filepath.Join(p.cdi, "example.json"), spec, 0o600)
}

func join(ids []string) string {
	return "{" + strings.Join(slices.Sorted(slices.Values(ids)), " ") + "}"
}

// startPlugin serves a scripted plugin; it does not register.
func startPlugin(t *testing.T, devicePlugins, cdi string) *scripted {
	t.Helper()
	p := &scripted{paths: devicePlugins, cdi: cdi, lists: make(chan []*pluginapi.Device)}
	p.serve(t)
	t.Cleanup(func() { p.server.Stop() })
	return p
}

// serve opens the plugin's socket, which a starting kubelet removes.
func (p *scripted) serve(t *testing.T) {
	t.Helper()
	if p.server != nil {
		p.server.Stop()
	}
	p.socket = filepath.Join(p.paths, "scripted.sock")
	listener, err := net.Listen("unix", p.socket)
	must.OK(t, err)
	p.server = grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(p.server, p)
	server := p.server
	go func() { _ = server.Serve(listener) }() // ends with Stop
}

// register registers with the kubelet, which may not be up yet, and sends the first list.
func (p *scripted) register(t *testing.T, devices []*pluginapi.Device) {
	t.Helper()
	connection, err := grpc.NewClient("unix://"+filepath.Join(p.paths, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.OK(t, err)
	defer connection.Close()
	_, err = pluginapi.NewRegistrationClient(connection).Register(t.Context(), &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(p.socket), ResourceName: resource,
	}, grpc.WaitForReady(true))
	must.OK(t, err)
	p.lists <- devices
}
