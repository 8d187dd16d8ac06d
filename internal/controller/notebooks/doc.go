// Package notebooks parks notebooks in which nothing works.
//
// In each pass it looks at each StatefulSet and Deployment whose owner allows that by annotations: at its size, its pod, the Jupyter server in
// the pod, and the use of the GPU that the agent publishes. Package notebook decides. Then the package warns the owner by an event and by
// annotations of the pod, and scales the workload to zero by a patch that tests the old size.
//
// The package wakes nothing: the activator does. It keeps nothing but how long each notebook has been idle; a new process takes that from
// the annotations of the pod, or from the server where that says less, and gives each owner the whole notice again.
package notebooks
