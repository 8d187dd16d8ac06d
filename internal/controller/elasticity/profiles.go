package elasticity

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// profiles are the WorkloadProfiles that users named, by "namespace/name".
type profiles struct {
	byName map[string]readProfile
}

// readProfile is a profile and the version of the object that it was read from.
type readProfile struct {
	version  string
	workload *workloads.Workload
}

// read reads the WorkloadProfiles that have changed.
func (p *profiles) read(ctx context.Context, from client.Reader) error {
	var list v1alpha1.WorkloadProfileList
	if err := from.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	byName := make(map[string]readProfile, len(list.Items))
	for i := range list.Items {
		o := &list.Items[i]
		if o.Labels[v1alpha1.LabelLearned] == "true" {
			continue // it declares nothing
		}
		key := o.Namespace + "/" + o.Name
		if before, known := p.byName[key]; known && before.version == o.ResourceVersion {
			byName[key] = before
		} else {
			byName[key] = readProfile{o.ResourceVersion, workloads.ReadProfile(o)}
		}
	}
	p.byName = byName
	return nil
}

// declareCost reports whether the profile that a pod names declares what a change of size costs.
func (p *profiles) declareCost(pod *v1.Pod) bool {
	profile := p.of(pod)
	return profile != nil && profile.Scaling().ResizeTime >= 0
}

// of returns the profile that a pod names, nil for none.
func (p *profiles) of(pod *v1.Pod) *workloads.Workload {
	name := pod.Labels[v1alpha1.LabelProfile]
	if name == "" {
		return nil
	}
	return p.byName[pod.Namespace+"/"+name].workload
}
