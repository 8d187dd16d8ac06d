package gpumap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// ErrNotLoopback says that other machines could reach an address. The page has no authentication of its own.
var ErrNotLoopback = errors.New("other machines can reach this address")

// Listen opens an address, "host:port", with port 0 for a free one. Without anyone it must be a loopback address: 127.0.0.1, ::1 or
// localhost.
func Listen(ctx context.Context, address string, anyone bool) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w; legal is for example 127.0.0.1:8080", address, err)
	}
	if !anyone && !isLoopback(host) {
		return nil, fmt.Errorf("listen on %q: %w; legal is a loopback address, for example 127.0.0.1:8080", address, ErrNotLoopback)
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// shutdown is how long requests under way may take at the end.
const shutdown = time.Second

// Serve serves a handler until ctx ends. On a loopback address it refuses requests for other hosts: a page of another host, whose
// name suddenly means 127.0.0.1, could read the map otherwise.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	if host, _, err := net.SplitHostPort(l.Addr().String()); err == nil && isLoopback(host) {
		h = forLoopback(h)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdown)
		defer cancel()
		if s.Shutdown(end) != nil {
			_ = s.Close() // a request that is still under way loses its answer
		}
	})
	defer stopped()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the map: %w", err)
	}
	return nil
}

// forLoopback passes requests on whose host is a loopback address.
func forLoopback(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !isLoopback(host) {
			http.Error(w, fmt.Sprintf("the map is served to loopback addresses, not to %q", host), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
