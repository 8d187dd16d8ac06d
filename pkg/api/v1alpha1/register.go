package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of Tandem's custom resources.
var GroupVersion = schema.GroupVersion{Group: Domain, Version: "v1alpha1"}

// GPUNodes is the resource of GPUNode, for dynamic clients and informers.
var GPUNodes = GroupVersion.WithResource("gpunodes")

// WorkloadProfiles is the resource of WorkloadProfile, for dynamic clients and informers.
var WorkloadProfiles = GroupVersion.WithResource("workloadprofiles")

// ElasticTargets is the resource of ElasticTarget, for dynamic clients and informers.
var ElasticTargets = GroupVersion.WithResource("elastictargets")

// InferenceFleets is the resource of InferenceFleet, for dynamic clients and informers.
var InferenceFleets = GroupVersion.WithResource("inferencefleets")

// SchemeBuilder collects the types of this package.
var SchemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&GPUNode{}, &GPUNodeList{}, &WorkloadProfile{}, &WorkloadProfileList{}, &ElasticTarget{}, &ElasticTargetList{},
		&InferenceFleet{}, &InferenceFleetList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme adds the types of this package to a scheme.
var AddToScheme = SchemeBuilder.AddToScheme
