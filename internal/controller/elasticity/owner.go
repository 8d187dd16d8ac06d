package elasticity

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/controller/sizefield"
)

// verdict says whether the controller may change the size of a gang.
type verdict struct {
	yes bool
	// most is the number of members that the owner makes, 0 where that is unknown.
	most int
	// owner is the object whose fields say how many members there are, nil for gangs that are resized otherwise and where it is
	// unknown. generation is that of the object for which a refusal holds, 0 where it holds for any.
	owner      *sizefield.Owner
	generation int64
	// unread says that a request about the owner failed: the next pass asks again.
	unread bool
	// reason and message are those of the condition Resizable.
	reason, message string
}

// Reasons of the condition Resizable.
const (
	reasonHeldMembers     = "HeldMembers"
	reasonSizeFields      = "SizeFields"
	reasonNoOwner         = sizefield.NoOwner
	reasonUnknownOwner    = sizefield.UnknownOwner
	reasonSeveralOwners   = sizefield.SeveralOwners
	reasonOwnerMissing    = sizefield.OwnerMissing
	reasonOwnerUnread     = "OwnerNotRead"
	reasonFailuresCount   = "EvictionsCountAsFailures"
	reasonOwnSize         = sizefield.OtherOwner
	reasonSizesDoNotFit   = "SizesDoNotFit"
	reasonNotFollowed     = "OwnerDoesNotFollow"
	reasonOtherWriter     = "AnotherWriter"
	reasonWorkerCompleted = "WorkerCompleted"
)

// Annotations of Kueue by which it changes the number of pods of a Job itself.
var kueueSizes = []string{"kueue.x-k8s.io/job-min-parallelism", "kueue.x-k8s.io/elastic-job"}

// resizable says whether evicted members of a gang come back and cost their owner nothing: then the controller may let
// members leave, and hold others back.
func (l *listers) resizable(g *elasticGang) verdict {
	owner := metav1.GetControllerOf(g.all[0])
	for _, pod := range g.all[1:] {
		if o := metav1.GetControllerOf(pod); (o == nil) != (owner == nil) || o != nil && o.UID != owner.UID {
			return verdict{reason: reasonSeveralOwners, message: fmt.Sprintf("pod %s belongs to %s, and pod %s to %s: the size changes only where one Job, StatefulSet or "+
				"ReplicaSet makes all members", g.all[0].Name, ownerName(owner), pod.Name, ownerName(o))}
		}
	}
	if owner == nil {
		return verdict{reason: reasonNoOwner, message: "the members are bare pods: an evicted one would never come back; make them by a Job"}
	}
	switch gk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind(); gk {
	case schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}:
		return l.jobResizable(g, owner)
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "StatefulSet"}:
		return l.statefulSetResizable(g, owner)
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "ReplicaSet"}:
		set, err := l.replicaSets.ReplicaSets(g.Namespace).Get(owner.Name)
		if err != nil {
			return verdict{reason: reasonOwnerMissing, message: "ReplicaSet " + owner.Name + " does not exist, or the controller has not read it yet"}
		}
		if above := metav1.GetControllerOf(set); above != nil {
			return l.unlessScaled(g, above.Kind, above.Name)
		}
		return l.unlessScaled(g, owner.Kind, owner.Name)
	default:
		return verdict{reason: reasonUnknownOwner, message: fmt.Sprintf("the members belong to %s %s, and the controller does not know whether that makes evicted pods anew: "+
			"it resizes gangs of Jobs, StatefulSets and ReplicaSets", gk.String(), owner.Name)}
	}
}

// ownerName names an owner, for people.
func ownerName(owner *metav1.OwnerReference) string {
	if owner == nil {
		return "no object"
	}
	return schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind().String() + " " + owner.Name
}

// jobResizable says whether the pods of a Job can be evicted without a failure of the Job.
func (l *listers) jobResizable(g *elasticGang, owner *metav1.OwnerReference) verdict {
	job, err := l.jobs.Jobs(g.Namespace).Get(owner.Name)
	if err != nil || job.UID != owner.UID {
		return verdict{reason: reasonOwnerMissing, message: "Job " + owner.Name + " does not exist, or the controller has not read it yet"}
	}
	for _, key := range kueueSizes {
		if _, set := job.Annotations[key]; set {
			return verdict{reason: reasonOwnSize, message: fmt.Sprintf("Job %s has the annotation %s: Kueue changes its number of pods; remove the annotation, or %s",
				job.Name, key, annotationName)}
		}
	}
	if !kube.IgnoresDisruption(job) {
		return verdict{reason: reasonFailuresCount, message: fmt.Sprintf("an eviction would count as a failure of Job %s: give it a podFailurePolicy whose first rule is "+
			"{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}", job.Name)}
	}
	most := 0
	if n := job.Spec.Parallelism; n != nil {
		most = int(*n)
	}
	return verdict{yes: true, most: most, reason: reasonHeldMembers, message: fmt.Sprintf("members of Job %s that its target does not need wait, or are evicted", job.Name)}
}

// statefulSetResizable says whether the pods of a StatefulSet can be evicted. The controller of a StatefulSet makes an evicted pod anew;
// the owner of the StatefulSet may do more: LeaderWorkerSet restarts the whole group.
func (l *listers) statefulSetResizable(g *elasticGang, owner *metav1.OwnerReference) verdict {
	set, err := l.statefulSets.StatefulSets(g.Namespace).Get(owner.Name)
	if err != nil || set.UID != owner.UID {
		return verdict{reason: reasonOwnerMissing, message: "StatefulSet " + owner.Name + " does not exist, or the controller has not read it yet"}
	}
	if above := metav1.GetControllerOf(set); above != nil {
		return verdict{reason: reasonUnknownOwner, message: fmt.Sprintf("the members belong to StatefulSet %s of %s, and the controller does not know what that does when a member "+
			"is evicted: it resizes gangs of StatefulSets that no other object owns", owner.Name, ownerName(above))}
	}
	return l.unlessScaled(g, owner.Kind, owner.Name)
}

// unlessScaled says that a gang can be resized unless an autoscaler changes the number of its pods.
func (l *listers) unlessScaled(g *elasticGang, kind, name string) verdict {
	if by := l.autoscaler(g.Namespace, kind, name); by != "" {
		return verdict{reason: reasonOwnSize, message: by}
	}
	return verdict{yes: true, reason: reasonHeldMembers, message: fmt.Sprintf("members of %s %s that its target does not need wait, or are evicted", kind, name)}
}

// autoscaler says which autoscaler changes the number of pods of an object, "" for none.
func (l *listers) autoscaler(namespace, kind, name string) string {
	all, err := l.autoscalers.HorizontalPodAutoscalers(namespace).List(labels.Everything())
	if err != nil {
		all = nil // the store of an informer has no errors
	}
	for _, h := range all {
		if !scales(h, kind, name) {
			continue
		}
		by := "HorizontalPodAutoscaler " + h.Name
		if owner := metav1.GetControllerOf(h); owner != nil { // KEDA makes one for its ScaledObject
			by += " of " + owner.Kind + " " + owner.Name
		}
		return fmt.Sprintf("%s changes the number of pods of %s %s: remove it, or the annotation %s", by, kind, name, annotationName)
	}
	return ""
}

func scales(h *autoscalingv2.HorizontalPodAutoscaler, kind, name string) bool {
	return h.Spec.ScaleTargetRef.Kind == kind && h.Spec.ScaleTargetRef.Name == name
}
