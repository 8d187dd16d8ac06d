package config

import (
	"k8s.io/apimachinery/pkg/runtime"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// AddToScheme adds the internal types to a scheme, those of the stock scheduler among them.
var AddToScheme = schedulerconfig.AddToScheme

// The scheduler decodes the arguments of a plugin only if their kind is registered through its own SchemeBuilder: it
// builds a second scheme from it for defaults and conversion.
func init() {
	schedulerconfig.SchemeBuilder.Register(func(s *runtime.Scheme) error {
		s.AddKnownTypes(schedulerconfig.SchemeGroupVersion, &GPUShareArgs{}, &GPUGangArgs{}, &GPUPreemptArgs{})
		return nil
	})
}
