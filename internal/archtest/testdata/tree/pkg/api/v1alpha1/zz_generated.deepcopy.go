package v1alpha1
