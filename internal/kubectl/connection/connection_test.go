package connection_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tandem-gpu/tandem/internal/kubectl/connection"
	"github.com/tandem-gpu/tandem/test/must"
)

// server is a scheduler that answers with a code, and notes the tokens that it gets.
func server(t *testing.T, code int, body string) (*httptest.Server, *[]string) {
	t.Helper()
	tokens := &[]string{}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*tokens = append(*tokens, r.URL.Path+" "+r.Header.Get("Authorization"))
		if code == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	return s, tokens
}

func at(address string) connection.Options {
	o := connection.Defaults()
	o.Address, o.Insecure = address, true
	return o
}

func ask(t *testing.T, config *rest.Config, o connection.Options) (string, error) {
	t.Helper()
	raw, err := connection.Snapshot(t.Context(), config, o, func(string) {})
	return string(raw), err
}

// Each answer of the scheduler that is no snapshot becomes an error that says what helps.
func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		code       int
		body, want string
		says       []string
	}{
		{http.StatusOK, "the snapshot", "the snapshot", nil},
		{http.StatusUnauthorized, "", "", []string{"does not know the caller"}},
		{http.StatusForbidden, "", "", []string{"no right to /snapshot", "tandem-snapshot-reader"}},
		{http.StatusNotFound, "", "", []string{"does not serve /snapshot"}},
		{http.StatusServiceUnavailable, "ask tandem-b", "", []string{"ask tandem-b"}},
		{http.StatusTeapot, "tea", "", []string{"418", "tea"}},
		{http.StatusFound, "", "", []string{"302"}},
	} {
		s, asked := server(t, test.code, test.body)
		got, err := ask(t, &rest.Config{BearerToken: "secret"}, at(s.URL))
		if got != test.want || (err == nil) != (len(test.says) == 0) {
			t.Errorf("%d: got %q, %v", test.code, got, err)
		}
		for _, want := range test.says {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%d: the error has no %q: %v", test.code, want, err)
			}
		}
		if strings.Join(*asked, ",") != "/snapshot Bearer secret" {
			t.Errorf("%d: the scheduler was asked for %q", test.code, *asked)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// A program that does not answer is named after a while, whether it takes the connection or answers no question.
func TestSilence(t *testing.T) {
	over := make(chan struct{})
	silent := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	o := at(silent.URL)
	o.Patience = time.Millisecond
	if _, err := ask(t, &rest.Config{}, o); err == nil || !strings.Contains(err.Error(), "the scheduler has not answered within 1ms; ") {
		t.Errorf("a silent scheduler: %v", err)
	}
	// The timeout of the kubeconfig's requests counts, and not before a plugin has the credentials.
	o.Patience = 0
	slow := &rest.Config{Timeout: time.Millisecond, WrapTransport: func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond) // longer than the timeout, on any machine: the user types a password
			return next.RoundTrip(r)
		})
	}}
	if _, err := ask(t, slow, o); err == nil || !strings.Contains(err.Error(), "the scheduler has not answered within 1ms; ") {
		t.Errorf("a silent scheduler, and a plugin for credentials: %v", err)
	}
	o.Address, o.Patience = "", time.Millisecond
	const said = "find the scheduler: the API server, asked for the scheduler's pods and lease, has not answered within 1ms"
	api := &rest.Config{Host: silent.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	if _, err := ask(t, api, o); err == nil || !strings.Contains(err.Error(), said) {
		t.Errorf("a silent API server: %v", err)
	}

	// The pods and the lease are answered, and the port is not forwarded.
	forwards := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/portforward"):
			<-over
		case strings.HasSuffix(r.URL.Path, "/pods"):
			_, _ = w.Write([]byte(`{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "one"}, "status": {"phase": "Running"}}]}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`))
		}
	}))
	defer func() { close(over); forwards.Close(); silent.Close() }()
	const kubelet = "the API server, or the kubelet of the pod tandem-system/one to which it forwards a port, has not answered within"
	api.Host = forwards.URL
	for o.Patience = 100 * time.Millisecond; ; o.Patience *= 2 {
		_, err := ask(t, api, o)
		if err != nil && strings.Contains(err.Error(), said[:len(said)-len("1ms")]) {
			continue // a busy machine: the pods came later
		}
		if err == nil || !strings.Contains(err.Error(), kubelet) {
			t.Errorf("a silent kubelet: %v", err)
		}
		break
	}
}

// If nothing listens, the error says first that the scheduler may not run.
func TestNobodyListens(t *testing.T) {
	gone := httptest.NewTLSServer(http.NotFoundHandler())
	gone.Close()
	if _, err := ask(t, &rest.Config{}, at(gone.URL)); err == nil || !strings.Contains(err.Error(), "nothing listens there: the scheduler does not run") {
		t.Errorf("the error is %v", err)
	}
}

// The certificate is verified by --scheduler-ca and the name, never by what the kubeconfig says of the API server.
func TestCertificate(t *testing.T) {
	s, asked := server(t, http.StatusOK, "the snapshot")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must.OK(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	config := &rest.Config{BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("of the API server"), ServerName: "kubernetes"}}
	for _, test := range []struct {
		name, serverName string
		works            bool
	}{{"the name in the certificate", "example.com", true}, {"another name", "tandem.example.org", false}} {
		t.Run(test.name, func(t *testing.T) {
			*asked = nil
			o := connection.Defaults()
			o.Address, o.CAFile, o.ServerName = s.URL, ca, test.serverName
			got, err := ask(t, config, o)
			if (err == nil) != test.works || test.works != (got == "the snapshot") {
				t.Errorf("got %q, %v", got, err)
			}
			if !test.works && len(*asked) > 0 {
				t.Errorf("a scheduler with another certificate got %q", *asked)
			}
		})
	}
}

// The command refuses options that a person may not mean before it sends anything.
func TestRefused(t *testing.T) {
	s, asked := server(t, http.StatusOK, "the snapshot")
	as := &rest.Config{Impersonate: rest.ImpersonationConfig{UserName: "somebody"}}
	if _, err := ask(t, as, at(s.URL)); err == nil || !strings.Contains(err.Error(), "--as") {
		t.Errorf("--as: %v", err)
	}
	for _, address := range []string{"http://127.0.0.1:1", "127.0.0.1", "https://"} {
		if _, err := ask(t, &rest.Config{}, at(address)); err == nil || !strings.Contains(err.Error(), "--scheduler-address") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if len(*asked) > 0 {
		t.Errorf("the scheduler got %q", *asked)
	}
	for name, change := range map[string]func(*connection.Options){
		"--scheduler-insecure":                      func(o *connection.Options) { o.Address = s.URL },
		"exclude each other":                        func(o *connection.Options) { o.Insecure, o.CAFile = true, "ca.pem" },
		"--scheduler-port: 0, legal are 1 to 65535": func(o *connection.Options) { o.Port = 0 },
	} {
		o := connection.Defaults()
		must.OK(t, o.Check())
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want %q, got %v", name, err)
		}
	}
}
