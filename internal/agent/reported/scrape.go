package reported

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/prometheus/common/expfmt"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Results of a scrape, for Options.Scraped.
const (
	ResultSuccess = "success"
	// ResultAddress: the pod's address is none of its own.
	ResultAddress = "address"
	// ResultUnreachable: no answer in time.
	ResultUnreachable = "unreachable"
	// ResultStatus: the status is another than 200; also a redirection, which the client does not follow.
	ResultStatus = "status"
	// ResultContent: the answer is too large, or no Prometheus text.
	ResultContent = "content"
	// ResultMetric: the metric is not there, or nothing that has a rate.
	ResultMetric = "metric"
	// ResultValue: its value is none of a rate.
	ResultValue = "value"
)

// Results returns all results that a scrape can have.
func Results() []string {
	return []string{ResultSuccess, ResultAddress, ResultUnreachable, ResultStatus, ResultContent, ResultMetric, ResultValue}
}

// Reasons for dropped values.
const (
	dropMalformed = "malformed"
	dropNaN       = "nan"
	dropInfinite  = "infinite"
	dropNegative  = "negative"
	dropHuge      = "huge"
)

// Drops returns all reasons for dropping a value.
func Drops() []string { return []string{dropMalformed, dropNaN, dropInfinite, dropNegative, dropHuge} }

const annotation = v1alpha1.AnnotationReportedRate

// perUnit: kube has rates in millionths.
const perUnit = 1e6

const (
	// timeout bounds a scrape from the connection to the last byte.
	timeout = 2 * time.Second
	// maxBody and maxHeader bound an answer, in bytes.
	maxBody   = 1 << 20
	maxHeader = 64 << 10
)

// failure says why a scrape gave no rate: a result, and a word for the dropped value.
type failure struct {
	result, dropped string
	err             error
}

func (f *failure) Error() string { return f.err.Error() }

func failed(result, format string, args ...any) error {
	return &failure{result: result, err: fmt.Errorf(format, args...)}
}

func dropped(word string, value float64) error {
	return &failure{result: ResultValue, dropped: word, err: fmt.Errorf("%v is no rate: it must be from 0 to %g", value, MaxValue)}
}

// newClient returns a client with no additions: it follows no redirection, uses no proxy, keeps no connection and
// unpacks nothing. The client never connects to a second address, whatever a pod answers.
func newClient(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: nil, DialContext: dial, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		},
	}
}

// ask scrapes a pod.
func (r *Reader) ask(ctx context.Context, t task) (*reading, error) {
	address, err := addressOf(t.pod)
	if err != nil {
		return nil, &failure{result: ResultAddress, err: err}
	}
	target := url.URL{Scheme: "http", Host: net.JoinHostPort(address.String(), strconv.Itoa(t.metric.Port)), Path: t.metric.Path}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, failed(ResultAddress, "ask %s: %w", target.Host, err)
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	request.Header.Set("User-Agent", "tandem-agent")
	answer, err := r.client.Do(request)
	if err != nil {
		return nil, failed(ResultUnreachable, "no answer: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	at := r.options.Clock()
	if answer.StatusCode != http.StatusOK {
		return nil, failed(ResultStatus, "%s answers with status %d, must be 200", target.Host, answer.StatusCode)
	}
	if err := checkHeader(answer.Header); err != nil {
		return nil, err
	}
	now, err := parse(answer.Body, t.metric.Name)
	if err != nil {
		return nil, err
	}
	now.at = at
	return now, nil
}

// checkHeader refuses what is no plain Prometheus text. An answer without a type counts as text.
func checkHeader(h http.Header) error {
	if kind := h.Get("Content-Type"); kind != "" && expfmt.ResponseFormat(h) != expfmt.NewFormat(expfmt.TypeTextPlain) {
		return failed(ResultContent, "the content type is %.64q, must be text/plain; version=0.0.4", kind)
	}
	if coding := h.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return failed(ResultContent, "the content is coded as %.64q, must be plain", coding)
	}
	return nil
}

// addressOf returns the pod's own address, as in its status. The node's address is the pod's only where the pod uses
// the node's network. A loopback or link-local address never is: the agent, the node's services and the cloud's
// metadata listen there.
func addressOf(pod *v1.Pod) (netip.Addr, error) {
	ip, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read the address of the pod: %w", err)
	}
	if ip = ip.Unmap(); !ip.IsGlobalUnicast() || ip.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("the address %v is none of a pod", ip)
	}
	if pod.Spec.HostNetwork {
		return ip, nil
	}
	hosts := []string{pod.Status.HostIP}
	for _, h := range pod.Status.HostIPs {
		hosts = append(hosts, h.IP)
	}
	if slices.ContainsFunc(hosts, func(h string) bool { return sameAddress(h, ip) }) {
		return netip.Addr{}, errors.New("the address is the node's, and the pod does not use the node's network")
	}
	return ip, nil
}

func sameAddress(host string, ip netip.Addr) bool {
	h, err := netip.ParseAddr(host)
	return err == nil && h.Unmap() == ip
}
