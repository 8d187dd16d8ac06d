package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-gpu/tandem/test/fakekubelet"
)

// kubelet is a kubelet that runs.
type kubelet struct {
	*fakekubelet.Kubelet
	stop  context.CancelFunc
	ended chan error
}

// StartKubelet starts the kubelet unless it runs.
func (n *Node) StartKubelet(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kubelet != nil {
		return nil
	}
	if err := n.putBack(); err != nil { // the played kubelet does not start from a broken one
		return err
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), klog.Background()))
	k := &kubelet{
		Kubelet: fakekubelet.New(fakekubelet.Config{Node: n.name, Dir: n.path("k"), Client: n.world.client, NoPodsAPI: n.spec.NoPodsAPI}),
		stop:    cancel, ended: make(chan error, 1),
	}
	go func() { k.ended <- k.Run(ctx) }()
	n.kubelet = k
	return nil
}

// StopKubelet ends the kubelet. Containers run on.
func (n *Node) StopKubelet() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kubelet == nil {
		return
	}
	n.kubelet.stop()
	if err := <-n.kubelet.ended; err != nil {
		fmt.Fprintln(os.Stderr, "the kubelet ended:", err)
	}
	n.kubelet = nil
}

// containers returns what runs on the node. Without the kubelet that is unknown.
func (n *Node) containers() (list []fakekubelet.Container, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kubelet == nil {
		return nil, false
	}
	select {
	case err := <-n.kubelet.ended:
		n.kubelet.ended <- err
		return nil, false
	default:
		return n.kubelet.Containers(), true
	}
}

// preStartTimeout is the kubelet's.
const preStartTimeout = pluginapi.KubeletPreStartContainerRPCTimeoutInSecs * time.Second

// preStart calls the agent's PreStartContainer, as the kubelet does each time.
func (n *Node) preStart(c fakekubelet.Container) error {
	sockets, err := filepath.Glob(filepath.Join(n.paths.DevicePlugins, "tandem-*.sock"))
	if err != nil || len(sockets) == 0 {
		return errors.Join(errors.New("no agent serves"), err)
	}
	for _, socket := range sockets {
		if err = preStartOver(socket, c.Slots); err == nil {
			return nil
		}
	}
	return err
}

func preStartOver(socket string, slots []string) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }() // nothing is under way
	ctx, cancel := context.WithTimeout(context.Background(), preStartTimeout)
	defer cancel()
	_, err = pluginapi.NewDevicePluginClient(connection).PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: slots})
	return err
}

func (n *Node) checkpoint() string {
	return filepath.Join(n.paths.DevicePlugins, "kubelet_internal_checkpoint")
}

// garbage is no checkpoint.
var garbage = []byte(`{"Data":{"PodDeviceEntries":[`)

// spoilCheckpoint overwrites the kubelet's checkpoint. The kubelet itself goes on from memory.
func (n *Node) spoilCheckpoint() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	content, err := os.ReadFile(n.checkpoint())
	if err != nil || bytes.Equal(content, garbage) {
		return err
	}
	n.sound = content
	return os.WriteFile(n.checkpoint(), garbage, 0o600)
}

// healCheckpoint puts back what spoilCheckpoint overwrote, unless the kubelet has written meanwhile.
func (n *Node) healCheckpoint() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.putBack()
}

func (n *Node) putBack() error {
	if n.sound == nil {
		return nil
	}
	content, err := os.ReadFile(n.checkpoint())
	if err != nil || !bytes.Equal(content, garbage) {
		return err
	}
	return os.WriteFile(n.checkpoint(), n.sound, 0o600)
}
