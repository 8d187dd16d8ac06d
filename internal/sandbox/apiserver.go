package sandbox

import (
	"fmt"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// serviceRange is the API server's range of service addresses; nothing routes it.
const serviceRange = "10.96.0.0/24"

func serviceIP() net.IP { return net.IPv4(10, 96, 0, 1) }

// serviceAccountIssuer names the issuer of service account tokens.
const serviceAccountIssuer = "https://kubernetes.default.svc"

// frontProxy is the user as which the API server sends requests to the servers behind APIServices.
const frontProxy = "front-proxy"

func (c *ControlPlane) pki(name string) string { return filepath.Join(c.dir, "pki", name) }

// makeCertificates makes the authority and writes the files that the API server reads.
func (c *ControlPlane) makeCertificates() error {
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	c.ca = ca
	server, err := ca.server()
	if err != nil {
		return err
	}
	signing, err := serviceAccountKey()
	if err != nil {
		return err
	}
	caKey, err := encodeKey(ca.key)
	if err != nil {
		return err
	}
	proxy, err := ca.client(frontProxy, nil)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"ca.crt": ca.pem, "ca.key": caKey, "apiserver.crt": server.cert, "apiserver.key": server.key, "sa.key": signing,
		"proxy.crt": proxy.cert, "proxy.key": proxy.key,
	}
	for name, content := range files {
		if err := writeSecret(c.pki(name), content); err != nil {
			return err
		}
	}
	return nil
}

func (c *ControlPlane) apiserver(path string, port int, etcdURL string) *exec.Cmd {
	authorization := c.options.Authorization
	if authorization == "" {
		authorization = "AlwaysAllow"
	}
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--endpoint-reconciler-type=none", // loopback is no legal endpoint of the kubernetes service
		"--service-cluster-ip-range=" + serviceRange,
		"--cert-dir=" + filepath.Join(c.dir, "pki"),
		"--tls-cert-file=" + c.pki("apiserver.crt"), "--tls-private-key-file=" + c.pki("apiserver.key"),
		"--client-ca-file=" + c.pki("ca.crt"),
		"--service-account-issuer=" + serviceAccountIssuer,
		"--service-account-key-file=" + c.pki("sa.key"), "--service-account-signing-key-file=" + c.pki("sa.key"),
		"--authorization-mode=" + authorization,
		"--allow-privileged=true",
		"--profiling=false",
	}
	if !c.options.EnableServiceAccountAdmission && !c.options.ControllerManager {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if c.options.Aggregation {
		args = append(args, c.aggregation()...)
	}
	if gates := c.featureGates(); gates != "" {
		args = append(args, "--feature-gates="+gates)
	}
	for _, key := range slices.Sorted(maps.Keys(c.options.RuntimeConfig)) {
		args = append(args, "--runtime-config="+key+"="+c.options.RuntimeConfig[key])
	}
	return exec.Command(path, append(args, c.options.APIServerArgs...)...)
}

// aggregation returns the arguments of the API server for APIServices. Nothing routes the addresses of Services, so it goes to their endpoints.
func (c *ControlPlane) aggregation() []string {
	return []string{
		"--enable-aggregator-routing=true",
		"--proxy-client-cert-file=" + c.pki("proxy.crt"), "--proxy-client-key-file=" + c.pki("proxy.key"),
		"--requestheader-client-ca-file=" + c.pki("ca.crt"), "--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
	}
}

func (c *ControlPlane) featureGates() string {
	gates := make([]string, 0, len(c.options.FeatureGates))
	for _, name := range slices.Sorted(maps.Keys(c.options.FeatureGates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", name, c.options.FeatureGates[name]))
	}
	return strings.Join(gates, ",")
}

func (c *ControlPlane) startControllerManager(path string, port int) error {
	kubeconfig, err := c.Kubeconfig("system:kube-controller-manager", []string{"system:masters"})
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--cert-dir=" + filepath.Join(c.dir, "pki"),
		"--authentication-skip-lookup=true",
		"--leader-elect=false",
		"--root-ca-file=" + c.pki("ca.crt"),
		"--service-account-private-key-file=" + c.pki("sa.key"),
		"--cluster-signing-cert-file=" + c.pki("ca.crt"), "--cluster-signing-key-file=" + c.pki("ca.key"),
		"--use-service-account-credentials=true",
	}
	if gates := c.featureGates(); gates != "" {
		args = append(args, "--feature-gates="+gates)
	}
	_, err = c.processes.Start("kube-controller-manager", exec.Command(path, args...))
	return err
}
