package command

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/tandem-gpu/tandem/internal/kubectl/proposal"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/outlook"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// mostFactor bounds --rate-factor.
const mostFactor = 1000

// fleetSimulated is the answer of simulate fleet for programs.
type fleetSimulated struct {
	Fleet *proposal.FleetSizes `json:"fleet"`
	*simulated
}

func (o *options) simulateFleetCommand() *cobra.Command {
	s, factor := &simulation{options: o}, 0.0
	c := &cobra.Command{
		Use:   "fleet NAME",
		Short: "Simulates an inference fleet at another rate: its sizes, the GPUs for them, and which pods would leave",
		Long: `Simulates an inference fleet at another rate. Nothing changes in the cluster.

The answer begins with the sizes that the fleet would come to rest at, by what its controller has learned of its replicas. Then the snapshot is
played with the replicas that would be added: whether they get GPUs, and which pods the scheduler would preempt for them. Needed are the
rights to get the fleet, the scale targets of variants that would grow, and their PriorityClass.`,
		Example: `  kubectl tandem simulate fleet bert --rate-factor 2`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.checkFlags(); err != nil {
				return err
			}
			if !(factor > 0 && factor <= mostFactor) {
				return usage("--rate-factor: %v, legal is more than 0, up to %d", factor, mostFactor)
			}
			config, err := o.kubeconfigs().ClientConfig()
			if err != nil {
				return fmt.Errorf("read kubeconfig: %w", err)
			}
			client, err := dynamic.NewForConfig(config)
			if err != nil {
				return fmt.Errorf("ask the API server: %w", err)
			}
			line := o.line()
			defer line.Close()
			snap, _, err := o.read(c.Context(), line)
			if err != nil {
				return err
			}
			line.Step("playing the cluster on")
			sizes, pods, err := fleetAt(c.Context(), client, o.namespace(), args[0], factor)
			if err != nil {
				return err
			}
			answer, err := s.withPods(snap, pods, line.Part)
			line.Close()
			if err != nil {
				return err
			}
			return s.writeFleet(snap, &fleetSimulated{sizes, answer})
		},
	}
	s.as.addTo(c)
	f := c.Flags()
	f.Float64Var(&factor, "rate-factor", 2, "`number` of times the present rate")
	f.DurationVar(&s.length, "for", time.Hour, "`time` to play, as 30m or 8h")
	f.StringVar(&s.present, "present", "", "`file` with the KubeSchedulerConfiguration of the scheduler, which a snapshot does not have; without it the defaults")
	f.IntVar(&s.limit, "limit", 16, "show so many GPUs at most in each map; 0 shows all")
	return c
}

// fleetAt returns the sizes of a fleet at a rate, and the pods that it would add, as a file of them.
func fleetAt(ctx context.Context, client dynamic.Interface, namespace, name string, factor float64) (*proposal.FleetSizes, []byte, error) {
	object, err := client.Resource(v1alpha1.GroupVersion.WithResource("inferencefleets")).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("read fleet %s/%s: %w", namespace, name, err)
	}
	var fleet v1alpha1.InferenceFleet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &fleet); err != nil {
		return nil, nil, fmt.Errorf("read fleet %s/%s: %w", namespace, name, err)
	}
	sizes, err := proposal.Fleet(&fleet, factor)
	if err != nil {
		return nil, nil, err
	}
	var file []byte
	for i, v := range sizes.Variants {
		if v.Would <= v.Now {
			continue
		}
		pod, err := replicaOf(ctx, client, namespace, &fleet.Spec.Variants[i].ScaleTargetRef)
		if err != nil {
			return nil, nil, fmt.Errorf("variant %s: %w", v.Name, err)
		}
		for n := v.Now; n < v.Would; n++ {
			pod.Name = fmt.Sprintf("%s-%s-%d", name, v.Name, n)
			raw, err := json.Marshal(pod)
			if err != nil {
				return nil, nil, err
			}
			file = append(append(file, "---\n"...), append(raw, '\n')...)
		}
	}
	return sizes, file, nil
}

// replicaOf returns a pod as a scale target makes it, with the priority of its PriorityClass.
func replicaOf(ctx context.Context, client dynamic.Interface, namespace string, ref *v1alpha1.FleetScaleTarget) (*v1.Pod, error) {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, err
	}
	resource := version.WithResource(strings.ToLower(ref.Kind) + "s") // as Deployments and StatefulSets
	object, err := client.Resource(resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read %s %s, whose pod template says what a replica asks for: %w", ref.Kind, ref.Name, err)
	}
	raw, _, err := unstructured.NestedMap(object.Object, "spec", "template")
	if err != nil {
		return nil, fmt.Errorf("read the pod template of %s %s: %w", ref.Kind, ref.Name, err)
	}
	var template v1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &template); err != nil {
		return nil, fmt.Errorf("read the pod template of %s %s: %w", ref.Kind, ref.Name, err)
	}
	pod := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace = namespace
	if class := pod.Spec.PriorityClassName; class != "" && pod.Spec.Priority == nil {
		object, err := client.Resource(schedulingv1.SchemeGroupVersion.WithResource("priorityclasses")).Get(ctx, class, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read PriorityClass %s: %w", class, err)
		}
		value, _, _ := unstructured.NestedInt64(object.Object, "value") // required by the API server
		priority := int32(value)
		pod.Spec.Priority = &priority
	}
	return pod, nil
}

// withPods plays the snapshot with the pods of a file in addition, if there are some.
func (s *simulation) withPods(snap *snapshot.Snapshot, file []byte, progress func(done, of int)) (*simulated, error) {
	present, notes, err := rulesOf("--present", s.present)
	if err != nil {
		return nil, err
	}
	change := &outlook.Change{Progress: progress}
	if len(file) > 0 {
		added, err := proposal.Pods(file, s.namespace(), snap.At)
		if err != nil {
			return nil, fmt.Errorf("add replicas: %w", err)
		}
		change.Pods, change.Gangs, notes = added.Pods, added.Gangs, append(notes, added.Notes...)
	}
	out := &simulated{Notes: append([]string{}, notes...)}
	out.Answer, err = outlook.Compare(snap, *present, change, s.length)
	return out, err
}

// writeFleet writes the sizes, then what would come of the replicas that are added.
func (s *simulation) writeFleet(snap *snapshot.Snapshot, a *fleetSimulated) error {
	if s.as.forPrograms() {
		return s.as.write(s.streams.Out, a)
	}
	if _, err := fmt.Fprintln(s.streams.Out, sizesText(a.Fleet)); err != nil {
		return err
	}
	if a.Changed == nil {
		return nil
	}
	return s.write(snap, a.simulated)
}

// sizesText says which sizes a fleet would have.
func sizesText(f *proposal.FleetSizes) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Fleet %s/%s is sized for %.4g requests a second. For %.4g it would have:\n", f.Namespace, f.Name, f.Demand, f.Asked)
	for _, v := range f.Variants {
		fmt.Fprintf(&b, "  %s: %d replicas, now %d\n", v.Name, v.Would, v.Now)
	}
	if f.Capacity < f.Asked {
		fmt.Fprintf(&b, "They would serve %.4g: maxReplicas allows no more, or the capacity of a variant is unknown.\n", f.Capacity)
	}
	return b.String()
}
