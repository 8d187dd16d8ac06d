package deploy

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	configv1 "github.com/tandem-gpu/tandem/pkg/api/config/v1"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpupreempt"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
	"github.com/tandem-gpu/tandem/test/must"
)

// schedulerFlags writes a copy of deploy/scheduler/config.yaml that reaches the control plane as the scheduler's
// account, and returns the flags of the scheduler.
func schedulerFlags(t *testing.T) []string {
	t.Helper()
	root, err := sandbox.Root()
	must.OK(t, err)
	raw, err := os.ReadFile(filepath.Join(root, "deploy", "scheduler", "config.yaml"))
	must.OK(t, err)
	kubeconfig, err := cluster.ServiceAccount(t.Context(), systemNamespace, string(scheduler))
	must.OK(t, err)
	path := filepath.Join(t.TempDir(), "config.yaml")
	config, err := sandbox.SchedulerConfig(raw, kubeconfig)
	must.OK(t, err)
	if raw, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	must.OK(t, os.WriteFile(path, raw, 0o600))
	return []string{"--config=" + path, "--secure-port=0"}
}

// loadScheduler builds the scheduler as the command does, up to the point where it would start.
func loadScheduler(t *testing.T) (schedulerconfig.KubeSchedulerConfiguration, profile) {
	t.Helper()
	opts := options.NewOptions()
	flags := pflag.NewFlagSet("scheduler", pflag.ContinueOnError)
	for _, set := range opts.Flags.FlagSets {
		flags.AddFlagSet(set)
	}
	must.OK(t, flags.Parse(schedulerFlags(t)))
	completed, s, err := app.Setup(t.Context(), opts, plugins()...)
	must.OK(t, err)
	p, ok := s.Profiles[v1alpha1.SchedulerName]
	if !ok || len(s.Profiles) != 1 {
		t.Fatalf("the scheduler has %d profiles, want %s alone", len(s.Profiles), v1alpha1.SchedulerName)
	}
	return completed.ComponentConfig, p
}

// profile is what the tests ask a profile of the running scheduler.
type profile interface {
	ListPlugins() *schedulerconfig.Plugins
	PercentageOfNodesToScore() *int32
}

func TestSchedulerConfiguration(t *testing.T) {
	c, p := loadScheduler(t)
	plugins := p.ListPlugins()

	t.Run("pods without vGPUs are sampled as in the stock profile", func(t *testing.T) {
		if got := p.PercentageOfNodesToScore(); got != nil && *got != 0 {
			t.Errorf("percentageOfNodesToScore is %v, want the default", *got)
		}
	})
	t.Run("the scheduler does not wait for limits of its own", func(t *testing.T) {
		if got := c.ClientConnection; got.QPS != 1000 || got.Burst != 2000 {
			t.Errorf("clientConnection allows %v requests a second and %d at once, want 1000 and 2000", got.QPS, got.Burst)
		}
	})
	t.Run("preemption comes after a second try, and before the end of a gang's", func(t *testing.T) {
		for point, test := range map[string]struct {
			set  schedulerconfig.PluginSet
			want []string
		}{
			"postFilter":         {plugins.PostFilter, []string{gpushare.Name, gpupreempt.Name, gpugang.Name, names.DynamicResources}},
			"podGroupPostFilter": {plugins.PodGroupPostFilter, []string{gpupreempt.Name, gpugang.Name, names.DynamicResources}},
		} {
			var got []string
			for _, plugin := range test.set.Enabled {
				got = append(got, plugin.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s plugins (-want +got):\n%s", point, diff)
			}
		}
		if !enables(plugins.PreEnqueue, gpupreempt.Name) || enables(plugins.PreEnqueue, names.DefaultPreemption) {
			t.Errorf("preEnqueue plugins %v", plugins.PreEnqueue.Enabled)
		}
	})
	t.Run("GPUGang plans before GPUShare looks", func(t *testing.T) {
		want := []string{gpugang.Name, gpushare.Name}
		for point, set := range map[string]schedulerconfig.PluginSet{
			"preFilter": plugins.PreFilter, "filter": plugins.Filter, "reserve": plugins.Reserve,
		} {
			if diff := cmp.Diff(want, order(set, want...)); diff != "" {
				t.Errorf("%s plugins (-want +got):\n%s", point, diff)
			}
		}
	})
	t.Run("GPUGang has all its extension points", func(t *testing.T) {
		for point, set := range map[string]schedulerconfig.PluginSet{
			"preEnqueue": plugins.PreEnqueue, "permit": plugins.Permit, "postBind": plugins.PostBind,
		} {
			if !enables(set, gpugang.Name) {
				t.Errorf("not enabled at %s: %v", point, set.Enabled)
			}
		}
	})
	t.Run("one point of GPUShare outweighs all others", func(t *testing.T) {
		var ours, others int64
		for _, plugin := range plugins.Score.Enabled {
			if plugin.Name == gpushare.Name {
				ours = int64(plugin.Weight)
			} else {
				others += int64(plugin.Weight) * fwk.MaxScore
			}
		}
		if ours <= others || others == 0 {
			t.Errorf("weight of GPUShare is %d, the others add up to %d", ours, others)
		}
	})
	t.Run("GPUGang has members wait, GPUShare binds, DefaultBinder the others", func(t *testing.T) {
		var got []string
		for _, plugin := range plugins.Bind.Enabled {
			got = append(got, plugin.Name)
		}
		if diff := cmp.Diff([]string{gpugang.Name, gpushare.Name, names.DefaultBinder}, got); diff != "" {
			t.Errorf("bind plugins (-want +got):\n%s", diff)
		}
	})
	t.Run("GPUShare has all its extension points", func(t *testing.T) {
		for point, set := range map[string]schedulerconfig.PluginSet{
			"preFilter": plugins.PreFilter, "filter": plugins.Filter, "preScore": plugins.PreScore,
			"score": plugins.Score, "reserve": plugins.Reserve, "bind": plugins.Bind,
		} {
			if !enables(set, gpushare.Name) {
				t.Errorf("not enabled at %s: %v", point, set.Enabled)
			}
		}
	})
	t.Run("the lease is its own", func(t *testing.T) {
		l := c.LeaderElection
		if !l.LeaderElect || l.ResourceName != "tandem-scheduler" || l.ResourceNamespace != systemNamespace {
			t.Errorf("lease %s/%s, elected %v", l.ResourceNamespace, l.ResourceName, l.LeaderElect)
		}
	})
	t.Run("arguments", func(t *testing.T) {
		fit := arguments[*schedulerconfig.NodeResourcesFitArgs](t, c, names.NodeResourcesFit)
		ignored := []string{v1alpha1.ResourceVGPU, v1alpha1.ResourceMemory}
		if diff := cmp.Diff(ignored, fit.IgnoredResources); diff != "" {
			t.Errorf("ignoredResources (-want +got):\n%s", diff)
		}
		share := &configv1.GPUShareArgs{}
		configv1.SetDefaults_GPUShareArgs(share)
		wantDefaults(t, share, arguments[*config.GPUShareArgs](t, c, gpushare.Name))
		gang := &configv1.GPUGangArgs{}
		configv1.SetDefaults_GPUGangArgs(gang)
		wantDefaults(t, gang, arguments[*config.GPUGangArgs](t, c, gpugang.Name))
		preempt := &configv1.GPUPreemptArgs{}
		configv1.SetDefaults_GPUPreemptArgs(preempt)
		wantDefaults(t, preempt, arguments[*config.GPUPreemptArgs](t, c, gpupreempt.Name))
	})
}

// wantDefaults compares arguments with the defaults in their versioned form.
func wantDefaults[T any, P interface {
	*T
	runtime.Object
}](t *testing.T, defaults runtime.Object, got P) {
	t.Helper()
	want := P(new(T))
	must.OK(t, scheme.Scheme.Convert(defaults, want, nil))
	if !cmp.Equal(want, got) {
		t.Errorf("%T differ from the defaults (-want +got):\n%s", got, cmp.Diff(want, got))
	}
}

// order returns the plugins of a set that are among the given ones, in the order of the set.
func order(set schedulerconfig.PluginSet, among ...string) []string {
	var found []string
	for _, plugin := range set.Enabled {
		if slices.Contains(among, plugin.Name) {
			found = append(found, plugin.Name)
		}
	}
	return found
}

func enables(set schedulerconfig.PluginSet, name string) bool {
	for _, plugin := range set.Enabled {
		if plugin.Name == name {
			return true
		}
	}
	return false
}

// arguments returns the arguments of a plugin in the only profile.
func arguments[T any](t *testing.T, c schedulerconfig.KubeSchedulerConfiguration, plugin string) T {
	t.Helper()
	for _, entry := range c.Profiles[0].PluginConfig {
		if args, ok := entry.Args.(T); ok && entry.Name == plugin {
			return args
		}
	}
	t.Fatalf("the profile has no arguments of %s", plugin)
	panic("unreachable")
}

// The rights of the account suffice for the whole way: it takes its lease, reads all that its plugins watch, binds and
// tells so in an event.
func TestSchedulerWorksUnderItsAccount(t *testing.T) {
	createOwnGPUNode(t, device("GPU-1"))
	startScheduler(t)
	c := client(t.Context(), t, jane)
	plain := edit(func(s *corev1.PodSpec) { s.Containers = []corev1.Container{container("main", "cpu", "1")} })
	for name, p := range map[string]*corev1.Pod{"pod with vGPUs": pod("shared"), "pod without": plain} {
		t.Run(name, func(t *testing.T) {
			p := create(t.Context(), t, c, p)
			bound := awaitBound(t, p)
			raw, assigned := bound.Annotations[v1alpha1.AnnotationAssignment]
			if want := name == "pod with vGPUs"; assigned != want {
				t.Fatalf("the pod's assignment is %q", raw)
			}
			if !assigned {
				return
			}
			var a v1alpha1.Assignment
			must.OK(t, json.Unmarshal([]byte(raw), &a))
			if a.UID != string(bound.UID) || a.Node != "n1" || len(a.Containers) != 1 || a.Containers[0].Slots != 3 {
				t.Errorf("the assignment is %+v", a)
			}
		})
	}
}

func createOwnGPUNode(t *testing.T, devices ...v1alpha1.GPUDevice) {
	t.Helper()
	stored := createGPUNode(t, "n1")
	node := gpuNode("n1", devices...)
	node.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Now(),
	}}
	stored.Object["status"] = unstruct(t, node).Object["status"]
	if _, err := gpuNodes(t, as(t.Context(), t, agent)).UpdateStatus(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// startScheduler runs the scheduler in a process of its own until the test ends.
func startScheduler(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, os.Args[0], schedulerFlags(t)...)
	cmd.Env = append(os.Environ(), asScheduler+"=1")
	log, err := os.Create(filepath.Join(t.TempDir(), "scheduler.log"))
	must.OK(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // ends by the signal of cancel
		if t.Failed() {
			raw, _ := os.ReadFile(log.Name())
			t.Logf("the scheduler's log:\n%s", raw)
		}
	})
}

// awaitBound waits until the pod is bound and its event says so.
func awaitBound(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	c := client(t.Context(), t, admin)
	var bound *corev1.Pod
	var seen []string
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		bound = get(ctx, t, p)
		events, err := c.CoreV1().Events(team).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + p.Name})
		if err != nil {
			return false, err
		}
		seen = nil
		told := false
		for _, event := range events.Items {
			seen = append(seen, event.Reason+": "+event.Message)
			told = told || event.Reason == "Scheduled"
		}
		return bound.Spec.NodeName != "" && told, nil
	})
	if err != nil {
		t.Fatalf("wait until pod %s is bound and told so: %v; node %q, events %q", p.Name, err, bound.Spec.NodeName, seen)
	}
	return bound
}
