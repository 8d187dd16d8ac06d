// Command demo shows Tandem at work on this machine, without GPUs, root or containers.
//
// It starts a real API server with deploy/ applied, and four nodes of two GPU models. A node has the production agent
// over a fake driver, and a stand-in for the kubelet. The production scheduler runs with the configuration of deploy/.
// The demo submits notebooks, training and inference pods and some impossible ones, and draws the owners of all slices.
// It checks the picture against the assignments, the capacity of the devices and the environment of each container.
//
// Then a notebook, an elastic training and an inference fleet live together. The training grows into idle GPUs, gives one to the fleet when
// its load rises and gets it back; the notebook is parked when it is idle, and the training gives it a place when it is woken. Controller and
// activator decide that; Kubernetes' own controllers make the pods. The demo itself stands for Prometheus and for the notebook's Jupyter
// server, and no gateway routes requests by the weights. The controller is built with the tag fastclock: by its clock a minute takes two
// seconds.
//
// The demo exits with 0 only if all agrees. Everything ends and vanishes with it; --keep leaves it up until Ctrl-C.
package main
