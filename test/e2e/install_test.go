package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tandem-gpu/tandem/internal/kubectl/command"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// TestInstall: Tandem in pods, whose images the node pulls from a registry: it is installed, upgraded and taken back to the older version
// while pods run and come, and removed while pods run.
func TestInstall(t *testing.T) {
	if os.Getenv(installSwitch) == "" {
		t.Skipf("needs root and six minutes: run make test-install, which sets %s=1", installSwitch)
	}
	c := StartBare(t)
	i := &installation{Cluster: c, t: t, whole: t}
	t.Cleanup(i.report)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"the first pod runs soon after the manifest is applied", i.install},
		{"an upgrade and the way back cost no pod", i.upgrade},
		{"an upgrade without images costs no pod either", i.brokenUpgrade},
		{"a removal leaves running pods and profiles", i.removal},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			i.t = t
			step.do()
		}) {
			return // the next step goes by what this one left
		}
	}
}

// installation is Tandem on a cluster, and the test that looks at it now.
type installation struct {
	*Cluster
	// t is the step that runs, whole the test of all steps.
	t, whole *testing.T
	// load is a tenant with pods that run all the time, by name with the UID of the pod.
	load *Tenant
	uids map[string]string
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

// apply applies deploy/ with the images of a version.
func (i *installation) apply(version string) {
	i.t.Helper()
	manifest, err := i.manifest(version)
	i.must(err)
	manifest, err = i.withStandIns(manifest)
	i.must(err)
	i.must(i.plane.Apply(i.t.Context(), manifest))
}

// install applies the manifest to a cluster that has never seen Tandem, and creates a pod at once.
func (i *installation) install() {
	begin := time.Now()
	i.apply(older)
	i.must(i.label(i.t.Context(), `"true"`))
	i.load = i.Tenant(i.whole, "load")
	i.whole.Cleanup(func() { i.t, i.load.t = i.whole, i.whole }) // before the tenant leaves
	i.load.t = i.t
	i.t.Logf("applied after %s", since(begin))
	i.load.create(newPod("first", share("main", 2)))
	i.load.running("first")
	i.t.Logf("the first pod runs after %s: images are pulled, the scheduler leads, the agent serves", since(begin))
	i.await("all of Tandem's pods", i.runs(older))
	i.t.Logf("all of Tandem's pods are ready after %s", since(begin))
	i.await("no drift", i.agentDrift)
	i.sound()
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
	i.t.Logf("kubectl tandem doctor:\n%s", out.String())
}

// upgrade goes to the newer version and back, beside pods that work and a gang that is being bound.
func (i *installation) upgrade() {
	n := i.load
	n.t = i.t
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
	for _, version := range []string{newer, older} {
		var gang []string
		for k := range 4 {
			name := fmt.Sprintf("gang-%s-%d", strings.ReplaceAll(version, ".", "-"), k)
			p := member("gang-"+strings.ReplaceAll(version, ".", "-"), name, share("main", 1))
			p.Annotations[v1alpha1.AnnotationMinMembers] = "4"
			n.create(p)
			gang = append(gang, name)
		}
		begin := time.Now()
		i.apply(version)
		n.running(gang...)
		i.await("all of Tandem's pods at "+version, i.runs(version))
		i.t.Logf("all of Tandem's pods are at %s after %s", version, since(begin))
		for _, p := range n.running(gang...) {
			i.untouched(p)
		}
		n.delete(gang...)
		n.create(newPod("after", share("main", 3)))
		n.running("after")
		n.delete("after")
		for _, p := range n.running(working...) {
			if string(p.UID) != i.uids[p.Name] {
				i.t.Errorf("pod %s is another one", p.Name)
			}
			i.untouched(p)
		}
		i.await("no drift", i.agentDrift)
	}
}

// brokenUpgrade goes to a version that the registry does not have, and back.
func (i *installation) brokenUpgrade() {
	n := i.load
	n.t = i.t
	i.apply("v0.0.0-missing")
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
	i.apply(older)
	i.await("all of Tandem's pods at "+older, i.runs(older))
	i.t.Logf("all of Tandem's pods are back at %s after %s", older, since(begin))
	n.create(newPod("after-missing", share("main", 3)))
	n.running("after-missing")
	n.delete("after-missing")
	for name := range i.uids {
		i.untouched(n.get(name))
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

// removal takes Tandem off as docs/guides/install.md says: first all but the definitions and the namespace, then the rest.
func (i *installation) removal() {
	n := i.load
	n.t = i.t
	profile := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "WorkloadProfile", "metadata": map[string]any{"name": "kept", "namespace": n.namespace},
		"spec": map[string]any{},
	}}
	_, err := i.dynamic.Resource(workloadProfiles).Namespace(n.namespace).Create(i.t.Context(), profile, metav1.CreateOptions{})
	i.must(err)
	manifest, err := i.manifest(older)
	i.must(err)
	i.must(i.remove(i.t.Context(), manifest, func(kind string) bool { return kind != "CustomResourceDefinition" && kind != "Namespace" }))
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
	if _, err := i.dynamic.Resource(workloadProfiles).Namespace(n.namespace).Get(i.t.Context(), "kept", metav1.GetOptions{}); err != nil {
		i.t.Errorf("the WorkloadProfile is gone: %v", err)
	}
	n.create(newPod("waits", share("main", 1)))
	n.delete("waits")
	i.must(i.label(i.t.Context(), "null"))
	i.must(i.remove(i.t.Context(), manifest, func(kind string) bool { return kind == "CustomResourceDefinition" || kind == "Namespace" }))
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
	i.Cluster.report(ctx, i.t, systemNamespace)
	pods, err := i.tandemPods(ctx)
	if err != nil {
		return
	}
	for k := range pods {
		p := &pods[k]
		lines := int64(tailLines)
		raw, err := i.client.CoreV1().Pods(systemNamespace).GetLogs(p.Name, &v1.PodLogOptions{TailLines: &lines}).DoRaw(ctx)
		i.t.Logf("--- the end of the log of pod %s (%v)\n%s", p.Name, err, raw)
	}
}
