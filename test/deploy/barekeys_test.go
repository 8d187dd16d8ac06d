package deploy

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tandem-gpu/tandem/test/must"
)

// warned keeps the warnings of answers.
type warned struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader keeps a warning.
func (w *warned) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// take returns the warnings of the policy since the last call.
func (w *warned) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.texts
	w.texts = nil
	return slices.DeleteFunc(all, func(text string) bool { return !strings.Contains(text, "tandem-bare-keys") })
}

// warnedClient returns a client of the administrator, and what it is warned of. The policy is enforced then.
func warnedClient(t *testing.T) (kubernetes.Interface, *warned) {
	t.Helper()
	config, w := rest.CopyConfig(cluster.Admin()), &warned{}
	config.WarningHandler = w
	c := clientFor(t, config)
	canary := pod("canary")
	canary.Labels = map[string]string{"vgpu": "1"}
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		_, err := c.CoreV1().Pods(team).Create(ctx, canary, dryRun)
		return len(w.take()) > 0, err
	})
	must.OK(t, err)
	return c, w
}

const notRead = "]: Tandem does not read this key, but "

// A key without the domain is accepted on a pod with vGPUs, with a warning that names what Tandem reads.
func TestBareKeysAreWarnedOf(t *testing.T) {
	c, w := warnedClient(t)
	for key, want := range map[string]string{
		"max-slowdown": "the annotation tandem-gpu.io/max-slowdown", "min-members": "the annotation tandem-gpu.io/min-members",
		"vgpu-memory": "tandem-gpu.io/vgpu-memory in the resources.limits of a container", "workload-profile": "the label tandem-gpu.io/profile",
		"gang": "", "rate": "", "profile": "", "example.com/max-slowdown": "", "max-slowdwn": "",
	} {
		for _, field := range []string{"annotations", "labels"} {
			for _, vgpus := range []bool{true, false} {
				p := plainPod()
				if vgpus {
					p = pod("bare")
				}
				if field == "labels" {
					p.Labels = map[string]string{key: "1"}
				} else {
					p.Annotations = map[string]string{key: "1"}
				}
				if _, err := c.CoreV1().Pods(team).Create(t.Context(), p, dryRun); err != nil {
					t.Fatal(err)
				}
				switch got := w.take(); {
				case want == "" || !vgpus:
					if len(got) > 0 {
						t.Errorf("%s %s of a pod that asks for vGPUs (%v): warned %q", field, key, vgpus, got)
					}
				case len(got) != 1 || !strings.HasSuffix(got[0], "metadata."+field+"["+key+notRead+want):
					t.Errorf("%s %s: warned %q, want %q", field, key, got, want)
				}
			}
		}
	}
}

// All bare keys are named at once, and those that were there before are not named again.
func TestBareKeysAreReportedOnce(t *testing.T) {
	c, w := warnedClient(t)
	p := pod("bare")
	p.Annotations = map[string]string{"vgpu": "1"}
	p.Labels = map[string]string{"max-slowdown": "1.5", "compute-limit": "50"}
	p = create(t.Context(), t, c, p)
	got := w.take()
	for _, want := range []string{"annotations[vgpu" + notRead, "labels[max-slowdown" + notRead, "labels[compute-limit" + notRead} {
		if len(got) != 1 || !strings.Contains(got[0], "metadata."+want) {
			t.Errorf("warned %q, want %q in it", got, want)
		}
	}
	must.OK(t, patch(types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`)(t.Context(), c, p))
	if got := w.take(); len(got) > 0 {
		t.Errorf("warned %q when another label was added", got)
	}
	must.OK(t, patch(types.MergePatchType, `{"metadata":{"annotations":{"max-latency":"40ms"}}}`)(t.Context(), c, p))
	if got := w.take(); len(got) != 1 || strings.Contains(got[0], "vgpu") {
		t.Errorf("warned %q when a key was added", got)
	}
}

// A user who writes a pod template of a built-in workload is warned, since the pods' own warnings reach a controller.
func TestBareKeysOfTemplatesAreWarnedOf(t *testing.T) {
	c, w := warnedClient(t)
	p := pod("bare")
	p.Labels, p.Annotations = map[string]string{"app": "bare"}, map[string]string{"max-slowdown": "1.5"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec}
	meta, selector := metav1.ObjectMeta{Name: "bare"}, &metav1.LabelSelector{MatchLabels: p.Labels}
	jobTemplate := *template.DeepCopy()
	jobTemplate.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := batchv1.JobSpec{Template: jobTemplate}
	ctx := t.Context()
	for name, make := range map[string]func() error{
		"spec.template.": func() error {
			_, err := c.AppsV1().Deployments(team).Create(ctx, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}, dryRun)
			return err
		},
		"spec.template. of a StatefulSet": func() error {
			_, err := c.AppsV1().StatefulSets(team).Create(ctx, &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template}}, dryRun)
			return err
		},
		"spec.template. of a DaemonSet": func() error {
			_, err := c.AppsV1().DaemonSets(team).Create(ctx, &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}, dryRun)
			return err
		},
		"spec.template. of a Job": func() error {
			_, err := c.BatchV1().Jobs(team).Create(ctx, &batchv1.Job{ObjectMeta: meta, Spec: job}, dryRun)
			return err
		},
		"spec.jobTemplate.spec.template.": func() error {
			_, err := c.BatchV1().CronJobs(team).Create(ctx, &batchv1.CronJob{ObjectMeta: meta,
				Spec: batchv1.CronJobSpec{Schedule: "0 0 * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: job}}}, dryRun)
			return err
		},
	} {
		if err := make(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		at, _, _ := strings.Cut(name, " ")
		want := " " + at + "metadata.annotations[max-slowdown" + notRead + "the annotation tandem-gpu.io/max-slowdown"
		if got := w.take(); len(got) != 1 || !strings.HasSuffix(got[0], want) {
			t.Errorf("%s: warned %q, want %q", name, got, want)
		}
	}
}

// Every key of pods is one that is warned of without its domain, or one that may be somebody else's.
func TestBareKeysAreAllJudged(t *testing.T) {
	judged := []string{"assignment", "checkpoint-time", "gang", "leaving-at", "memory-limit", "notebook-idle-since", "notebook-parks-at", "profile", "progress", "rate"} // somebody else's
	for _, policy := range allPolicies(t) {
		for _, v := range policy.Spec.Variables {
			if policy.Name == "tandem-bare-keys" && slices.Contains([]string{"annotations", "resources"}, v.Name) {
				judged = append(judged, listed(v.Expression)...)
			}
		}
	}
	var declared []string
	for _, names := range declaredKeys(t) {
		declared = append(declared, names...)
	}
	slices.Sort(judged)
	slices.Sort(declared)
	if diff := cmp.Diff(declared, judged); diff != "" {
		t.Errorf("names.go (-), judged (+):\n%s", diff)
	}
}
