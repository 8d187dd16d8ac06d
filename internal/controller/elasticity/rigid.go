package elasticity

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// tellRigid tells the users of pods that state a rate or name servers, and are in no elastic gang, that these have no effect: an event for
// each owner, once. Gangs with a problem are left out: the scheduler says what is wrong with them.
func (p *pass) tellRigid() {
	told := map[types.UID]bool{}
	for _, pod := range p.objects.Pods {
		key := rateKey(pod)
		if key == "" || pod.Spec.SchedulerName != p.scheduler || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			continue
		}
		if ref, member := p.gangs.Of(pod); member {
			if pg, err := p.gangs.Gang(ref); err != nil || pg.Sizes != nil {
				continue
			}
		}
		about := ownerOrPod(pod)
		if !p.rigid[about.UID] && !told[about.UID] {
			p.options.Recorder.Eventf(about, nil, v1.EventTypeWarning, "ElasticRateIgnored", "Decide", "%s", fmt.Sprintf(
				"the annotation %s has no effect: it is for the members of an elastic gang, and the annotation %s is missing; set that one too, or remove this one",
				key, annotationName))
		}
		told[about.UID] = true
	}
	p.rigid = told
}

// rateKey returns the first annotation of a pod that is for elastic gangs with a rate, "" for none.
func rateKey(pod *v1.Pod) string {
	for _, key := range []string{v1alpha1.AnnotationElasticRate, v1alpha1.AnnotationElasticServers} {
		if _, has := pod.Annotations[key]; has {
			return key
		}
	}
	return ""
}
