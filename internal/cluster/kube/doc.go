// Package kube translates between objects of the Kubernetes API and the model of package vgpu.
//
// It parses the annotations with a pod's devices and rate, and it parses quantities. Pods become requests, GPUNodes
// become devices, and assignments travel as JSON in an annotation. Package membership reads annotations about gangs,
// and package workloads those about profiles. A mistake of a user comes back as a FieldError that names the field, the
// value and the legal values.
//
// Every function is pure: no client, no clock, no log. The package decides nothing about where a pod goes. The agent and
// the scheduler both use it, so it imports no package that decides.
package kube
