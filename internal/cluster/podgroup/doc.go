// Package podgroup reads from the API which pods form a gang, how many of them must run and how close together.
//
// A gang comes from one of three sources. These are the PodGroup of Kubernetes (scheduling.k8s.io, spec.schedulingGroup
// of the pod), the PodGroup of the scheduler plugins (scheduling.x-k8s.io, a label of the pod), or a label and an
// annotation of the pods alone. At start the package finds out which of the APIs the API server has, and in which
// version. It leaves out the members of an elastic gang that its ElasticTarget holds back.
//
// The package does not decide where a gang goes, and writes nothing.
package podgroup
