package v1

import (
	"k8s.io/apimachinery/pkg/runtime"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	inTreev1 "k8s.io/kubernetes/pkg/scheduler/apis/config/v1"
)

// localSchemeBuilder is the scheduler's own: the generated files register conversions with it.
var localSchemeBuilder = &schedulerv1.SchemeBuilder

// AddToScheme adds the versioned types to a scheme, with defaults and conversions, those of the stock scheduler among
// them.
var AddToScheme = inTreev1.AddToScheme

func init() {
	localSchemeBuilder.Register(addKnownTypes, RegisterDefaults)
}

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(schedulerv1.SchemeGroupVersion, &GPUShareArgs{}, &GPUGangArgs{}, &GPUPreemptArgs{})
	return nil
}
