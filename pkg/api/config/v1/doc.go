// Package v1 holds the arguments of Tandem's scheduler plugins as users write them in a KubeSchedulerConfiguration.
//
// An absent field takes its default, an unknown field fails the start of the scheduler with its path. The parent package has
// the legal values.
//
// +k8s:deepcopy-gen=package
// +k8s:conversion-gen=github.com/tandem-gpu/tandem/pkg/api/config
// +k8s:defaulter-gen=TypeMeta
// +groupName=kubescheduler.config.k8s.io
package v1
