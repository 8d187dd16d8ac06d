package fakekubelet

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-gpu/tandem/test/must"
)

// connection is a plugin as the registration server hands it over.
type connection struct {
	pluginapi.DevicePluginClient
	socket string
}

func (c *connection) API() pluginapi.DevicePluginClient { return c }
func (c *connection) Resource() string                  { return "example.com/slot" }
func (c *connection) SocketPath() string                { return c.socket }

func (c *connection) GetDevicePluginOptions(context.Context, *pluginapi.Empty, ...grpc.CallOption) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// A plugin that restarts registers under a new socket before the kubelet notices the end of the old one. Only the end
// of the last connection makes the devices sick.
func TestOldConnectionEndsAfterANewOne(t *testing.T) {
	d, err := loadDevices(t.TempDir(), func() (sets.Set[string], bool) { return nil, false }, func() {})
	must.OK(t, err)
	before, after := &connection{socket: "plugin-1.sock"}, &connection{socket: "plugin-2.sock"}
	name := before.Resource()
	for _, c := range []*connection{before, after} {
		must.OK(t, d.PluginConnected(t.Context(), name, c))
		d.PluginListAndWatchReceiver(klog.Background(), name, &pluginapi.ListAndWatchResponse{
			Devices: []*pluginapi.Device{{ID: "s0", Health: pluginapi.Healthy}, {ID: "s1", Health: pluginapi.Healthy}},
		})
	}
	if err := d.PluginConnected(t.Context(), name, after); err == nil {
		t.Error("a second registration under a connected socket succeeds, the kubelet refuses it")
	}
	for _, step := range []struct {
		gone    string
		healthy []string
		asked   *connection
	}{
		{"never.sock", []string{"s0", "s1"}, after},
		{"plugin-1.sock", []string{"s0", "s1"}, after},
		{"plugin-1.sock", []string{"s0", "s1"}, after},
		{"plugin-2.sock", nil, nil},
	} {
		d.PluginDisconnected(klog.Background(), name, step.gone)
		r := d.resources[name]
		if got := sets.List(r.healthy); !slices.Equal(got, step.healthy) {
			t.Errorf("%s ends: healthy are %v, want %v", step.gone, got, step.healthy)
		}
		if step.asked != nil && r.endpoint.client != step.asked.API() {
			t.Errorf("%s ends: the kubelet asks %v, want %s", step.gone, r.endpoint.client, step.asked.socket)
		}
	}
}
