package connection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"k8s.io/client-go/rest"
)

// Path is where the scheduler serves the snapshot.
const Path = "/snapshot"

// errNotLeader is the answer of a scheduler that does not schedule, or has no state now.
var errNotLeader = errors.New("the scheduler has no snapshot now")

// sayMost bounds how much of a refusal is read: it is a line.
const sayMost = 4096

// ask gets the snapshot from a scheduler with the caller's credentials.
func ask(ctx context.Context, config *rest.Config, o Options, address string) ([]byte, error) {
	client, err := rest.HTTPClientFor(toScheduler(config, &o))
	if err != nil {
		return nil, fmt.Errorf("get snapshot: %w", err)
	}
	defer client.CloseIdleConnections()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // no other server gets the credentials
	ctx, begun, cancel := o.within(ctx, "the scheduler", false)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(address, "/")+Path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("get snapshot: --scheduler-address: %w", err)
	}
	if r.URL.Scheme != "https" || r.URL.Host == "" {
		return nil, fmt.Errorf("get snapshot: --scheduler-address: %q, legal is https://HOST:PORT", address)
	}
	answer, err := client.Do(r)
	begun()
	if err != nil {
		return nil, fmt.Errorf("get snapshot: %w; %s", why(ctx, err), unreached(&o, errors.Is(err, syscall.ECONNREFUSED)))
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		raw, err := io.ReadAll(answer.Body)
		if err != nil {
			return nil, fmt.Errorf("get snapshot: the connection ended: %w", err)
		}
		return raw, nil
	}
	said, _ := io.ReadAll(io.LimitReader(answer.Body, sayMost)) // what could be read of it says enough
	return nil, refused(answer.StatusCode, strings.TrimSpace(string(said)))
}

// toScheduler returns the caller's credentials for the scheduler. The fields of the kubeconfig about the API server, its
// certificate authority and its proxy, do not hold for the scheduler.
func toScheduler(config *rest.Config, o *Options) *rest.Config {
	c := rest.CopyConfig(config)
	c.Host = "" // the request has the address
	c.Insecure, c.CAFile, c.CAData, c.ServerName = o.CAFile == "", o.CAFile, nil, ""
	if o.CAFile != "" {
		c.ServerName = o.ServerName
	}
	if o.Address == "" {
		c.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // loopback
	}
	return c
}

// unreached says what may be the matter where no answer came, most likely first. silent says that nothing listens there.
func unreached(o *Options, silent bool) string {
	switch {
	case o.Address != "" && silent:
		return "nothing listens there: the scheduler does not run, --scheduler-address is another one's, or the scheduler serves no snapshots (--snapshot-secure-port=0)"
	case o.CAFile != "":
		return "where the certificate is not valid, --scheduler-ca and --scheduler-server-name say by what it is verified"
	case o.Address != "":
		return "the scheduler is starting or has ended, or --scheduler-address is another one's"
	}
	return fmt.Sprintf("the scheduler is starting or has ended, or it serves no snapshots (it is from before them, or has --snapshot-secure-port=0); "+
		"--scheduler-port says where other than on port %d it does", o.Port)
}

// refused says what helps against an answer of the scheduler.
func refused(code int, said string) error {
	switch code {
	case http.StatusUnauthorized:
		return errors.New("get snapshot: the scheduler does not know the caller (401): it takes tokens that the API server knows, and client " +
			"certificates of the cluster's authority. Credentials of other kinds, such as a password, do not reach it")
	case http.StatusForbidden:
		return errors.New("get snapshot: the caller has no right to /snapshot (403): an administrator gives it by " +
			"kubectl create clusterrolebinding see-gpus --clusterrole=tandem-snapshot-reader --user=NAME")
	case http.StatusNotFound:
		return errors.New("get snapshot: the scheduler does not serve /snapshot (404): it is older than this program, or another program listens there")
	case http.StatusServiceUnavailable:
		return fmt.Errorf("get snapshot: %w: %s", errNotLeader, said)
	}
	return fmt.Errorf("get snapshot: the scheduler answered %d: %s", code, said)
}
