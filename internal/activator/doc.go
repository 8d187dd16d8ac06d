// Package activator keeps the addresses of notebooks, also of parked ones.
//
// It is a reverse proxy that is always in the path: /NAMESPACE/NAME/… goes to the pod of the StatefulSet or Deployment NAME, whose owner lets
// Tandem park it. A request for a parked notebook is held while the activator scales the workload to one and the pod starts; then it is passed on.
// Held requests are bounded in number and time. A request that an open browser tab sends by itself wakes nothing.
//
// The activator keeps no state: it reads what there is of each notebook from the API server, and each of several processes may serve any
// request. It does not decide when a notebook is parked, and does not check who asks: the Jupyter server does.
package activator
