// Package profiles keeps what WorkloadProfiles declare, for controllers that look at them in each pass.
package profiles

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Profiles are the WorkloadProfiles that users named. The zero value has none.
type Profiles struct {
	byName map[string]readProfile // by "namespace/name"
}

// readProfile is a profile and the version of the object that it was read from.
type readProfile struct {
	version  string
	workload *workloads.Workload
}

// Read reads the WorkloadProfiles that have changed.
func (p *Profiles) Read(ctx context.Context, from client.Reader) error {
	var list v1alpha1.WorkloadProfileList
	if err := from.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list WorkloadProfiles: %w", err)
	}
	p.Set(list.Items)
	return nil
}

// Set sets all WorkloadProfiles that there are, without what was learned: the scheduler goes by declarations alone too.
func (p *Profiles) Set(all []v1alpha1.WorkloadProfile) {
	byName := make(map[string]readProfile, len(all))
	for i := range all {
		o := &all[i]
		if o.Labels[v1alpha1.LabelLearned] == "true" {
			continue // it declares nothing
		}
		key := o.Namespace + "/" + o.Name
		if before, known := p.byName[key]; known && before.version == o.ResourceVersion {
			byName[key] = before
		} else {
			byName[key] = readProfile{o.ResourceVersion, workloads.ReadProfile(o).With(nil)}
		}
	}
	p.byName = byName
}

// Of returns the profile that a pod names, nil for none.
func (p *Profiles) Of(pod *v1.Pod) *workloads.Workload {
	name := pod.Labels[v1alpha1.LabelProfile]
	if name == "" {
		return nil
	}
	return p.byName[pod.Namespace+"/"+name].workload
}
