package sandbox

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// SchedulerConfig reads a KubeSchedulerConfiguration and lets it reach the API server by a kubeconfig, as a scheduler needs that
// runs in no pod. All else stays as it is, the limits of clientConnection too.
func SchedulerConfig(raw []byte, kubeconfig string) (map[string]any, error) {
	config := map[string]any{}
	if err := yaml.Unmarshal(raw, &config); err != nil {
		return nil, fmt.Errorf("read scheduler configuration: %w", err)
	}
	connection, ok := config["clientConnection"].(map[string]any)
	if !ok {
		connection = map[string]any{}
		config["clientConnection"] = connection
	}
	connection["kubeconfig"] = kubeconfig
	return config, nil
}
