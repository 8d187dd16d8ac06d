package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/kubectl/command"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// missing is a version that nobody has built.
const missing = "v0.0.0-missing"

// way is a way to install Tandem. Each function has one release, or none.
type way struct {
	name string
	// apply installs a release, or goes to it. back goes to the release before.
	apply, back func(i *installation, version string) error
	// without goes to a version whose images nobody can pull.
	without func(i *installation) error
	// remove takes off all but the definitions.
	remove func(i *installation) error
	// optional: the parts are installed too that set schedulerName, and that write the memory of devices into Nodes.
	optional bool
}

// ways are those of docs/guides/install.md, with the files of a release as they are.
var ways = []way{
	{
		name:    "install.yaml",
		apply:   func(i *installation, version string) error { return i.applyManifest(version, "") },
		back:    func(i *installation, version string) error { return i.applyManifest(version, "") },
		without: func(i *installation) error { return i.applyManifest(older, missing) },
		remove: func(i *installation) error {
			manifest, err := i.manifest(older)
			if err != nil {
				return err
			}
			return i.Cluster.remove(i.t.Context(), manifest, func(kind string) bool { return kind != "CustomResourceDefinition" && kind != "Namespace" })
		},
	},
	{
		name: "Helm",
		apply: func(i *installation, version string) error {
			return i.helm(i.t.Context(), "upgrade", "--install", "--create-namespace", "tandem", i.chart(version),
				"--set=components.nodeMemory=true,components.schedulerName=true")
		},
		optional: true,
		back:     func(i *installation, _ string) error { return i.helm(i.t.Context(), "rollback", "tandem") },
		without: func(i *installation) error {
			return i.helm(i.t.Context(), "upgrade", "tandem", i.chart(older), "--reuse-values", "--set=images.tag="+missing)
		},
		remove: func(i *installation) error { return i.helm(i.t.Context(), "uninstall", "tandem") },
	},
}

// TestInstall: the files of a release, whose images the node pulls from a registry. Tandem is installed, upgraded and taken back to the
// older version while pods run and come, and removed while pods run.
func TestInstall(t *testing.T) {
	if os.Getenv(installSwitch) == "" {
		t.Skipf("needs root and six minutes: run make test-install, which sets %s=1", installSwitch)
	}
	c := StartBare(t)
	for k, w := range ways {
		if !t.Run(w.name, func(t *testing.T) {
			i := &installation{Cluster: c, way: w, t: t, whole: t, namespace: fmt.Sprintf("load-%d", k)}
			t.Cleanup(i.report)
			i.steps()
		}) {
			return // the next way needs a cluster without Tandem
		}
	}
}

// installation is Tandem on a cluster, and the test that looks at it now.
type installation struct {
	*Cluster
	way
	// t is the step that runs, whole the test of all steps.
	t, whole *testing.T
	// load is a tenant in the namespace with pods that run all the time, by name with the UID of the pod.
	namespace string
	load      *Tenant
	uids      map[string]string
}

// steps go on from each other.
func (i *installation) steps() {
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"the first pod runs soon", i.install},
		{"an upgrade and the way back cost no pod", i.upgrade},
		{"an upgrade without images costs no pod either", i.brokenUpgrade},
		{"a removal leaves running pods and profiles", i.removal},
	} {
		if !i.whole.Run(step.name, func(t *testing.T) {
			i.t = t
			if i.load != nil {
				i.load.t = t
			}
			step.do()
		}) {
			return
		}
	}
}

func (i *installation) must(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}

func (i *installation) await(what string, check func(context.Context) error) {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), patience)
	defer cancel()
	i.must(poll(ctx, what, check))
}

// applyManifest applies install.yaml of a release, with other tags of the images where they are given.
func (i *installation) applyManifest(version, tag string) error {
	manifest, err := i.manifest(version)
	if err != nil {
		return err
	}
	if tag != "" {
		manifest = []byte(strings.ReplaceAll(string(manifest), ":"+version, ":"+tag))
	}
	return i.plane.Apply(i.t.Context(), manifest)
}

// install installs the older release on a cluster without Tandem, and creates a pod at once.
func (i *installation) install() {
	begin := time.Now()
	i.must(i.apply(i, older))
	i.must(i.label(i.t.Context(), `"true"`))
	i.t.Logf("applied after %s", since(begin))
	i.load = i.Tenant(i.whole, i.namespace)
	i.whole.Cleanup(func() { i.t, i.load.t = i.whole, i.whole }) // before the tenant leaves
	i.load.t = i.t
	i.load.create(newPod("first", share("main", 2)))
	i.load.running("first")
	i.t.Logf("the first pod runs after %s: images are pulled, the scheduler leads, the agent serves", since(begin))
	i.await("all of Tandem's pods", i.runs(older))
	i.t.Logf("all of Tandem's pods are ready after %s", since(begin))
	i.await("no drift", i.agentDrift)
	i.sound()
	if i.optional {
		i.withOptions()
	}
}

// withOptions creates a pod that names no scheduler and asks for device memory, on a node that says how much it has.
func (i *installation) withOptions() {
	i.t.Helper()
	_, err := i.dynamic.Resource(v1.SchemeGroupVersion.WithResource("namespaces")).Patch(i.t.Context(), i.namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"tandem-gpu.io/scheduler-name":"inject"}}}`), metav1.PatchOptions{})
	i.must(err)
	i.await("the memory of the devices in the Node", func(ctx context.Context) error {
		node, err := i.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err == nil && node.Status.Allocatable.Name(v1alpha1.ResourceMemory, resource.BinarySI).Value() < gpus*(39<<30) {
			err = fmt.Errorf("the node offers %v", node.Status.Allocatable)
		}
		return err
	})
	pod := newPod("unnamed", share("main", 2))
	pod.Spec.SchedulerName = ""
	pod.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceMemory] = resource.MustParse("4Gi")
	i.await("a pod whose scheduler is set", func(ctx context.Context) error {
		created, err := i.load.pods.Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && created.Spec.SchedulerName != v1alpha1.SchedulerName {
			err = fmt.Errorf("its scheduler is %q", created.Spec.SchedulerName)
		}
		return err
	})
	i.load.create(pod)
	i.load.running("unnamed")
	i.load.delete("unnamed")
}

// sound asks kubectl tandem doctor, and fails where it finds something wrong.
func (i *installation) sound() {
	i.t.Helper()
	kubeconfig, err := i.plane.Kubeconfig("doctor", []string{"system:masters"})
	i.must(err)
	var out, errs strings.Builder
	code := command.Execute([]string{"doctor", "--kubeconfig", kubeconfig}, command.Streams{Out: &out, Errs: &errs, Env: func(string) string { return "" }})
	if code != 0 {
		i.t.Errorf("kubectl tandem doctor ends with %d:\n%s%s", code, out.String(), errs.String())
	}
}

// upgrade goes to the newer release and back, beside pods that work and a gang that is being bound.
func (i *installation) upgrade() {
	n := i.load
	working := []string{"first"}
	for k := range 3 {
		name := fmt.Sprintf("works-%d", k)
		n.create(newPod(name, work(2)))
		working = append(working, name)
	}
	i.uids = map[string]string{}
	for _, p := range n.running(working...) {
		i.uids[p.Name] = string(p.UID)
	}
	for round, to := range []struct {
		version string
		change  func(*installation, string) error
	}{{newer, i.apply}, {older, i.back}} {
		gang := i.gang(fmt.Sprintf("gang-%d", round))
		begin := time.Now()
		i.must(to.change(i, to.version))
		n.running(gang...)
		i.await("all of Tandem's pods at "+to.version, i.runs(to.version))
		i.t.Logf("all of Tandem's pods are at %s after %s", to.version, since(begin))
		for _, p := range n.running(gang...) {
			i.untouched(p)
		}
		n.delete(gang...)
		i.serves(fmt.Sprintf("after-%d", round))
	}
}

// gang creates a gang of four, and does not wait for it.
func (i *installation) gang(name string) (names []string) {
	for k := range 4 {
		p := member(name, fmt.Sprintf("%s-%d", name, k), share("main", 1))
		p.Annotations[v1alpha1.AnnotationMinMembers] = "4"
		i.load.create(p)
		names = append(names, p.Name)
	}
	return names
}

// serves fails unless a new pod starts, and the pods of before run as they did.
func (i *installation) serves(name string) {
	i.t.Helper()
	n := i.load
	n.create(newPod(name, share("main", 3)))
	n.running(name)
	n.delete(name)
	for name, uid := range i.uids {
		p := n.get(name)
		if string(p.UID) != uid || p.Status.Phase != v1.PodRunning {
			i.t.Errorf("pod %s is another one, or %s", name, p.Status.Phase)
		}
		i.untouched(p)
	}
	i.await("no drift", i.agentDrift)
}

// untouched fails where a container of a pod was started anew.
func (i *installation) untouched(p *v1.Pod) {
	i.t.Helper()
	for k := range p.Status.ContainerStatuses {
		if s := &p.Status.ContainerStatuses[k]; s.RestartCount != 0 {
			i.t.Errorf("container %s of pod %s was started %d times anew: %+v", s.Name, p.Name, s.RestartCount, s.LastTerminationState)
		}
	}
}

// brokenUpgrade goes to a version that the registry does not have, and to the older one again.
func (i *installation) brokenUpgrade() {
	i.must(i.without(i))
	i.await("a pod that cannot be pulled", func(ctx context.Context) error {
		pods, err := i.tandemPods(ctx)
		if err != nil {
			return err
		}
		for k := range pods {
			if strings.Contains(waitsFor(&pods[k]), "ImagePull") {
				return nil
			}
		}
		return errors.New("there is none")
	})
	begin := time.Now()
	i.must(i.back(i, older))
	i.await("all of Tandem's pods at "+older, i.runs(older))
	i.t.Logf("all of Tandem's pods are back at %s after %s", older, since(begin))
	i.serves("after-missing")
}

// removal takes Tandem off as the guide says: first all but the definitions, then these.
func (i *installation) removal() {
	n := i.load
	profile := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "WorkloadProfile", "metadata": map[string]any{"name": "kept", "namespace": n.namespace},
		"spec": map[string]any{},
	}}
	profiles := i.dynamic.Resource(workloadProfiles).Namespace(n.namespace)
	_, err := profiles.Create(i.t.Context(), profile, metav1.CreateOptions{})
	i.must(err)
	i.must(i.way.remove(i))
	i.await("no pod of Tandem", i.hasGone)
	for name, uid := range i.uids {
		p := n.get(name)
		if string(p.UID) != uid || p.Status.Phase != v1.PodRunning || p.DeletionTimestamp != nil {
			i.t.Errorf("pod %s is %s after the removal", name, p.Status.Phase)
		}
		// The end of the MPS daemons is the end of the GPU work of their clients. A pod that only holds its share goes on.
		if name == "first" {
			i.untouched(p)
		}
	}
	if _, err := profiles.Get(i.t.Context(), "kept", metav1.GetOptions{}); err != nil {
		i.t.Errorf("the WorkloadProfile is gone: %v", err)
	}
	i.must(i.label(i.t.Context(), "null"))
	manifest, err := i.manifest(older)
	i.must(err)
	i.must(i.Cluster.remove(i.t.Context(), manifest, func(kind string) bool { return kind == "CustomResourceDefinition" || kind == "Namespace" }))
	i.await("no namespace of Tandem", func(ctx context.Context) error {
		_, err := i.client.CoreV1().Namespaces().Get(ctx, systemNamespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

// report shows Tandem's pods after a failure.
func (i *installation) report() {
	if !i.t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	i.Cluster.report(ctx, i.whole, systemNamespace)
	logs, err := filepath.Glob(filepath.Join(i.layout.logs(), "pods", systemNamespace+"_*", "*", "*.log"))
	if err != nil {
		i.whole.Logf("find the logs of Tandem's pods: %v", err)
	}
	for _, path := range logs {
		raw, err := os.ReadFile(path)
		lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
		i.whole.Logf("--- the end of %s (%v)\n%s", path, err, strings.Join(lines[max(0, len(lines)-tailLines):], "\n"))
	}
}
