// Package membership reads which gang a pod is a member of, and what pods and PodGroups declare about a gang.
//
// The package reads the label, the annotations and the PodGroups of both APIs, and it orders the members of a gang by
// the labels that controllers set. Package podgroup decides which declaration counts if there are several, and package
// gang where the members go. A user's mistake comes back as a FieldError of package kube.
package membership
