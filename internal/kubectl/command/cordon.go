package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// longestReason bounds the reason of a cordoned device, as the schema of GPUNodes does.
const longestReason = 256

// cordon is what the commands cordon and uncordon do.
type cordon struct {
	off    bool // whether devices are switched off
	all    bool
	reason string
}

func (o *options) cordonCommand() *cobra.Command {
	w := &cordon{off: true}
	c := &cobra.Command{
		Use:   "cordon NODE GPU...",
		Short: "Switches GPUs of a node off for new pods",
		Long: `Switches GPUs of a node off for new pods. Pods that run there go on. A GPU is named by its index, as in the map (g3 or 3), or by its ID.

It writes spec.cordonedDevices of the GPUNode, for which you need the right to update gpunodes. To switch off the whole node for all
pods, use kubectl cordon.`,
		Example: `  kubectl tandem cordon gpu-7 g3 --reason "fan, ticket 123"
  kubectl tandem cordon gpu-7 --all`,
		RunE: func(c *cobra.Command, args []string) error { return o.cordon(c.Context(), w, args) },
	}
	c.Flags().StringVar(&w.reason, "reason", "", fmt.Sprintf("`text` that says why, at most %d bytes; kubectl get gpunode -o yaml shows it", longestReason))
	c.Flags().BoolVar(&w.all, "all", false, "all GPUs that the node has now")
	return c
}

func (o *options) uncordonCommand() *cobra.Command {
	w := &cordon{}
	c := &cobra.Command{
		Use:     "uncordon NODE GPU...",
		Short:   "Lets GPUs of a node take new pods again",
		Long:    `Lets GPUs of a node take new pods again that kubectl tandem cordon has switched off. A GPU is named by its index, as in the map (g3 or 3), or by its ID.`,
		Example: `  kubectl tandem uncordon gpu-7 g3`,
		RunE:    func(c *cobra.Command, args []string) error { return o.cordon(c.Context(), w, args) },
	}
	c.Flags().BoolVar(&w.all, "all", false, "all GPUs that are switched off")
	return c
}

// cordon changes the list of a node, and tells the outcome.
func (o *options) cordon(ctx context.Context, w *cordon, args []string) error {
	switch {
	case o.check() != nil:
		return o.check()
	case o.file != "":
		return usage("--snapshot: the command changes the cluster and reads no snapshot")
	case len(args) == 0 || w.all && len(args) > 1 || !w.all && len(args) == 1:
		return usage("give a node and its GPUs, such as gpu-7 g3, or a node and --all")
	case len(w.reason) > longestReason:
		return usage("--reason: %d bytes, legal are up to %d", len(w.reason), longestReason)
	}
	config, err := o.kubeconfigs().ClientConfig()
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("ask the API server: %w", err)
	}
	nodes := client.Resource(v1alpha1.GroupVersion.WithResource("gpunodes"))
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return w.change(ctx, nodes, args[0], args[1:], o.streams.Out) })
}

// change reads a GPUNode and writes it with another list.
func (w *cordon) change(ctx context.Context, nodes dynamic.ResourceInterface, name string, gpus []string, out io.Writer) error {
	object, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no GPUNode %s: kubectl get gpunodes lists those that there are", name)
	} else if err != nil {
		return fmt.Errorf("read GPUNode %s: %w", name, err)
	}
	var g v1alpha1.GPUNode
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &g); err != nil {
		return fmt.Errorf("read GPUNode %s: %w", name, err)
	}
	ids, err := w.named(&g, gpus)
	if err != nil {
		return err
	}
	said := w.apply(&g, ids)
	list, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&g.Spec)
	if err != nil {
		return fmt.Errorf("write GPUNode %s: %w", name, err)
	}
	if err := unstructured.SetNestedField(object.Object, list, "spec"); err != nil {
		return fmt.Errorf("write GPUNode %s: %w", name, err)
	}
	if _, err := nodes.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write GPUNode %s: %w", name, err)
	}
	_, err = io.WriteString(out, said)
	return err
}

// named returns the IDs of the devices that the arguments name.
func (w *cordon) named(g *v1alpha1.GPUNode, gpus []string) (ids []string, err error) {
	known := make([]string, 0, len(g.Status.Devices))
	for i := range g.Status.Devices {
		known = append(known, fmt.Sprintf("g%d", g.Status.Devices[i].Index))
	}
	switch {
	case w.all && w.off:
		for i := range g.Status.Devices {
			ids = append(ids, g.Status.Devices[i].ID)
		}
		return ids, nil
	case w.all:
		for _, d := range g.Spec.CordonedDevices {
			ids = append(ids, d.ID)
		}
		return ids, nil
	}
	for _, gpu := range gpus {
		at := slices.IndexFunc(g.Status.Devices, func(d v1alpha1.GPUDevice) bool {
			return d.ID == gpu || fmt.Sprint(d.Index) == strings.TrimPrefix(gpu, "g")
		})
		switch {
		case at >= 0:
			ids = append(ids, g.Status.Devices[at].ID)
		case !w.off && kube.Cordoned(g, gpu): // a device that the node no longer has
			ids = append(ids, gpu)
		default:
			return nil, usage("node %s has no GPU %s, it has %s", g.Name, gpu, strings.Join(known, ", "))
		}
	}
	return ids, nil
}

// apply changes the list, and returns a line for each device.
func (w *cordon) apply(g *v1alpha1.GPUNode, ids []string) string {
	var said strings.Builder
	for _, id := range ids {
		cordoned := kube.Cordoned(g, id)
		g.Spec.CordonedDevices = slices.DeleteFunc(g.Spec.CordonedDevices, func(d v1alpha1.CordonedDevice) bool { return d.ID == id })
		if w.off {
			g.Spec.CordonedDevices = append(g.Spec.CordonedDevices, v1alpha1.CordonedDevice{ID: id, Reason: w.reason})
		}
		fmt.Fprintf(&said, "%s/%s %s\n", g.Name, nameOf(g, id), w.outcome(g, id, cordoned))
	}
	if len(ids) == 0 {
		fmt.Fprintf(&said, "%s: no GPU to change\n", g.Name)
	}
	return said.String()
}

// outcome says what becomes of a device that was cordoned before, or was not.
func (w *cordon) outcome(g *v1alpha1.GPUNode, id string, cordoned bool) string {
	switch {
	case w.off && cordoned:
		return "was cordoned already"
	case !w.off && !cordoned:
		return "was not cordoned"
	case !w.off:
		return "takes new pods again"
	}
	text := "takes no new pods"
	at := slices.IndexFunc(g.Status.Devices, func(d v1alpha1.GPUDevice) bool { return d.ID == id })
	if at < 0 || len(g.Status.Devices[at].Tenants) == 0 {
		return text
	}
	return fmt.Sprintf("%s; pods that run there and go on: %d", text, len(g.Status.Devices[at].Tenants))
}

// nameOf returns the short name of a device, its ID where the node no longer has it.
func nameOf(g *v1alpha1.GPUNode, id string) string {
	for i := range g.Status.Devices {
		if g.Status.Devices[i].ID == id {
			return fmt.Sprintf("g%d", g.Status.Devices[i].Index)
		}
	}
	return id
}
