package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakegpu"
)

const (
	// installSwitch is the environment variable that turns TestInstall on, beside Switch.
	installSwitch = "TANDEM_E2E_INSTALL"
	// registryAddress is where the images are pulled from.
	registryAddress = "127.0.0.1:5000"
	// serviceAddress is that of the Service of the API server, which pods are told. No kube-proxy routes it here.
	serviceAddress = "10.96.0.1"
	// older and newer are the versions that the test installs.
	older, newer = "v0.1.0", "v0.2.0"
)

// buildInstalled builds the releases of both versions as make release does, the registry that serves their images, and Helm.
func buildInstalled(ctx context.Context, l layout) error {
	root, err := sandbox.Root()
	if err != nil {
		return err
	}
	if _, err := sandbox.Build(ctx, "helm"); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "e2e: building the releases %s and %s, and the registry\n", older, newer)
	for _, command := range [][]string{
		{"go", "build", "-C", "tools/image", "-o", l.bin("registry"), "./registry"},
		releaseOf(older, l.release(older)), releaseOf(newer, l.release(newer)),
	} {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_CFLAGS=-Wno-deprecated-declarations")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("run %s: %w\n%s", strings.Join(command, " "), err, out)
		}
	}
	return nil
}

// releaseOf is the command that builds a release for this machine.
func releaseOf(version, dir string) []string {
	return []string{
		"go", "run", "-C", "tools/release", ".", "build", "-version=" + version, "-registry=" + registryAddress,
		"-platforms=linux/" + runtime.GOARCH, "-output=" + dir, "-dirty",
	}
}

// release is the folder of a release's files.
func (l layout) release(version string) string { return l.path("dist", version) }

// startPullable prepares the machine for Tandem in pods: the registry, the address of the API server's Service, and a default scheduler.
func (c *Cluster) startPullable(ctx context.Context) error {
	if err := c.prepareGPUs(); err != nil {
		return err
	}
	for _, command := range [][]string{
		{"ip", "addr", "add", serviceAddress + "/32", "dev", "lo"},
		{"mount", "--make-rshared", "/"}, // as on every host: the pod tandem-mps mounts a tmpfs for all to see
	} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("run %s: %w: %s", strings.Join(command, " "), err, out)
		}
	}
	if err := c.forwardService(); err != nil {
		return err
	}
	if err := c.startRegistry(ctx); err != nil {
		return err
	}
	if err := c.startDefaultScheduler(ctx); err != nil {
		return err
	}
	return c.useStandIns(ctx)
}

// startRegistry serves the images of both versions.
func (c *Cluster) startRegistry(ctx context.Context) error {
	args := []string{"--listen", registryAddress}
	for _, version := range []string{older, newer} {
		archives, err := filepath.Glob(filepath.Join(c.layout.release(version), "*.oci.tar"))
		if err != nil || len(archives) == 0 {
			return fmt.Errorf("find images of %s: there are none: %w", version, err)
		}
		args = append(args, archives...)
	}
	registry, err := c.plane.Processes().Start("registry", exec.Command(c.layout.bin("registry"), args...))
	if err != nil {
		return err
	}
	return poll(ctx, "all images in the registry", func(context.Context) error {
		if !strings.Contains(registry.Tail(5), "serving") {
			return errors.New("it has not got all of them")
		}
		return nil
	})
}

// forwardService passes connections to the API server's Service on to the API server.
func (c *Cluster) forwardService() error {
	listener, err := net.Listen("tcp", net.JoinHostPort(serviceAddress, "443"))
	if err != nil {
		return fmt.Errorf("forward the API server's Service: %w", err)
	}
	server := strings.TrimPrefix(c.plane.URL(), "https://")
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return // the process ends
			}
			go func() {
				defer from.Close()
				to, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				defer to.Close()
				go func() {
					_, _ = io.Copy(to, from)
					_ = to.(*net.TCPConn).CloseWrite()
				}()
				_, _ = io.Copy(from, to)
			}()
		}
	}()
	return nil
}

// startDefaultScheduler runs the stock scheduler with its default profile, as every cluster has one: it places Tandem's own pods.
func (c *Cluster) startDefaultScheduler(context.Context) error {
	ctx := context.Background() // until the process ends
	factory := scheduler.NewInformerFactory(c.client, 0, nil)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.client.EventsV1()})
	s, err := scheduler.New(ctx, c.client, factory, nil, profile.NewRecorderFactory(broadcaster), scheduler.WithKubeConfig(c.plane.Admin()))
	if err != nil {
		return fmt.Errorf("start the default scheduler: %w", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	go s.Run(ctx)
	return nil
}

// manifest returns install.yaml of a release.
func (c *Cluster) manifest(version string) ([]byte, error) {
	return os.ReadFile(filepath.Join(c.layout.release(version), "install.yaml"))
}

// helm runs Helm with the chart of a release.
func (c *Cluster) helm(ctx context.Context, args ...string) error {
	tools, err := sandbox.Tools(ctx, "helm")
	if err != nil {
		return err
	}
	kubeconfig, err := c.plane.Kubeconfig("helm", []string{"system:masters"})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, tools["helm"], append(args, "--namespace="+systemNamespace, "--kubeconfig="+kubeconfig)...)
	cmd.Env = append(os.Environ(), "HOME="+c.layout.path("helm"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// chart is the file of a release's chart.
func (c *Cluster) chart(version string) string {
	return filepath.Join(c.layout.release(version), "tandem-"+strings.TrimPrefix(version, "v")+".tgz")
}

// standIns adds to the pods that reach the driver what stands for it on this machine. It is a policy of the cluster, so that Tandem
// is installed as it is.
const standIns = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: stand-ins}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions:
  - {name: reaches-the-driver, expression: "object.metadata.?labels['app.kubernetes.io/name'].orValue('') in ['tandem-agent', 'tandem-mps']"}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [JSONPatch{op: 'add', path: '/spec/volumes/-', value: Object.spec.volumes{name: 'stand-ins', hostPath: Object.spec.volumes.hostPath{path: '${ROOT}'}}},
        JSONPatch{op: 'add', path: '/spec/containers/0/volumeMounts/-', value: Object.spec.containers.volumeMounts{name: 'stand-ins', mountPath: '${ROOT}'}},
        JSONPatch{op: 'add', path: '/spec/containers/0/env/-', value: Object.spec.containers.env{name: 'LD_LIBRARY_PATH', value: '${FAKES}'}},
        JSONPatch{op: 'add', path: '/spec/containers/0/env/-', value: Object.spec.containers.env{name: 'PATH', value: '${FAKES}:/usr/bin:/bin'}},
        JSONPatch{op: 'add', path: '/spec/containers/0/env/-', value: Object.spec.containers.env{name: '${STATE_VARIABLE}', value: '${STATE}'}}] +
        (object.metadata.labels['app.kubernetes.io/name'] == 'tandem-agent' ?
        [JSONPatch{op: 'add', path: '/spec/containers/0/args/-', value: '--dev-root=${DEVICES}'}] : [])
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: stand-ins}
spec: {policyName: stand-ins}
`

// useStandIns applies the policy, and returns when it holds.
func (c *Cluster) useStandIns(ctx context.Context) error {
	values := map[string]string{
		"ROOT": c.layout.root, "FAKES": c.layout.fakes(), "STATE_VARIABLE": fakegpu.StateVariable, "STATE": c.layout.state(), "DEVICES": c.layout.devRoot(),
	}
	if err := c.plane.Apply(ctx, []byte(os.Expand(standIns, func(name string) string { return values[name] }))); err != nil {
		return err
	}
	probe := newPod("probe", v1.Container{
		Name: "main", Image: busyboxImage, Args: []string{"x"}, Env: []v1.EnvVar{{Name: "A", Value: "b"}},
		VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}},
	})
	probe.Labels = map[string]string{"app.kubernetes.io/name": "tandem-agent"}
	probe.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	return poll(ctx, "the policy about stand-ins", func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods("default").Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(pod.Spec.Containers[0].Args) != 2 {
			err = errors.New("it does not hold yet")
		}
		return err
	})
}

// tandemPods lists the pods of Tandem's namespace that are not about to end.
func (c *Cluster) tandemPods(ctx context.Context) ([]v1.Pod, error) {
	list, err := c.client.CoreV1().Pods(systemNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p v1.Pod) bool { return p.DeletionTimestamp != nil }), nil
}

// runs returns nil when all of Tandem's pods are ready and have the images of a version. That of MPS keeps the image with which it
// started.
func (c *Cluster) runs(version string) func(context.Context) error {
	return func(ctx context.Context) error {
		pods, err := c.tandemPods(ctx)
		if err != nil {
			return err
		}
		ready := map[string]int{}
		for i := range pods {
			p := &pods[i]
			name := p.Labels["app.kubernetes.io/name"]
			if image := p.Spec.Containers[0].Image; name != "tandem-mps" && !strings.HasSuffix(image, ":"+version) {
				return fmt.Errorf("pod %s has the image %s", p.Name, image)
			}
			if !podReady(p) {
				return fmt.Errorf("pod %s is not ready: %s", p.Name, waitsFor(p))
			}
			ready[name]++
		}
		want := map[string]int{"tandem-scheduler": 2, "tandem-controller": 2, "tandem-activator": 2, "tandem-agent": 1, "tandem-mps": 1}
		for name, count := range want {
			if ready[name] != count {
				return fmt.Errorf("%d pods of %s are ready, want %d", ready[name], name, count)
			}
		}
		return c.gpuNodeReady(ctx, true)
	}
}

func podReady(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
}

// waitsFor says what the containers of a pod wait for.
func waitsFor(p *v1.Pod) string {
	said := []string{string(p.Status.Phase)}
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if w := list[i].State.Waiting; w != nil {
				said = append(said, w.Reason+" "+w.Message)
			}
			if e := list[i].LastTerminationState.Terminated; e != nil {
				said = append(said, fmt.Sprintf("ended before with %d: %s", e.ExitCode, e.Message))
			}
		}
	}
	return strings.Join(said, ", ")
}

// agentDrift reads the number of containers that do not run as assigned from the agent's pod.
func (c *Cluster) agentDrift(ctx context.Context) error {
	pods, err := c.tandemPods(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(pods, func(p v1.Pod) bool { return p.Labels["app.kubernetes.io/name"] == "tandem-agent" })
	if at < 0 {
		return errors.New("there is no agent")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(pods[at].Status.PodIP, "9410")+"/metrics", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("read metrics of the agent: %w", err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read metrics of the agent: %w", err)
	}
	if !strings.Contains(string(raw), "\ntandem_agent_assignment_drift 0\n") {
		return errors.New("the agent does not say that all containers run as assigned")
	}
	return nil
}

// remove deletes objects of a manifest of the chosen kinds, and waits until they are gone.
func (c *Cluster) remove(ctx context.Context, manifest []byte, chosen func(kind string) bool) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	for _, document := range strings.Split(string(manifest), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			return fmt.Errorf("read manifest: %w", err)
		}
		if o.Object == nil || !chosen(o.GetKind()) {
			continue
		}
		kind := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		resource := c.dynamic.Resource(mapping.Resource)
		foreground := metav1.DeletePropagationForeground
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			err = resource.Namespace(o.GetNamespace()).Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &foreground})
		} else {
			err = resource.Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &foreground})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// label marks the node as one whose GPUs are Tandem's.
func (c *Cluster) label(ctx context.Context, patch string) error {
	_, err := c.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).
		Patch(ctx, nodeName, "application/merge-patch+json", []byte(`{"metadata":{"labels":{"tandem-gpu.io/agent":`+patch+`}}}`), metav1.PatchOptions{})
	return err
}

// hasGone returns nil when no pod of Tandem is left.
func (c *Cluster) hasGone(ctx context.Context) error {
	list, err := c.client.CoreV1().Pods(systemNamespace).List(ctx, metav1.ListOptions{})
	if err == nil && len(list.Items) > 0 {
		err = fmt.Errorf("pod %s is left", list.Items[0].Name)
	}
	return err
}

// since says how long something took, for the log.
func since(begin time.Time) string { return fmt.Sprintf("%.1f s", time.Since(begin).Seconds()) }

var workloadProfiles = v1alpha1.GroupVersion.WithResource("workloadprofiles")
