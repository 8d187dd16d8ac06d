package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tandem-gpu/tandem/test/must"
)

// Versions of scheduling.k8s.io, as paths and as the apiVersion of objects.
const (
	betaPath   = "/apis/scheduling.k8s.io/v1beta1"
	stablePath = "/apis/scheduling.k8s.io/v1"
)

// stableProxy stands before an API server of Kubernetes 1.37 and shows its PodGroups of scheduling.k8s.io/v1beta1 as those of v1,
// as 1.38 is expected to serve them: in discovery, lists, watches and single objects. v1beta1 is not there.
type stableProxy struct {
	*httptest.Server
	upstream  *url.URL
	transport http.RoundTripper
	// both: v1beta1 is there too, as it is.
	both atomic.Bool
	// groups counts the lists and watches of PodGroups in v1.
	groups atomic.Int64
}

func newStableProxy(t *testing.T, config *rest.Config) *stableProxy {
	t.Helper()
	anonymous := rest.AnonymousClientConfig(config) // each client shows its own token
	transport, err := rest.TransportFor(anonymous)
	must.OK(t, err)
	upstream, err := url.Parse(config.Host)
	must.OK(t, err)
	p := &stableProxy{upstream: upstream, transport: transport}
	forward := &httputil.ReverseProxy{Rewrite: p.rewrite, Transport: transport, ModifyResponse: p.modify, FlushInterval: -1}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.both.Load() && (r.URL.Path == betaPath || strings.HasPrefix(r.URL.Path, betaPath+"/")) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { closeServer(p.Server) })
	return p
}

// closeServer closes a server whose clients may still run: one that watches comes back at once after its connection is closed, and
// Close by itself would wait for it for ever.
func closeServer(server *httptest.Server) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		server.Close()
	}()
	for {
		server.CloseClientConnections()
		select {
		case <-closed:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// ofGroups reports whether a path is one of PodGroups in v1.
func ofGroups(path string) bool {
	return strings.HasPrefix(path, stablePath+"/") && strings.Contains(path, "/podgroups")
}

// rewrite sends a request on, those for PodGroups to v1beta1 and with answers in JSON.
func (p *stableProxy) rewrite(r *httputil.ProxyRequest) {
	r.SetURL(p.upstream)
	path := r.In.URL.Path
	if !ofGroups(path) && path != stablePath {
		return
	}
	r.Out.Header.Set("Accept", "application/json")
	r.Out.Header.Del("Accept-Encoding")
	if ofGroups(path) {
		p.groups.Add(1)
		r.Out.URL.Path = betaPath + strings.TrimPrefix(path, stablePath)
	}
}

// modify shows what an answer says of v1beta1 as v1.
func (p *stableProxy) modify(r *http.Response) error {
	path := r.Request.URL.Path
	switch {
	case path == stablePath && r.StatusCode == http.StatusOK:
		return p.addGroups(r)
	case !strings.HasPrefix(path, betaPath+"/") || p.both.Load():
		return nil
	}
	r.Header.Del("Content-Length")
	r.ContentLength = -1
	r.Body = &lines{Closer: r.Body, from: bufio.NewReader(r.Body)}
	return nil
}

// addGroups adds to the resources of v1 those of PodGroup that v1beta1 has.
func (p *stableProxy) addGroups(r *http.Response) error {
	request := r.Request.Clone(r.Request.Context())
	request.URL.Path = betaPath
	answer, err := p.transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	type list map[string]any
	var stable, beta list
	if err := json.NewDecoder(r.Body).Decode(&stable); err != nil {
		return err
	}
	if err := json.NewDecoder(answer.Body).Decode(&beta); err != nil {
		return err
	}
	r.Body.Close()
	resources, _ := stable["resources"].([]any)
	for _, resource := range beta["resources"].([]any) {
		if name, _ := resource.(map[string]any)["name"].(string); strings.HasPrefix(name, "podgroups") {
			resources = append(resources, resource)
		}
	}
	stable["resources"] = resources
	raw, err := json.Marshal(stable)
	if err != nil {
		return err
	}
	r.Header.Del("Content-Length")
	r.ContentLength, r.Body = int64(len(raw)), io.NopCloser(bytes.NewReader(raw))
	return nil
}

// parentAnnotation is the annotation that the proxy shows as spec.parentCompositePodGroupName of a PodGroup.
const parentAnnotation = "example.com/parent"

// parents finds the annotation, and the spec that follows the metadata.
var parents = regexp.MustCompile(`("` + parentAnnotation + `":"([a-z]+)".*?"spec":\{)`)

// lines is an answer of which each line is shown in v1: an object, a list or an event of a watch.
type lines struct {
	io.Closer
	from *bufio.Reader
	rest []byte
}

func (l *lines) Read(to []byte) (int, error) {
	for len(l.rest) == 0 {
		line, err := l.from.ReadBytes('\n')
		line = bytes.ReplaceAll(line, []byte("scheduling.k8s.io/v1beta1"), []byte("scheduling.k8s.io/v1"))
		l.rest = parents.ReplaceAll(line, []byte(`$1"parentCompositePodGroupName":"$2",`))
		if err != nil && len(line) == 0 {
			return 0, err
		}
	}
	n := copy(to, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// through returns a copy of a kubeconfig that reaches the cluster by the proxy.
func (p *stableProxy) through(t *testing.T, kubeconfig string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	must.OK(t, err)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthorityData = p.URL, ca
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must.OK(t, clientcmd.WriteToFile(*config, path))
	return path
}
