// Package kube translates between objects of the Kubernetes API and the model of package vgpu.
//
// It is the only parser of Tandem's annotations and of quantities: pods become requests, GPUNodes become devices, and
// assignments travel as JSON in an annotation. Whatever a user can get wrong comes back as a FieldError that names the
// field, the value and the legal values.
//
// Every function is pure: no client, no clock, no log. The package decides nothing about where a pod goes.
package kube
