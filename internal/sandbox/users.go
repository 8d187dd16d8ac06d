package sandbox

import (
	"context"
	"fmt"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenLifetime of service account tokens, in seconds: a day.
const tokenLifetime = 24 * 60 * 60

// Admin returns a configuration that may do everything, also under RBAC. Each call returns a copy, without a rate limit
// on the client's side.
func (c *ControlPlane) Admin() *rest.Config { return rest.CopyConfig(c.admin) }

// Config returns a configuration for the user in the groups, by a client certificate and without a rate limit.
func (c *ControlPlane) Config(user string, groups []string) (*rest.Config, error) {
	pair, err := c.ca.client(user, groups)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            c.url,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.pem, CertData: pair.cert, KeyData: pair.key},
		QPS:             -1,
	}, nil
}

// Kubeconfig writes a kubeconfig for the user in the groups and returns its path. A node's agent or kubelet is
// "system:node:<name>" in "system:nodes".
func (c *ControlPlane) Kubeconfig(user string, groups []string) (string, error) {
	config, err := c.Config(user, groups)
	if err != nil {
		return "", err
	}
	return c.writeKubeconfig(clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
	})
}

// ServiceAccount writes a kubeconfig for an existing service account, by a token from TokenRequest that lasts a day,
// and returns its path.
func (c *ControlPlane) ServiceAccount(ctx context.Context, namespace, name string) (string, error) {
	return c.token(ctx, namespace, name, nil)
}

// ServiceAccountOnNode is as ServiceAccount, with the token bound to an existing node, as those are that a kubelet
// projects into the pods of a DaemonSet.
func (c *ControlPlane) ServiceAccountOnNode(ctx context.Context, namespace, name, node string) (string, error) {
	return c.token(ctx, namespace, name, &authenticationv1.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node})
}

func (c *ControlPlane) token(ctx context.Context, namespace, name string, bound *authenticationv1.BoundObjectReference) (string, error) {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return "", fmt.Errorf("request token of %s/%s: %w", namespace, name, err)
	}
	lifetime := int64(tokenLifetime)
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime, BoundObjectRef: bound},
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request token of %s/%s: %w", namespace, name, err)
	}
	return c.writeKubeconfig(clientcmdapi.AuthInfo{Token: token.Status.Token})
}

func (c *ControlPlane) writeKubeconfig(user clientcmdapi.AuthInfo) (string, error) {
	c.mu.Lock()
	c.kubeconfigs++
	path := filepath.Join(c.dir, "kubeconfigs", fmt.Sprintf("%d.yaml", c.kubeconfigs))
	c.mu.Unlock()
	const name = "tandem-sandbox"
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: c.url, CertificateAuthorityData: c.ca.pem}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: &user},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
	if err := clientcmd.WriteToFile(config, path); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return path, nil
}

// noSerializer is for requests whose answers are plain text.
func noSerializer() runtime.NegotiatedSerializer {
	return serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
}
