package kubeletconn

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// maxAnswer bounds one answer of the kubelet. A pod is below 2 MiB and a node runs some hundred pods.
const maxAnswer = 256 << 20

// Dial returns a connection to one of the kubelet's local sockets. gRPC connects at the first use and again when the
// kubelet restarts.
func Dial(socket string) (*grpc.ClientConn, error) {
	retry := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("use socket %s: %w", socket, err)
	}
	return conn, nil
}

// Patience is how long a container's start waits for a kubelet that is just coming back: its sockets appear within a
// second. The kubelet tries again after a failure, but shows it in the pod's events.
const Patience = 5 * time.Second

// Await bounds a call by the patience, if there is any.
func Await(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc, grpc.CallOption) {
	if patience == 0 {
		return ctx, func() {}, grpc.WaitForReady(false)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	return ctx, cancel, grpc.WaitForReady(true)
}
