package podlist

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// family is the resources by which one device plugin gives GPUs or parts of them. Only the count is there in each.
type family struct {
	count v1.ResourceName
	// cores is the percent of the compute of each GPU, memory its MiB, and portion the percent of its memory.
	cores, memory, portion v1.ResourceName
}

// families are those whose makers document them: NVIDIA's plugin and HAMi, Volcano's vGPU, AMD's, Intel's.
var families = []family{
	{"nvidia.com/gpu", "nvidia.com/gpucores", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"},
	{"volcano.sh/vgpu-number", "volcano.sh/vgpu-cores", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-memory-percentage"},
	{count: "amd.com/gpu"},
	{count: "gpu.intel.com/i915"},
	{count: "gpu.intel.com/xe"},
}

// instance is a MIG instance: sevenths of a GPU's compute, and GiB of its memory.
var instance = regexp.MustCompile(`^nvidia\.com/mig-([1-7])g\.([0-9]{1,3})gb`)

// Annotations of KAI and Run:ai: the part of a GPU, or the MiB of its memory, that the one container with a GPU has.
const (
	fraction       = "gpu-fraction"
	fractionMemory = "gpu-memory"
)

// modelLabels are labels of nodes by which node selectors name a model: those of GPU feature discovery, GKE and Karpenter.
var modelLabels = []string{"nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name"}

// held is what a pod holds of GPUs.
type held struct {
	milli  int64 // thousandths of a GPU
	memory int64 // bytes over all GPUs; 0 for memory in proportion
	models []string
	notes  []string
	// other is a resource of another maker's that is not counted, "" for none.
	other v1.ResourceName
}

// gpusOf returns what a pod holds of GPUs at most at one time: init containers run one after the other, sidecars beside all that follow.
// slots are those of each device of Tandem.
func gpusOf(pod *v1.Pod, slots int64) (held, error) {
	var h held
	r, err := kube.Request(pod)
	if err != nil {
		return h, err
	}
	for _, v := range r.Variants {
		h.models = append(h.models, v.Model)
	}
	own := map[string]vgpu.ContainerRequest{}
	for _, c := range r.Containers {
		own[c.Name] = c
	}
	var peak vgpu.Peak
	for i := range pod.Spec.InitContainers {
		kind, c := vgpu.Init, &pod.Spec.InitContainers[i]
		if p := c.RestartPolicy; p != nil && *p == v1.ContainerRestartPolicyAlways {
			kind = vgpu.Sidecar
		}
		if err := h.add(&peak, kind, c, own[c.Name], slots); err != nil {
			return h, err
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if err := h.add(&peak, vgpu.App, c, own[c.Name], slots); err != nil {
			return h, err
		}
	}
	use := peak.Use()
	h.milli, h.memory = int64(use.Slots), int64(use.Memory)
	if err := h.fraction(pod); err != nil {
		return h, err
	}
	if rest := h.milli % 1000; h.milli > 1000 && rest != 0 {
		h.milli += 1000 - rest
		h.notes = append(h.notes, "whole GPUs and a part of another one count as one whole GPU more")
	}
	if len(h.models) == 0 && h.milli > 0 {
		for _, label := range modelLabels {
			if model := pod.Spec.NodeSelector[label]; model != "" {
				h.models = []string{model}
				break
			}
		}
	}
	return h, nil
}

// thousandths returns slots in thousandths of a GPU.
func thousandths(n, slots int64) vgpu.Slots {
	return vgpu.Slots(n/slots*1000 + max(n%slots*1000/slots, min(n%slots, 1)))
}

// add adds what a container asks for: of vGPUs, and of GPUs by other device plugins.
func (h *held) add(peak *vgpu.Peak, kind vgpu.ContainerKind, c *v1.Container, own vgpu.ContainerRequest, slots int64) error {
	limits := c.Resources.Limits
	total := vgpu.Use{Slots: thousandths(int64(own.Slots), slots), Memory: own.Memory}
	for _, f := range families {
		count, err := whole(limits, f.count, kube.MaxDevices)
		if err != nil || count == 0 {
			if err != nil {
				return err
			}
			continue
		}
		u, note, err := f.use(limits, count, int64(thousandths(1, slots)))
		if err != nil {
			return err
		}
		if note != "" {
			h.notes = append(h.notes, note)
		}
		total = total.Plus(u)
	}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		m := instance.FindStringSubmatch(string(name))
		if m == nil {
			if q := limits[name]; isForeign(name) && !q.IsZero() {
				h.other = name
			}
			continue
		}
		count, err := whole(limits, name, kube.MaxDevices*7)
		if err != nil {
			return err
		}
		sevenths, _ := strconv.ParseInt(m[1], 10, 64)
		gib, _ := strconv.ParseInt(m[2], 10, 64)
		total = total.Plus(vgpu.Use{Slots: vgpu.Slots(count * (1000 * sevenths / 7)), Memory: vgpu.Bytes(count*gib) << 30})
		h.notes = append(h.notes, "MIG instances count as sevenths of a GPU, wherever these fit")
	}
	peak.Add(kind, total)
	return nil
}

// use returns what so many GPUs of a family are, in thousandths. least is what a container has that asks for memory alone.
func (f *family) use(limits v1.ResourceList, count, least int64) (u vgpu.Use, note string, err error) {
	cores, err := whole(limits, f.cores, 100)
	if err != nil {
		return u, "", err
	}
	memory, err := whole(limits, f.memory, kube.MaxMemory>>20)
	if err != nil {
		return u, "", err
	}
	portion, err := whole(limits, f.portion, 100)
	if err != nil {
		return u, "", err
	}
	each := 10 * max(cores, portion)
	switch {
	case each == 0 && memory == 0:
		each = 1000
	case each == 0:
		each, note = least, fmt.Sprintf("%s without %s counts as one slot of a GPU, %d thousandths", f.memory, f.cores, least)
	}
	if count > 1 && each < 1000 {
		note = "parts of several GPUs count as their sum on one"
	}
	return vgpu.Use{Slots: vgpu.Slots(count * each), Memory: vgpu.Bytes(count * memory << 20)}, note, nil
}

// fraction reads the annotations of KAI and Run:ai.
func (h *held) fraction(pod *v1.Pod) error {
	if h.milli > 0 {
		return nil
	}
	if raw := pod.Annotations[fraction]; raw != "" {
		part, err := strconv.ParseFloat(raw, 64)
		if err != nil || !(part > 0 && part <= 1) {
			return fmt.Errorf("%s: %q, legal is above 0 and at most 1", kube.AnnotationPath(fraction), kube.Shown(raw))
		}
		h.milli = max(1, int64(part*1000+0.5))
	} else if pod.Annotations[fractionMemory] != "" {
		return fmt.Errorf("%s: MiB alone do not say which part of a GPU it is", kube.AnnotationPath(fractionMemory))
	}
	return nil
}

// whole reads an amount of a resource; 0 where it is absent.
func whole(limits v1.ResourceList, name v1.ResourceName, most int64) (int64, error) {
	q, ok := limits[name]
	if !ok || q.IsZero() {
		return 0, nil
	}
	n, ok := kube.Whole(q, most)
	if !ok {
		return 0, fmt.Errorf("%s: %s, legal is a whole number from 1 to %d", name, kube.ShownQuantity(q), most)
	}
	return n, nil
}

// isForeign reports whether a resource is one of a device plugin that this package does not know.
func isForeign(name v1.ResourceName) bool {
	domain, _, extended := strings.Cut(string(name), "/")
	if !extended || domain == "kubernetes.io" || domain == v1alpha1.Domain {
		return false
	}
	return !slices.ContainsFunc(families, func(f family) bool {
		return name == f.count || name == f.cores || name == f.memory || name == f.portion
	})
}
