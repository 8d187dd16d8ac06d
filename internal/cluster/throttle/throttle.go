// Package throttle keeps a program to its limit of requests to the API server without letting that cost the time of a request.
//
// A client of client-go waits for its limit inside of a request. A request with a deadline then ends before client-go
// sends it. The error does not say so, and the caller must assume that the API server may have carried the request out.
// A Client of this package waits for nothing itself. Its user waits for a turn first, and starts the time of the
// request after that.
//
// The package does not retry, and it does not look at the API server's own limits.
package throttle

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Client is a client of the API server with a limit that is waited for by Turn, and by nothing else. Several goroutines
// may use it.
type Client struct {
	kubernetes.Interface
	// limiter is nil where there is no limit.
	limiter flowcontrol.RateLimiter
}

// New returns a client with the limit of a configuration: QPS and Burst, client-go's defaults where they are 0, or RateLimiter where
// there is one. A configuration that sets no limit (QPS below 0), or none at all (nil), gives the client that the caller has.
func New(config *rest.Config, unlimited kubernetes.Interface) (*Client, error) {
	if config == nil || config.RateLimiter == nil && config.QPS < 0 {
		return Unlimited(unlimited), nil
	}
	own := rest.CopyConfig(config)
	own.QPS, own.Burst, own.RateLimiter = -1, 0, nil
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return Limited(client, limiterOf(config)), nil
}

func limiterOf(config *rest.Config) flowcontrol.RateLimiter {
	if config.RateLimiter != nil {
		return config.RateLimiter
	}
	qps, burst := config.QPS, config.Burst
	if qps == 0 {
		qps = rest.DefaultQPS
	}
	if burst == 0 {
		burst = rest.DefaultBurst
	}
	return flowcontrol.NewTokenBucketRateLimiter(qps, burst)
}

// Limited returns a client with the limit of a limiter. The client must have none of its own.
func Limited(client kubernetes.Interface, limiter flowcontrol.RateLimiter) *Client {
	return &Client{Interface: client, limiter: limiter}
}

// Unlimited returns a client without a limit.
func Unlimited(client kubernetes.Interface) *Client { return &Client{Interface: client} }

// Turn waits until the client may send the next request. An error says that ctx ended first, or ends too soon: the client sent nothing then.
func (c *Client) Turn(ctx context.Context) error {
	if c.limiter == nil {
		return ctx.Err()
	}
	if err := c.limiter.Wait(ctx); err != nil {
		return fmt.Errorf("the request was not sent, since it waited for the limit of this scheduler's requests (clientConnection.qps): %w", err)
	}
	return nil
}
