package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakegpu"
)

const (
	// systemNamespace holds Tandem's accounts.
	systemNamespace = "tandem-system"
	// gpus is the number of A100s of the node; each has slotsPerGPU.
	gpus        = 2
	slotsPerGPU = v1alpha1.DefaultSlots
	// agentAddress serves the agent's metrics.
	agentAddress = "127.0.0.1:9410"
	// mpsHostSocket and mpsDir are where deploy/ has them; the run has a /run of its own.
	mpsHostSocket = "/run/tandem/mps/host.sock"
	mpsDir        = "/run/tandem/mps"
	// sharedMemoryDir is where deploy/ has it too. Its size is none that a container has otherwise.
	sharedMemoryDir  = "/dev/shm/tandem"
	sharedMemorySize = 96 << 20
)

// startTandem starts the production binaries and waits until the node advertises all slots.
func (c *Cluster) startTandem(ctx context.Context) error {
	if err := c.prepareGPUs(); err != nil {
		return err
	}
	if err := c.prepareScheduler(ctx); err != nil {
		return err
	}
	if err := c.prepareAgent(ctx); err != nil {
		return err
	}
	if err := c.startMPSHost(ctx); err != nil {
		return err
	}
	if err := c.startAgent(); err != nil {
		return err
	}
	if err := c.startScheduler(); err != nil {
		return err
	}
	if err := c.startController(ctx); err != nil {
		return err
	}
	if err := c.awaitSlots(ctx); err != nil {
		return err
	}
	return poll(ctx, "the source of pods", c.podsFromWhere)
}

// podsFromWhere returns nil when the agent reads the pods of its node from where this kubelet lets it, and knows them.
func (c *Cluster) podsFromWhere(ctx context.Context) error {
	want := v1alpha1.PodsFromKubelet
	if podsFromServer() {
		want = v1alpha1.PodsFromServer
	}
	node, err := c.gpuNode(ctx)
	if err != nil {
		return err
	}
	if known := meta.FindStatusCondition(node.Status.Conditions, v1alpha1.ConditionPodsKnown); known == nil || known.Reason != want {
		return fmt.Errorf("the GPUNode's condition %s is %+v, want %s", v1alpha1.ConditionPodsKnown, known, want)
	}
	return c.gpuNodeReady(ctx, true)
}

// uuid of the node's device with the index.
func uuid(index int) string { return fakegpu.UUID(nodeName, index) }

// prepareGPUs writes the state that the fake driver shows, and its device files.
func (c *Cluster) prepareGPUs() error {
	state, err := fakegpu.Node(nodeName, "A100", gpus)
	if err != nil {
		return err
	}
	if err := state.Write(c.layout.state()); err != nil {
		return err
	}
	return makeDeviceFiles(c.layout.devRoot())
}

func (c *Cluster) prepareScheduler(ctx context.Context) error {
	kubeconfig, err := c.plane.ServiceAccount(ctx, systemNamespace, "tandem-scheduler")
	if err != nil {
		return err
	}
	raw, err := c.configOf("tandem-scheduler")
	if err != nil {
		return err
	}
	// In a pod the account's token is found by itself.
	config, err := sandbox.SchedulerConfig([]byte(raw), kubeconfig)
	if err != nil {
		return err
	}
	out, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("write scheduler configuration: %w", err)
	}
	path := c.layout.path("scheduler.yaml")
	c.schedulerArgs = []string{
		"--config=" + path, "--bind-address=127.0.0.1", "--v=2",
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
	}
	return os.WriteFile(path, out, 0o600)
}

func (c *Cluster) prepareAgent(ctx context.Context) error {
	kubeconfig, err := c.agentKubeconfig(ctx)
	if err != nil {
		return err
	}
	config, err := c.agentConfig()
	if err != nil {
		return err
	}
	path := c.layout.path("agent.yaml")
	// Other folders have their defaults, which lie inside of the run's namespaces.
	c.agentArgs = []string{
		"--config=" + path, "--kubeconfig=" + kubeconfig, "--node-name=" + nodeName,
		"--dev-root=" + c.layout.devRoot(), "--state-dir=" + c.layout.path("agent"), "--http-address=" + agentAddress,
		"--mps-shm-dir=" + sharedMemoryDir, "--shm-sweep-dir=" + sharedMemoryDir,
	}
	return os.WriteFile(path, config, 0o600)
}

// agentConfig is the configuration of deploy/, with shorter times: minutes there are seconds here.
func (c *Cluster) agentConfig() ([]byte, error) {
	raw, err := c.configOf("tandem-agent")
	if err != nil {
		return nil, err
	}
	config := map[string]any{}
	if err := yaml.Unmarshal([]byte(raw), &config); err != nil {
		return nil, fmt.Errorf("read configuration of the agent: %w", err)
	}
	config["health"] = map[string]any{
		"interval": "1s", "canaryInterval": "5s", "canaryTimeout": "3s", "hold": "2s", "drainAfter": "2s",
	}
	config["mps"] = map[string]any{"launcher": mpsHostSocket}
	config["telemetry"] = map[string]any{"interval": "1s", "publishInterval": "10s"}
	return yaml.Marshal(config)
}

// startMPSHost starts what the pod tandem-mps of a node runs: it begins the MPS daemons and outlives the agent.
func (c *Cluster) startMPSHost(ctx context.Context) error {
	if err := os.MkdirAll(mpsDir, 0o755); err != nil { // the kubelet makes a pod's host folders
		return fmt.Errorf("start MPS host: %w", err)
	}
	// As the init container of that pod does.
	mount := exec.CommandContext(ctx, c.layout.bin("tandem-device-plugin"), "mount-shm", "--dir="+sharedMemoryDir, fmt.Sprintf("--size=%d", sharedMemorySize))
	if out, err := mount.CombinedOutput(); err != nil {
		return fmt.Errorf("mount shared memory: %w: %s", err, out)
	}
	cmd := exec.Command(c.layout.bin("tandem-device-plugin"), "mps-host", "--socket="+mpsHostSocket, "--shm-dir="+sharedMemoryDir)
	cmd.Env = c.withFakes()
	var err error
	if c.mpsHost, err = c.plane.Processes().Start("tandem-mps-host", cmd); err != nil {
		return err
	}
	return awaitSocket(ctx, mpsHostSocket, c.mpsHost)
}

// withFakes is an environment in which the fake driver stands before everything else.
func (c *Cluster) withFakes() []string {
	return append(os.Environ(), fakegpu.Env(c.layout.fakes(), c.layout.state())...)
}

// agentKubeconfig holds a token of the agent's account for the node, as the kubelet projects it.
func (c *Cluster) agentKubeconfig(ctx context.Context) (string, error) {
	node, err := c.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
		},
	}}
	token, err := c.client.CoreV1().ServiceAccounts(systemNamespace).
		CreateToken(ctx, "tandem-agent", request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request token of the agent: %w", err)
	}
	admin := c.plane.Admin()
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"e2e": {Server: admin.Host, CertificateAuthorityData: admin.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"e2e": {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"e2e": {Cluster: "e2e", AuthInfo: "e2e"}},
		CurrentContext: "e2e",
	}
	path := c.layout.path("agent.kubeconfig")
	return path, clientcmd.WriteToFile(config, path)
}

func (c *Cluster) startScheduler() error {
	var err error
	c.scheduler, err = c.plane.Processes().Start("tandem-scheduler",
		exec.Command(c.layout.bin("tandem-scheduler"), c.schedulerArgs...))
	return err
}

func (c *Cluster) startAgent() error { return c.startAgentFrom("tandem-device-plugin") }

// startAgentFrom starts the agent from one of the run's programs.
func (c *Cluster) startAgentFrom(program string) error {
	cmd := exec.Command(c.layout.bin(program), c.agentArgs...)
	cmd.Env = c.withFakes()
	var err error
	c.agent, err = c.plane.Processes().Start("tandem-device-plugin", cmd)
	return err
}

// awaitSlots waits until the node's object offers all slots.
func (c *Cluster) awaitSlots(ctx context.Context) error {
	return poll(ctx, "all slots", func(ctx context.Context) error { return c.offers(ctx, gpus*slotsPerGPU) })
}

// offers returns nil when the node's object offers so many slots.
func (c *Cluster) offers(ctx context.Context, want int64) error {
	node, err := c.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	slots := node.Status.Allocatable[v1.ResourceName(v1alpha1.ResourceVGPU)]
	if slots.Value() != want {
		return fmt.Errorf("the node offers %s slots, want %d", slots.String(), want)
	}
	return nil
}

// drift reads the agent's number of containers that do not run as assigned.
func (c *Cluster) drift(ctx context.Context) (float64, error) {
	return c.agentMetric(ctx, "tandem_agent_assignment_drift")
}

// agentMetric adds up the series of a metric whose labels hold all of the texts.
func (c *Cluster) agentMetric(ctx context.Context, name string, labels ...string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+agentAddress+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("read metrics of the agent: %w", err)
	}
	defer response.Body.Close()
	total, found := 0.0, false
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		series, number, _ := strings.Cut(lines.Text(), " ")
		if series != name && !strings.HasPrefix(series, name+"{") || !containsAll(series, labels) {
			continue
		}
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return 0, fmt.Errorf("read metrics of the agent: %w", err)
		}
		total, found = total+value, true
	}
	if !found && len(labels) == 0 {
		return 0, errors.Join(fmt.Errorf("read metrics of the agent: no %s", name), lines.Err())
	}
	return total, lines.Err()
}

// registered returns nil when the kubelet watches the slots of the agent that runs now.
func (c *Cluster) registered(ctx context.Context) error {
	value, err := c.agentMetric(ctx, "tandem_agent_registered")
	if err == nil && value != 1 {
		err = errors.New("the agent is not registered")
	}
	return err
}

// gpuNode reads what the agent published last.
func (c *Cluster) gpuNode(ctx context.Context) (*v1alpha1.GPUNode, error) {
	object, err := c.dynamic.Resource(v1alpha1.GPUNodes).Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	node := &v1alpha1.GPUNode{}
	return node, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, node)
}

// gpuNodeReady returns nil when the GPUNode says that the agent serves its devices, or that it does not, as wanted.
func (c *Cluster) gpuNodeReady(ctx context.Context, want bool) error {
	node, err := c.gpuNode(ctx)
	if err != nil {
		return err
	}
	condition := meta.FindStatusCondition(node.Status.Conditions, v1alpha1.ConditionReady)
	if condition == nil || (condition.Status == metav1.ConditionTrue) != want {
		return fmt.Errorf("the GPUNode's condition Ready is %+v, want it %t", condition, want)
	}
	return nil
}

// broken reports whether a program that must run has ended.
func (c *Cluster) broken() bool {
	for _, p := range []*sandbox.Process{c.containerd, c.kubelet, c.scheduler, c.mpsHost, c.agent, c.controller} {
		select {
		case <-p.Done():
			return true
		default:
		}
	}
	return false
}
