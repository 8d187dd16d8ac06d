// Package podgroup reads from the API which pods form a gang, how many of them must run and how close together.
//
// A gang comes from one of three sources: the PodGroup of Kubernetes (scheduling.k8s.io, spec.schedulingGroup of the pod),
// the PodGroup of the scheduler plugins (scheduling.x-k8s.io, a label of the pod), or a label and an annotation of the pods
// alone. Which of the APIs there are, and in which version, is found out at start. It decides nothing about where a gang goes, and writes nothing.
package podgroup
