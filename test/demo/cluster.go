package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	testcluster "github.com/tandem-gpu/tandem/test/cluster"
	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// built is where the programs lie, and which version of Kubernetes the control plane has, "" for that of tools/controlplane.
type built struct {
	root, scheduler, agent, controller, activator, fakes, kubernetes string
	// routes is the file with the CustomResourceDefinition of HTTPRoutes.
	routes string
}

// build builds what the demo runs: the control plane once, the rest where it changed.
func build(ctx context.Context, out *terminal, kubernetes string) (built, error) {
	root, err := sandbox.Root()
	if err != nil {
		return built{}, err
	}
	if _, err := sandbox.Tools(ctx, "etcd", sandbox.At("kube-apiserver", kubernetes)); err != nil {
		return built{}, err
	}
	gateway, err := sandbox.OperatorSource(ctx, "sigs.k8s.io/gateway-api")
	if err != nil {
		return built{}, err
	}
	bin := filepath.Join(root, "bin")
	b := built{
		root: root, scheduler: filepath.Join(bin, "scheduler"), agent: filepath.Join(bin, "device-plugin"), controller: filepath.Join(bin, fastClock, "controller"),
		activator: filepath.Join(bin, "activator"), fakes: filepath.Join(bin, "fakegpu"), kubernetes: kubernetes,
		routes: filepath.Join(gateway, "config", "crd", "standard", "gateway.networking.k8s.io_httproutes.yaml"),
	}
	out.say("building the scheduler, the agent, the controller, the activator and a fake NVIDIA driver")
	for _, args := range [][]string{
		{"-o", bin + string(filepath.Separator), "./cmd/scheduler", "./cmd/device-plugin", "./cmd/activator"},
		{"-tags", fastClock, "-o", b.controller, "./cmd/controller"},
	} {
		cmd := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...)
		cmd.Dir = root
		done := out.still("building: the first time takes minutes")
		output, err := cmd.CombinedOutput()
		done()
		if err != nil {
			return built{}, fmt.Errorf("build scheduler, agent, controller and activator: %w\n%s", errors.Join(err, ctx.Err()), output)
		}
	}
	defer out.still("building the fake NVIDIA driver")()
	if err := fakegpu.Build(ctx, b.fakes); err != nil {
		return built{}, errors.Join(err, ctx.Err())
	}
	return b, nil
}

// cluster is everything that runs.
type cluster struct {
	built
	plane *sandbox.ControlPlane
	dir   string
	admin *kubernetes.Clientset
	user  *kubernetes.Clientset
	nodes []*node
	// objects has the rights of user.
	objects dynamic.Interface
	// running is the scheduler, sizing the controller.
	running, sizing *sandbox.Process
	end             context.CancelFunc
	// controllers ends Kubernetes' own controllers and waits for them.
	controllers func()
	// began is when the real clock and that of the controller showed the same.
	began time.Time
	// requests stands for Prometheus, jupyter for the server of a notebook.
	requests *requests
	jupyter  *jupyter
	// activatorAt is the address of the activator. The others are where the programs of the control plane serve their metrics.
	activatorAt, schedulerMetrics, controllerMetrics, activatorMetrics string
	// snapshots is where the scheduler serves its snapshot.
	snapshots string
	// pods counts those that have an address.
	pods atomic.Int64
}

func startCluster(ctx context.Context, out *terminal, b built) (*cluster, error) {
	c := &cluster{built: b}
	if err := c.start(ctx, out); err != nil {
		err = errors.Join(err, c.logs())
		c.stop()
		return nil, err
	}
	return c, nil
}

func (c *cluster) start(ctx context.Context, out *terminal) (err error) {
	c.plane, err = sandbox.Start(ctx, sandbox.Options{
		Authorization: "Node,RBAC",
		Kubernetes:    c.kubernetes,
		APIServerArgs: []string{"--enable-admission-plugins=NodeRestriction"},
	})
	if err != nil {
		return err
	}
	c.dir, c.began = c.plane.Dir(), time.Now()
	if c.requests, err = startRequests(c.quick); err != nil {
		return err
	}
	if c.jupyter, err = startJupyter(c.began); err != nil {
		return err
	}
	if err := c.quiet(); err != nil {
		return err
	}
	if c.admin, err = kubernetes.NewForConfig(c.plane.Admin()); err != nil {
		return err
	}
	version, err := c.admin.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the API server for its version: %w", err)
	}
	out.say("control plane is ready: etcd and kube-apiserver %s, with RBAC", version.GitVersion)
	if err := c.install(ctx); err != nil {
		return err
	}
	out.say("deploy/ is applied: CRD, roles and admission policies")
	if err := c.startScheduler(ctx); err != nil {
		return err
	}
	if err := errors.Join(c.startController(ctx), c.startControllers(ctx), c.startActivator(ctx)); err != nil {
		return err
	}
	if err := c.startNodes(ctx, out); err != nil {
		return err
	}
	return c.awaitNodes(ctx, out)
}

// quiet sends what libraries log in this process to a file.
func (c *cluster) quiet() error {
	file, err := os.Create(filepath.Join(c.dir, "logs", "demo.log"))
	if err != nil {
		return err
	}
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(file, nil)))
	return nil
}

// users of the demo: jane may do with her work what she likes, in her namespace, and see what the controller decides. An administrator has
// allowed her to make fleets.
const users = `
{apiVersion: v1, kind: Namespace, metadata: {name: lab}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: researcher, namespace: lab}
rules:
- {apiGroups: [""], resources: [pods, services], verbs: ["*"]}
- {apiGroups: [apps], resources: [deployments, statefulsets], verbs: ["*"]}
- {apiGroups: [batch], resources: [jobs], verbs: ["*"]}
- {apiGroups: [gateway.networking.k8s.io], resources: [httproutes], verbs: ["*"]}
- {apiGroups: [tandem-gpu.io], resources: [workloadprofiles, inferencefleets], verbs: ["*"]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [get, list, watch]}
- {apiGroups: [tandem-gpu.io], resources: [elastictargets], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: researcher, namespace: lab}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: researcher}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
`

// install applies deploy/ as an administrator does. Kubernetes' own controllers run for the namespace of the users alone: the Deployments and
// DaemonSets of deploy/ stay without pods, and the demo starts their binaries itself.
func (c *cluster) install(ctx context.Context) error {
	rendered, err := testcluster.Render("deploy")
	if err != nil {
		return err
	}
	manifests, err := rendered.AsYaml()
	if err != nil {
		return fmt.Errorf("render deploy/: %w", err)
	}
	routes, err := os.ReadFile(c.routes)
	if err != nil {
		return fmt.Errorf("read the CustomResourceDefinition of HTTPRoutes: %w", err)
	}
	for _, m := range [][]byte{manifests, routes, []byte(users)} {
		if err := c.plane.Apply(ctx, m); err != nil {
			return err
		}
	}
	config, err := c.plane.Config("jane", nil)
	if err != nil {
		return err
	}
	if c.user, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	c.objects, err = dynamic.NewForConfig(config)
	return err
}

// startScheduler starts the scheduler under its own account, with the configuration of deploy/ and a kubeconfig.
func (c *cluster) startScheduler(ctx context.Context) error {
	kubeconfig, err := c.plane.ServiceAccount(ctx, "tandem-system", "tandem-scheduler")
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(c.root, "deploy", "scheduler", "config.yaml"))
	if err != nil {
		return fmt.Errorf("configure scheduler: %w", err)
	}
	config, err := sandbox.SchedulerConfig(raw, kubeconfig)
	if err != nil {
		return err
	}
	if raw, err = yaml.Marshal(config); err != nil {
		return fmt.Errorf("configure scheduler: %w", err)
	}
	path := filepath.Join(c.dir, "scheduler.yaml")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return fmt.Errorf("configure scheduler: %w", err)
	}
	ports, err := sandbox.FreePorts(2)
	if err != nil {
		return err
	}
	c.schedulerMetrics, c.snapshots = fmt.Sprintf("%s:%d", loopback, ports[0]), fmt.Sprintf("https://%s:%d", loopback, ports[1])
	c.running, err = c.plane.Processes().Start("scheduler", exec.Command(c.scheduler,
		"--config="+path, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig, "--bind-address="+loopback, fmt.Sprintf("--secure-port=%d", ports[0]),
		fmt.Sprintf("--snapshot-secure-port=%d", ports[1])))
	return err
}

// stop ends everything, the latest first, and removes the directory.
func (c *cluster) stop() {
	if c.controllers != nil {
		c.controllers()
	}
	if c.requests != nil {
		c.requests.close()
	}
	if c.jupyter != nil {
		c.jupyter.close()
	}
	if c.end != nil {
		c.end()
	}
	for _, n := range c.nodes {
		n.stop()
	}
	if c.plane == nil {
		return
	}
	c.plane.Processes().Stop(5 * time.Second)
	endDaemons(c.dir)
	c.plane.Stop()
}

// logs returns the ends of all logs as an error, for a demo that failed.
func (c *cluster) logs() error {
	if c.plane == nil {
		return nil
	}
	return errors.New("\n" + c.plane.Logs(12))
}

// instructions say how to use a cluster that stays up.
func (c *cluster) instructions() string {
	kubeconfig, err := c.plane.Kubeconfig("admin", []string{"system:masters"})
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe cluster stays up until Ctrl-C. In another terminal, in this directory:\n\n")
	fmt.Fprintf(&b, "  export KUBECONFIG=%s\n", kubeconfig)
	if _, err := exec.LookPath("kubectl"); err != nil {
		fmt.Fprintf(&b, "  PATH=\"$(go run ./internal/sandbox/tools kubectl):$PATH\"   # builds kubectl\n")
	}
	fmt.Fprintf(&b, `  kubectl get gpunodes
  kubectl -n lab get pods -o wide
  kubectl -n lab get pod train-nlp -o jsonpath='{.metadata.annotations.tandem-gpu\.io/assignment}'
  kubectl -n lab get elastictargets         # the elastic Job, its size and the reason
  kubectl -n lab get inferencefleets,httproutes,deployments
  kubectl -n lab delete pod train-nlp       # who takes its place?
  kubectl -n lab get events --field-selector type=Warning
`)
	seen := fmt.Sprintf("--scheduler-address %s --scheduler-insecure", c.snapshots) // no kubelet is there that would forward a port
	for _, command := range [][2]string{
		{"map", "who has which part of which GPU"}, {"ui", "the same in a browser"}, {"top", "what the pods use of their shares, until q"},
		{"why POD -n lab", "why a pod waits, and what would help"}, {"gang", "gangs, and what they wait for"}, {"simulate --for 8h", "what comes"},
	} {
		fmt.Fprintf(&b, "  go run ./cmd/kubectl-tandem %s %s   # %s\n", command[0], seen, command[1])
	}
	fmt.Fprintf(&b, "  go run ./cmd/kubectl-tandem events -n lab   # what Tandem decided\n")
	fmt.Fprintf(&b, "\nTandem's controller has a clock that runs fast here, so kubectl prints <invalid> for times that it wrote. Jobs,\n"+
		"Deployments and StatefulSets get pods in the namespace lab only, and no garbage collector runs: kubectl delete of a Job leaves its\n"+
		"pods. Nodes lack the label by which the DaemonSets run, so kubectl tandem doctor names faults of the demo itself.\n")
	fmt.Fprintf(&b, "\nLogs, CDI specs, checkpoints: %s\n\n", c.dir)
	return b.String()
}
