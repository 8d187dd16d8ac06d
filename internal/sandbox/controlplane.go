package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Options of a control plane. The zero value serves.
type Options struct {
	// Dir holds data, certificates and logs. Empty: a temporary directory that Stop removes.
	Dir string
	// Authorization is the API server's --authorization-mode; empty means "AlwaysAllow".
	Authorization string
	// FeatureGates of the API server and the controller manager, for example {"GenericWorkload": true}.
	FeatureGates map[string]bool
	// RuntimeConfig of the API server, for example {"scheduling.k8s.io/v1beta1": "true"}.
	RuntimeConfig map[string]string
	// EnableServiceAccountAdmission turns the ServiceAccount admission plugin on, which ControllerManager implies.
	// Off by default: without a controller manager no namespace has a default service account, and the plugin would
	// refuse every pod.
	EnableServiceAccountAdmission bool
	// ControllerManager starts kube-controller-manager too.
	ControllerManager bool
	// Aggregation has the API server send the requests of APIServices to the endpoints of their Services, as the user that it found. A server
	// there trusts ca.crt of Dir's pki for clients and for the user front-proxy, who says who asks.
	Aggregation bool
	// Kubernetes is the version of the API server and the controller manager, for example "1.35.4". Empty means the
	// environment variable TANDEM_KUBERNETES, and without it the version of tools/controlplane. See At.
	Kubernetes string
	// APIServerArgs come at the end of the API server's command line.
	APIServerArgs []string
}

// ControlPlane is a running etcd and kube-apiserver on loopback.
type ControlPlane struct {
	options   Options
	dir       string
	temporary bool
	url       string
	ca        *authority
	admin     *rest.Config
	processes *Processes
	slot      *slot
	// giveUpPorts ends the reservation of the ports; nil before there is one.
	giveUpPorts func()

	mu          sync.Mutex
	kubeconfigs int // written so far; numbers their files
	applier     *applier
}

// startTimeout is how long etcd and the API server may take to get ready. Only a hang takes so long: a busy machine takes tens of
// seconds, and a process that ends is noticed at once.
const startTimeout = 5 * time.Minute

// Start finds its programs (see Tools), waits while as many control planes run on this machine as may at once (see slots),
// starts the control plane and returns when it is ready. Cancelling ctx ends only Start; Stop ends the control plane, and so does
// the end of this process.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	return start(ctx, "", options)
}

// start starts a control plane for an owner of slots.
func start(ctx context.Context, owner string, options Options) (*ControlPlane, error) {
	options.Kubernetes = cmp.Or(options.Kubernetes, os.Getenv("TANDEM_KUBERNETES"))
	names := []string{"etcd", At("kube-apiserver", options.Kubernetes)}
	if options.ControllerManager {
		names = append(names, At("kube-controller-manager", options.Kubernetes))
	}
	tools, err := Tools(ctx, names...)
	if err != nil {
		return nil, err
	}
	all, err := machineSlots()
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{options: options, dir: options.Dir}
	if c.slot, err = all.take(ctx, owner); err == nil {
		err = c.run(ctx, tools)
	}
	if err != nil {
		c.Stop()
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	return c, nil
}

func (c *ControlPlane) run(ctx context.Context, tools map[string]string) error {
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "tandem-sandbox-*")
		if err != nil {
			return err
		}
		c.dir, c.temporary = dir, true
	}
	for _, dir := range []string{"pki", "logs", "kubeconfigs"} {
		if err := os.MkdirAll(filepath.Join(c.dir, dir), 0o700); err != nil {
			return err
		}
	}
	c.processes = NewProcesses(filepath.Join(c.dir, "logs"))
	if err := c.makeCertificates(); err != nil {
		return err
	}
	ports, giveUp, err := reservePorts(4)
	if err != nil {
		return err
	}
	c.giveUpPorts = giveUp
	c.url = fmt.Sprintf("https://127.0.0.1:%d", ports[0])
	if c.admin, err = c.Config("tandem-sandbox-admin", []string{"system:masters"}); err != nil {
		return err
	}
	etcdURL := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	etcd, err := c.processes.Start("etcd", c.etcd(tools["etcd"], etcdURL, fmt.Sprintf("http://127.0.0.1:%d", ports[2])))
	if err != nil {
		return err
	}
	apiserver, err := c.processes.Start("kube-apiserver", c.apiserver(tools[At("kube-apiserver", c.options.Kubernetes)], ports[0], etcdURL))
	if err != nil {
		return err
	}
	if err := c.awaitReady(ctx, etcd, apiserver); err != nil {
		return err
	}
	if !c.options.ControllerManager {
		return nil
	}
	return c.startControllerManager(tools[At("kube-controller-manager", c.options.Kubernetes)], ports[3])
}

// Stop ends the processes, removes the temporary directory and lets another control plane run. A second call does nothing.
func (c *ControlPlane) Stop() {
	if c.processes != nil {
		c.processes.Stop(0) // the data is thrown away: nothing needs a clean end
	}
	if c.temporary {
		os.RemoveAll(c.dir)
	}
	if c.giveUpPorts != nil {
		c.giveUpPorts()
	}
	c.slot.giveBack()
}

// Dir returns the directory that holds data, certificates and logs.
func (c *ControlPlane) Dir() string { return c.dir }

// URL returns the API server's address.
func (c *ControlPlane) URL() string { return c.url }

// Processes returns the set that runs the control plane; programs that the caller adds end before the control plane
// does.
func (c *ControlPlane) Processes() *Processes { return c.processes }

// Logs returns the ends of the logs, for a failed test.
func (c *ControlPlane) Logs(lines int) string {
	var b strings.Builder
	c.processes.mu.Lock()
	defer c.processes.mu.Unlock()
	for _, p := range c.processes.running {
		fmt.Fprintf(&b, "--- the end of %s\n%s\n", p.Log(), p.Tail(lines))
	}
	return b.String()
}

// awaitReady polls /readyz until the API server answers ok, or one of the processes ends.
func (c *ControlPlane) awaitReady(ctx context.Context, processes ...*Process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	// Polling is no use of the client's rate limits.
	config := rest.CopyConfig(c.admin)
	config.QPS, config.Timeout = -1, 10*time.Second
	config.GroupVersion, config.NegotiatedSerializer = nil, noSerializer()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		ready := client.Get().AbsPath("/readyz").Do(ctx).Error()
		if ready == nil {
			return nil
		}
		for _, p := range processes {
			if err := p.failed(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s/readyz: %w\n%s", c.url, errors.Join(ctx.Err(), ready), c.Logs(15))
		case <-ticker.C:
		}
	}
}

func (c *ControlPlane) etcd(path, clientURL, peerURL string) *exec.Cmd {
	return exec.Command(path,
		"--name=sandbox",
		"--data-dir="+filepath.Join(c.dir, "etcd"),
		"--listen-client-urls="+clientURL, "--advertise-client-urls="+clientURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=sandbox="+peerURL,
		"--unsafe-no-fsync", // nothing outlives the machine's memory anyway
		"--log-level=warn",
	)
}
