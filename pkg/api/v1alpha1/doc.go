// Package v1alpha1 holds the names and the API types of Tandem.
//
// It holds no logic: conversion and validation live in internal/cluster/kube, generated code in zz_generated files.
//
// +kubebuilder:object:generate=true
// +groupName=tandem-gpu.io
package v1alpha1
