package connection

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Pod returns a pod as the API server has it, with the caller's rights.
func Pod(ctx context.Context, config *rest.Config, namespace, name string) (*v1.Pod, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("get pod: %w", err)
	}
	return client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}
