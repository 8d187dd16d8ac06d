// Package config holds the arguments of Tandem's scheduler plugins as the scheduler sees them in memory.
//
// A KubeSchedulerConfiguration carries them as pluginConfig entries, in the versioned form of package v1; the scheduler
// decodes them strictly, sets the defaults and converts them to the types here. Package scheme does the registration:
// import it blank wherever such a configuration is decoded.
//
// The package says which values are legal and decides nothing else.
//
// +k8s:deepcopy-gen=package
// +groupName=kubescheduler.config.k8s.io
package config
