package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakekubelet"
	"github.com/tandem-gpu/tandem/test/gpu/load"
	"github.com/tandem-gpu/tandem/test/gpu/record"
)

const nodeName = "gpu"

// site is a node with the real agent on the real GPU, and stand-ins for API server and kubelet.
type site struct {
	suite   *suite
	api     *api
	client  *kubernetes.Clientset
	kubelet *fakekubelet.Kubelet
	paths   fakekubelet.Paths
	dir     string
	agent   *exec.Cmd
	ended   chan struct{}
}

// agentPart measures the real agent on the real GPU.
func (s *suite) agentPart() error {
	names := []string{"agent/register", "agent/container", "agent/cost", "agent/tenant-with", "agent/restart"}
	if !s.anyDue(names...) {
		return nil
	}
	n, err := s.newSite()
	if err != nil {
		return err
	}
	defer n.close()
	begin := time.Now()
	if err := n.startAgent(); err != nil {
		return err
	}
	if err := n.awaitSlots(); err != nil {
		return errors.Join(err, errors.New(lastLine(read(n.dir, "agent.log"))))
	}
	registered := millis(time.Since(begin))
	s.measure("agent/register", "from the start of the agent's process until the kubelet has counted its slots", "ms", 1, func() (float64, error) { return registered, nil })
	s.see("agent/gpunode", "the status that the agent publishes", 1, func() (string, error) {
		n.api.mu.Lock()
		defer n.api.mu.Unlock()
		o := n.api.objects["apis/"+v1alpha1.GPUNodes.Group+"/"+v1alpha1.GPUNodes.Version+"/gpunodes/"+nodeName]
		if o == nil {
			return "", errors.New("no GPUNode was written")
		}
		return text(o.Object["status"]), nil
	})
	if err := n.pod("a", 3); err != nil {
		return err
	}
	c, err := n.awaitContainer("a")
	if err != nil {
		return errors.Join(err, errors.New(lastLine(read(n.dir, "agent.log"))))
	}
	s.see("agent/container", "what a container with 3 of 10 slots gets: environment, device files, mounts", 1, func() (string, error) {
		env := slices.DeleteFunc(slices.Clone(c.Env), func(e string) bool { return !strings.Contains(e, "CUDA") && !strings.Contains(e, "NVIDIA") })
		return fmt.Sprintf("%s; devices %s; %d mounts, of them %s", strings.Join(env, " "), strings.Join(c.Devices, " "), len(c.Mounts), strings.Join(ours(c), " ")), nil
	})
	w, err := s.startIn(within(c), load.Compute, containerEnv(c)...)
	if err != nil {
		return fmt.Errorf("a client with the container's environment: %w", err)
	}
	s.see("agent/client", "a client with exactly that environment and those mounts: SMs, and memory in pieces of 64 MiB", 1, func() (string, error) {
		r, err := w.ask(order{Do: "sms"})
		if err != nil {
			return "", err
		}
		m, err := s.startIn(within(c), "", containerEnv(c)...)
		if err != nil {
			return "", err
		}
		defer m.quit()
		got, err := m.ask(order{Do: "allocate", Piece: 64 * mebibyte, Limit: 40 << 30})
		return fmt.Sprintf("%d SMs, %d MiB, then %s", r.Seen, got.Taken/mebibyte, failed(got, nil)), err
	})
	if err := n.cost(w); err != nil {
		return err
	}
	n.ends(w)
	return nil
}

func (s *suite) newSite() (*site, error) {
	dir, err := s.folder("a")
	if err != nil {
		return nil, err
	}
	n := &site{suite: s, dir: dir, paths: fakekubelet.PathsIn(filepath.Join(dir, "k"))}
	if n.api, err = newAPI(); err != nil {
		return nil, err
	}
	config := &rest.Config{Host: n.api.url, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	if n.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	for _, d := range []string{"k", "mps", "state"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	n.kubelet = fakekubelet.New(fakekubelet.Config{Node: nodeName, Dir: filepath.Join(dir, "k"), Client: n.client})
	go func() {
		if err := n.kubelet.Run(s.ctx); err != nil && s.ctx.Err() == nil {
			fmt.Fprintln(s.out, "gpu-test: kubelet:", err)
		}
	}()
	return n, until(30*time.Second, func() error {
		_, err := os.Stat(filepath.Join(n.paths.DevicePlugins, "kubelet.sock"))
		return err
	})
}

// until calls again and again until there is no error.
func until(limit time.Duration, f func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(5 * time.Millisecond) // a step of polling
	}
}

func (n *site) startAgent() error {
	kubeconfig, err := n.api.kubeconfig(n.dir)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(n.dir, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	n.agent = exec.Command(n.suite.agent, "--node-name="+nodeName, "--kubeconfig="+kubeconfig, "--device-plugin-dir="+n.paths.DevicePlugins,
		"--pod-resources-socket="+n.paths.PodResources, "--pods-api-socket="+n.paths.PodsAPI, "--cdi-dir="+n.paths.CDI,
		"--mps-dir="+filepath.Join(n.dir, "mps"), "--state-dir="+filepath.Join(n.dir, "state"), "--http-address=127.0.0.1:0",
		"--dev-root="+n.suite.devRoot, "--v=2")
	n.agent.Env = environ()
	n.agent.Stdout, n.agent.Stderr = log, log
	n.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.agent.Start(); err != nil {
		return err
	}
	agent, ended := n.agent, make(chan struct{})
	n.ended = ended
	go func() { _ = agent.Wait(); close(ended) }()
	return nil
}

// awaitSlots waits until the kubelet has counted the agent's slots as allocatable.
func (n *site) awaitSlots() error {
	return until(60*time.Second, func() error {
		node, err := n.client.CoreV1().Nodes().Get(n.suite.ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if q := node.Status.Allocatable[v1alpha1.ResourceVGPU]; q.IsZero() {
			return fmt.Errorf("no slots are allocatable: the agent has not registered")
		}
		return nil
	})
}

// pod makes a pod on the node with an assignment, as the scheduler binds it.
func (n *site) pod(name string, slots int) error {
	pod := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, CreationTimestamp: metav1.Now()},
		Spec: v1.PodSpec{NodeName: nodeName, SchedulerName: v1alpha1.SchedulerName, Containers: []v1.Container{{
			Name: "main", Image: "none", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
				v1alpha1.ResourceVGPU: resource.MustParse(strconv.Itoa(slots)),
			}},
		}}},
	}
	request, err := kube.Request(pod)
	if err != nil {
		return err
	}
	size := vgpu.Device{Slots: 10, Memory: vgpu.Bytes(n.suite.report.Machine.Memory)}
	share, refusal := request.Containers[0].On(&size, 0, 0)
	if refusal != nil {
		return fmt.Errorf("%+v", *refusal)
	}
	pod.UID = uuid.NewUUID()
	assignment, err := kube.EncodeAssignment(vgpu.Assignment{
		UID: vgpu.UID(pod.UID), Pod: name, Node: nodeName,
		Containers: []vgpu.ContainerAssignment{{Name: "main", Devices: []vgpu.DeviceID{vgpu.DeviceID(n.suite.uuid)}, Share: share}},
	})
	if err != nil {
		return err
	}
	pod.Annotations = map[string]string{v1alpha1.AnnotationAssignment: assignment}
	return n.api.add("api/v1/pods/"+name, pod)
}

func (n *site) awaitContainer(pod string) (c fakekubelet.Container, err error) {
	err = until(60*time.Second, func() error {
		for _, c = range n.kubelet.Containers() {
			if c.Pod == pod {
				return nil
			}
		}
		now, err := n.client.CoreV1().Pods(metav1.NamespaceDefault).Get(n.suite.ctx, pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		raw, _ := json.Marshal(now.Status)
		return fmt.Errorf("the container of pod %s has not started: %s", pod, raw)
	})
	return c, err
}

// ours are the mounts of a container that are not the driver's files.
func ours(c fakekubelet.Container) []string {
	return slices.DeleteFunc(slices.Clone(c.Mounts), func(m string) bool {
		host, container, _ := strings.Cut(m, ":")
		container, _, _ = strings.Cut(container, ":")
		return host == container || !strings.HasPrefix(container, "/tmp/") && !strings.HasPrefix(container, "/dev/")
	})
}

// within is the words before a command that has it see what a container sees of MPS.
func within(c fakekubelet.Container) []string {
	script := make([]string, 0, 2)
	for _, m := range ours(c) {
		host, at, _ := strings.Cut(m, ":")
		at, _, _ = strings.Cut(at, ":")
		script = append(script, fmt.Sprintf("mkdir -p %[2]s && mount --bind %[1]s %[2]s && mount -o remount,bind,ro %[2]s", host, at))
	}
	return []string{"unshare", "--mount", "sh", "-c", strings.Join(append(script, `exec "$0" "$@"`), " && ")}
}

func containerEnv(c fakekubelet.Container) []string {
	return slices.DeleteFunc(slices.Clone(c.Env), func(e string) bool { return strings.HasPrefix(e, "PATH=") || strings.HasPrefix(e, "LD_LIBRARY_PATH=") })
}

// cost measures what the agent takes of the host, and of a tenant: the suite stops and continues the agent in turns.
func (n *site) cost(w *worker) error {
	s := n.suite
	if !s.anyDue("agent/cost", "agent/tenant-with") {
		return nil
	}
	with := record.Figure{What: "throughput of a tenant with 3 of 10 slots in 4 s while the agent runs, with its default intervals", Unit: load.Units(load.Compute)}
	without := record.Figure{What: "throughput of that tenant in 4 s while the agent is stopped by a signal, in turns with the other", Unit: load.Units(load.Compute)}
	var ran time.Duration
	before := processorTime(n.agent.Process.Pid)
	for range 6 {
		begin := time.Now()
		r, err := w.run(s.of(4 * time.Second))
		ran += time.Since(begin)
		if err != nil {
			return err
		}
		add(&with, r.Rate())
		if err := n.agent.Process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		r, err = w.run(s.of(4 * time.Second))
		if again := n.agent.Process.Signal(syscall.SIGCONT); again != nil || err != nil {
			return errors.Join(err, again)
		}
		add(&without, r.Rate())
	}
	used := processorTime(n.agent.Process.Pid) - before
	s.keep("agent/tenant-without", without)
	s.keep("agent/tenant-with", with)
	s.keep("agent/cost", record.Figure{
		What: "processor time of the agent and of the programs that it starts, while it runs: of one core", Unit: "%", Values: []float64{100 * used.Seconds() / ran.Seconds()},
	})
	s.see("agent/memory", "VmRSS of the agent's process", 1, func() (string, error) {
		for _, line := range strings.Split(read("/proc", strconv.Itoa(n.agent.Process.Pid), "status"), "\n") {
			if strings.HasPrefix(line, "VmRSS") {
				return strings.Join(strings.Fields(line)[1:], " "), nil
			}
		}
		return "", errors.New("no VmRSS")
	})
	return nil
}

// processorTime of a process and of its children that have ended.
func processorTime(pid int) time.Duration {
	_, after, _ := strings.Cut(read("/proc", strconv.Itoa(pid), "stat"), ") ")
	fields := strings.Fields(after)
	if len(fields) < 15 {
		return 0
	}
	ticks := 0
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime in hundredths of a second
		n, _ := strconv.Atoi(f)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// ends restarts the agent under a tenant, and starts a second one.
func (n *site) ends(w *worker) {
	s := n.suite
	daemon := mps.NewV2(mps.Options{Dir: filepath.Join(n.dir, "mps")})
	s.see("agent/restart", "the agent is ended by SIGTERM and started again while a tenant works", 1, func() (string, error) {
		before, err := daemon.Look(s.ctx, s.uuid)
		if err != nil {
			return "", err
		}
		if err := w.tell(order{Do: "run", Millis: int(s.of(5000))}); err != nil {
			return "", err
		}
		begin := time.Now()
		if err := n.agent.Process.Signal(syscall.SIGTERM); err != nil {
			return "", err
		}
		<-n.ended
		ended := time.Since(begin)
		begin = time.Now()
		if err := n.startAgent(); err != nil {
			return "", err
		}
		time.Sleep(500 * time.Millisecond) // the kubelet still counts the slots of the agent that has ended
		if err := n.awaitSlots(); err != nil {
			return "", err
		}
		started := time.Since(begin)
		after, err := daemon.Look(s.ctx, s.uuid)
		if err != nil {
			return "", err
		}
		r, err := w.reply(patience)
		return fmt.Sprintf("ended in %v, slots again after %v at most; daemon %d before, %d after; servers %s before, %s after; the tenant %s at %.0f %s", ended.Round(time.Millisecond),
			started.Round(time.Millisecond), before.PID, after.PID, text(before.Servers), text(after.Servers), failed(r, err), r.Rate(), load.Units(load.Compute)), nil
	})
	s.see("agent/second", "a second container beside it, of 7 slots: SMs and rates of both, alone and together", 1, func() (string, error) {
		if err := n.pod("b", 7); err != nil {
			return "", err
		}
		c, err := n.awaitContainer("b")
		if err != nil {
			return "", err
		}
		second, err := s.startIn(within(c), load.Compute, containerEnv(c)...)
		if err != nil {
			return "", err
		}
		defer second.quit()
		a, err := w.run(s.of(time.Second))
		if err != nil {
			return "", err
		}
		b, err := second.run(s.of(time.Second))
		if err != nil {
			return "", err
		}
		both, err := together([]*worker{w, second}, s.of(time.Second))
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("alone %.0f and %.0f, together %.0f and %.0f %s", a.Rate(), b.Rate(), both[0].Rate(), both[1].Rate(), load.Units(load.Compute)), nil
	})
	s.see("agent/log", "what the agent warned of or failed at", 1, func() (string, error) {
		var lines []string
		for _, l := range strings.Split(read(n.dir, "agent.log"), "\n") {
			if strings.HasPrefix(l, "E") || strings.HasPrefix(l, "W") {
				lines = append(lines, l)
			}
		}
		return fmt.Sprintf("%d lines: %s", len(lines), strings.Join(lines[:min(5, len(lines))], " | ")), nil
	})
}

// close ends the agent, what it leaves running, and the stand-ins.
func (n *site) close() {
	n.suite.endWorkers()
	if n.agent != nil {
		_ = n.agent.Process.Signal(syscall.SIGTERM)
		select {
		case <-n.ended:
		case <-time.After(20 * time.Second):
			_ = n.agent.Process.Kill()
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.suite.ctx), 20*time.Second)
	defer cancel()
	if err := mps.NewV2(mps.Options{Dir: filepath.Join(n.dir, "mps")}).Stop(ctx, n.suite.uuid); err != nil {
		fmt.Fprintln(n.suite.out, "gpu-test: end the agent's MPS daemon:", err)
	}
	n.api.close()
}
