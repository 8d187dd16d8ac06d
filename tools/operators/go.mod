// The operators whose objects the controller resizes or whose pods are gangs, Kueue, Karpenter, the Gateway API, Prometheus, and its adapter for autoscalers.
// Tests read their CustomResourceDefinitions, and make test-operators, make test-kueue, make test-autoscaler and make test-gateway build some of
// them, each by its own go.mod. So nothing here is built with the others, and go mod tidy would
// remove these lines.
module github.com/tandem-gpu/tandem/tools/operators

go 1.26.0

require (
	github.com/kubeflow/mpi-operator v0.6.0
	github.com/kubeflow/trainer/v2 v2.0.1
	github.com/kubeflow/training-operator v1.9.3
	github.com/prometheus/prometheus v0.316.0
	github.com/ray-project/kuberay/ray-operator v1.4.2
	sigs.k8s.io/gateway-api v1.6.0
	sigs.k8s.io/jobset v0.10.1
	sigs.k8s.io/karpenter v1.13.0
	sigs.k8s.io/kueue v0.14.0
	sigs.k8s.io/lws v0.7.0
	sigs.k8s.io/prometheus-adapter v0.12.0
)
