package notebooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/tandem-gpu/tandem/pkg/notebook"
)

const (
	// askWithin bounds the time of one request to a server.
	askWithin = 4 * time.Second
	// mostAnswer bounds an answer, in bytes. A kernel takes some 200.
	mostAnswer = 1 << 20
	// maxToken bounds the token, in bytes. Jupyter's own have 48.
	maxToken = 4096
)

// newHTTP returns the client that asks servers. It follows no redirect, which would take the token elsewhere, and knows no proxy.
func newHTTP() *http.Client {
	return &http.Client{
		Timeout:       askWithin,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: askWithin}).DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: 1 << 16,
		},
	}
}

// legalToken reports whether a text can be a token in a header.
func legalToken(token string) bool {
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return false
		}
	}
	return token != "" && len(token) <= maxToken
}

// kernel and terminal are what Jupyter says of each.
type (
	kernel struct {
		State    string `json:"execution_state"`
		Activity string `json:"last_activity"`
	}
	terminal struct {
		Activity string `json:"last_activity"`
	}
)

// ask asks the server of a notebook for its kernels and terminals.
func (c *Controller) ask(ctx context.Context, v *visit, token string, into *notebook.Server) *lostError {
	base := "http://" + net.JoinHostPort(v.pod.Status.PodIP, strconv.Itoa(v.declared.Port)) + v.declared.Path
	var kernels []kernel
	if lost := c.fetch(ctx, base+"/api/kernels", token, &kernels); lost != nil {
		return lost
	}
	for _, k := range kernels {
		at, err := time.Parse(time.RFC3339Nano, k.Activity)
		if err != nil || k.State == "" {
			return &lostError{lookMalformed, fmt.Sprintf("%s/api/kernels has a kernel with execution_state %.40q and last_activity %.40q", base, k.State, k.Activity)}
		}
		into.Kernels = append(into.Kernels, notebook.Kernel{State: k.State, Activity: at})
	}
	var terminals []terminal
	lost := c.fetch(ctx, base+"/api/terminals", token, &terminals)
	if lost != nil && lost.result != lookMissing { // a server without terminals does not know the path
		return lost
	}
	for _, t := range terminals {
		at, err := time.Parse(time.RFC3339Nano, t.Activity)
		if err != nil {
			return &lostError{lookMalformed, fmt.Sprintf("%s/api/terminals has a terminal with last_activity %.40q", base, t.Activity)}
		}
		into.Terminals = append(into.Terminals, at)
	}
	return nil
}

// lookMissing is the result of a path that a server does not know. For kernels it counts as malformed.
const lookMissing = "missing"

// fetch reads a list of a server.
func (c *Controller) fetch(ctx context.Context, url, token string, into any) *lostError {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return &lostError{lookUnreachable, fmt.Sprintf("ask %s: %v", url, err)}
	}
	if token != "" {
		request.Header.Set("Authorization", "token "+token)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return &lostError{lookUnreachable, fmt.Sprintf("ask the Jupyter server: %v", err)}
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return &lostError{lookRefused, fmt.Sprintf("%s answers %s: the token is not that of the server", url, answer.Status)}
	case http.StatusNotFound:
		return &lostError{lookMissing, fmt.Sprintf("%s answers %s: the port or the path is not that of a Jupyter server", url, answer.Status)}
	default:
		return &lostError{lookMalformed, fmt.Sprintf("%s answers %s, a Jupyter server answers 200", url, answer.Status)}
	}
	if err := decode(answer.Body, into); err != nil {
		return &lostError{lookMalformed, fmt.Sprintf("%s answers no list: %v", url, err)}
	}
	return nil
}

// decode reads a list of JSON that is not too long. Null is no list.
func decode(body io.Reader, into any) error {
	raw, err := io.ReadAll(io.LimitReader(body, mostAnswer+1))
	switch {
	case err != nil:
		return err
	case len(raw) > mostAnswer:
		return fmt.Errorf("it has more than %d bytes", mostAnswer)
	}
	if err := json.Unmarshal(raw, into); err != nil || bytes.TrimSpace(raw)[0] != '[' {
		return errors.New("it is no list of objects in JSON")
	}
	return nil
}
