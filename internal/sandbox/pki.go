package sandbox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// certLifetime outlasts any session with a kept demo cluster.
const certLifetime = 7 * 24 * time.Hour

// authority is a certificate authority that lives in memory.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// keyPair is a certificate and its private key, PEM-encoded.
type keyPair struct{ cert, key []byte }

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make CA key: %w", err)
	}
	template := certTemplate(pkix.Name{CommonName: "tandem-sandbox-ca"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make CA certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read CA certificate: %w", err)
	}
	return &authority{cert: cert, key: key, pem: encode("CERTIFICATE", der)}, nil
}

// server returns a certificate for the API server on loopback.
func (a *authority) server() (keyPair, error) {
	template := certTemplate(pkix.Name{CommonName: "kube-apiserver"})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), serviceIP()}
	return a.sign(template)
}

// client returns a certificate that Kubernetes reads as the user in the groups.
func (a *authority) client(user string, groups []string) (keyPair, error) {
	template := certTemplate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(template)
}

func (a *authority) sign(template *x509.Certificate) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("make key for %s: %w", template.Subject.CommonName, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("make certificate for %s: %w", template.Subject.CommonName, err)
	}
	keyPEM, err := encodeKey(key)
	return keyPair{cert: encode("CERTIFICATE", der), key: keyPEM}, err
}

func certTemplate(subject pkix.Name) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(fmt.Sprintf("read random number: %v", err))
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(certLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return encode("EC PRIVATE KEY", der), nil
}

// serviceAccountKey returns the key that signs the tokens of service accounts.
func serviceAccountKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make service account key: %w", err)
	}
	return encodeKey(key)
}

func writeSecret(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	return nil
}
