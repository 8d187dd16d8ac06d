package workloads

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// WorkloadKey says which pods are the same work: those of one namespace with the same label profile, or else with the
// same owner and images. Keys are comparable.
type WorkloadKey struct {
	// Namespace of the pods.
	Namespace string
	// Profile is the label; with a label all fields below are empty.
	Profile string
	// OwnerKind is the kind of the owner with its API group ("Deployment.apps"), "Pod" for pods without owner.
	OwnerKind string
	// OwnerName is the owner's name without what changes from one rollout or run to the next.
	OwnerName string
	// Images of the containers that request vGPUs: each once, sorted, quoted, separated by blanks.
	Images string
}

// runSuffix is what a CronJob adds to the names of its Jobs: minutes since 1970, seconds before Kubernetes 1.21. A date of
// eight digits that a user adds is the same work on another day too.
var runSuffix = regexp.MustCompile(`-([0-9]{8}|[0-9]{10})$`)

// WorkloadOf returns which work a pod is.
func WorkloadOf(pod *v1.Pod) WorkloadKey {
	k := WorkloadKey{Namespace: pod.Namespace, Profile: pod.Labels[v1alpha1.LabelProfile]}
	if k.Profile != "" {
		return k
	}
	k.OwnerKind, k.OwnerName = ownerOf(pod)
	k.Images = joinImages(imagesOf(pod))
	return k
}

// ownerOf returns the kind and the lasting name of what made a pod.
func ownerOf(pod *v1.Pod) (kind, name string) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		if pod.GenerateName != "" {
			return "Pod", strings.TrimRight(pod.GenerateName, "-.")
		}
		return "Pod", pod.Name
	}
	group := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
	switch group {
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "ReplicaSet"}:
		if hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; hash != "" {
			if deployment, ok := strings.CutSuffix(owner.Name, "-"+hash); ok && deployment != "" {
				return "Deployment." + appsv1.GroupName, deployment
			}
		}
	case schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}:
		if cron := runSuffix.ReplaceAllString(owner.Name, ""); cron != "" {
			return group.String(), cron
		}
	}
	return group.String(), owner.Name
}

// imagesOf returns the images of the containers that request vGPUs, each once and sorted.
func imagesOf(pod *v1.Pod) []string {
	var images []string
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if kube.AnyWants(list[i : i+1]) {
				images = append(images, list[i].Image)
			}
		}
	}
	slices.Sort(images)
	return slices.Compact(images)
}

// joinImages writes a list so that no two lists give the same text.
func joinImages(images []string) string {
	quoted := make([]string, len(images))
	for i, image := range images {
		quoted[i] = strconv.Quote(image)
	}
	return strings.Join(quoted, " ")
}

// splitImages undoes joinImages.
func splitImages(joined string) ([]string, error) {
	var images []string
	for rest := joined; rest != ""; rest = strings.TrimPrefix(rest, " ") {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return nil, fmt.Errorf("read images %q: %w", kube.Shown(joined), err)
		}
		image, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("read images %q: %w", kube.Shown(joined), err)
		}
		images, rest = append(images, image), rest[len(quoted):]
	}
	return images, nil
}

// ProfileName returns the name of the WorkloadProfile of a workload in its namespace. The name is the label's value.
// Without a label it is "learned-" with 16 hexadecimal digits of a hash of its owner and images.
func (k WorkloadKey) ProfileName() string {
	if k.Profile != "" {
		return k.Profile
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %s", k.OwnerKind, k.OwnerName, k.Images))
	return "learned-" + hex.EncodeToString(sum[:8])
}

// String writes the key for people: "team/bert" for a profile, else "team/Deployment.apps/bert".
func (k WorkloadKey) String() string {
	if k.Profile != "" {
		return k.Namespace + "/" + k.Profile
	}
	return k.Namespace + "/" + k.OwnerKind + "/" + k.OwnerName
}

// Bounds of status.workload in the schema.
const (
	maxOwnerKind = 320
	maxOwnerName = 253
	maxImages    = 64
	maxImage     = 1024
)

// LearnedProfile returns the WorkloadProfile that the scheduler makes for a workload that names none. The status must
// be written by a second request. The error names the part of the key that no WorkloadProfile can hold: the scheduler
// does not learn such a workload.
func LearnedProfile(k WorkloadKey) (*v1alpha1.WorkloadProfile, error) {
	if k.Profile != "" {
		return nil, fmt.Errorf("make WorkloadProfile of %v: its pods name one", k)
	}
	images, err := splitImages(k.Images)
	if err != nil {
		return nil, fmt.Errorf("make WorkloadProfile of %v: %w", k, err)
	}
	if k.OwnerKind == "" || len(k.OwnerKind) > maxOwnerKind || len(k.OwnerName) > maxOwnerName {
		return nil, fmt.Errorf("make WorkloadProfile of %s: the owner's kind or name is too long or missing", kube.Shown(k.String()))
	}
	if len(images) > maxImages || slices.ContainsFunc(images, func(image string) bool { return len(image) > maxImage }) {
		return nil, fmt.Errorf("make WorkloadProfile of %v: legal are %d images of %d letters", k, maxImages, maxImage)
	}
	return &v1alpha1.WorkloadProfile{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: k.Namespace, Name: k.ProfileName(), Labels: map[string]string{v1alpha1.LabelLearned: "true"},
		},
		Status: v1alpha1.WorkloadProfileStatus{Workload: &v1alpha1.LearnedWorkload{
			OwnerKind: k.OwnerKind, OwnerName: k.OwnerName, Images: images,
		}},
	}, nil
}
