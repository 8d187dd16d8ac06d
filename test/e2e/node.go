package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// containerdSocket is the usual path; the run has a /run of its own.
const containerdSocket = "/run/containerd/containerd.sock"

const containerdConfig = `version = 3
root = '${ROOT}/containerd'
state = '/run/containerd'

[grpc]
  address = '` + containerdSocket + `'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '` + pauseImage + `'

[plugins.'io.containerd.cri.v1.runtime']
  # Without CAP_SYS_RESOURCE runc cannot lower oom_score_adj, and dies.
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ['/var/run/cdi']

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = [${CNI}]
  conf_dir = '${ROOT}/cni'

[plugins.'io.containerd.nri.v1.nri']
  disable = true

[plugins.'io.containerd.internal.v1.opt']
  path = '${ROOT}/containerd/opt'
`

const cniConfig = `{"cniVersion": "1.0.0", "name": "e2e", "plugins": [{
  "type": "ptp", "ipam": {"type": "host-local", "subnet": "10.88.0.0/16", "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "${ROOT}/ipam"}}]}
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://` + containerdSocket + `
cgroupRoot: /` + cgroupRoot + `
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
evictionHard: {}
# No image is removed that no container uses for a while: nothing could pull it again.
imageGCHighThresholdPercent: 100
resolvConf: ""
clusterDNS: [` + nodeIP + `]
clusterDomain: ` + clusterDomain + `
# Changed slots reach the node object at the next status update; the default is 10 s.
nodeStatusUpdateFrequency: 2s
authentication:
  anonymous: {enabled: true}
  webhook: {enabled: false}
authorization:
  mode: AlwaysAllow
`

func (c *Cluster) startNode(ctx context.Context) error {
	quoted := "'" + strings.Join(cniDirs(), "', '") + "'"
	values := map[string]string{"ROOT": c.layout.root, "CNI": quoted}
	for name, content := range map[string]string{
		"containerd.toml": containerdConfig, "cni/10-e2e.conflist": cniConfig, "kubelet.yaml": kubeletConfig + noPodsAPI(),
	} {
		path := c.layout.path(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
		content = os.Expand(content, func(name string) string { return values[name] })
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
	}
	if err := c.startContainerd(ctx); err != nil {
		return err
	}
	var err error
	c.kubeletKubeconfig, err = c.plane.Kubeconfig("system:node:"+nodeName, []string{"system:nodes"})
	if err != nil {
		return err
	}
	if err := c.startKubelet(); err != nil {
		return err
	}
	return poll(ctx, "a ready node", c.nodeReady)
}

func (c *Cluster) startContainerd(ctx context.Context) error {
	cmd := exec.Command(c.tools["containerd"], "--config", c.layout.path("containerd.toml"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(c.tools["containerd-shim-runc-v2"])+":"+os.Getenv("PATH"))
	var err error
	if c.containerd, err = c.plane.Processes().Start("containerd", cmd); err != nil {
		return err
	}
	if err := awaitSocket(ctx, containerdSocket, c.containerd); err != nil {
		return fmt.Errorf("%w\n%s", err, c.containerd.Tail(20))
	}
	for _, image := range []string{"pause", "busybox", "host"} {
		cmd := exec.CommandContext(ctx, c.tools["ctr"], "--namespace=k8s.io", "images", "import", "--local", c.layout.image(image))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("import image %s: %w: %s", image, err, out)
		}
	}
	return nil
}

func (c *Cluster) startKubelet() error {
	var err error
	c.kubelet, err = c.plane.Processes().Start("kubelet", exec.Command(c.tools[kubelet()],
		"--config="+c.layout.path("kubelet.yaml"),
		"--kubeconfig="+c.kubeletKubeconfig,
		"--hostname-override="+nodeName,
		"--node-ip="+nodeIP,
		"--v=2",
	))
	return err
}

// nodeReady returns nil when the node takes pods.
func (c *Cluster) nodeReady(ctx context.Context) error {
	node, err := c.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("node is tainted: %v", node.Spec.Taints)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == v1.NodeReady && condition.Status == v1.ConditionTrue {
			return nil
		}
		if condition.Type == v1.NodeReady {
			return fmt.Errorf("node is not ready: %s", condition.Message)
		}
	}
	return errors.New("node has no condition Ready")
}
