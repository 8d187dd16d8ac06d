package connection

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forward opens a port on loopback that leads to the pod of a scheduler, through the API server and the kubelet. The caller stops
// it. Like kubectl it uses a WebSocket, and SPDY where a server or proxy does not let that through.
func forward(ctx context.Context, config *rest.Config, o *Options, pod string) (port uint16, stop func(), err error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, nil, err
	}
	at := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(o.Namespace).Name(pod).SubResource("portforward").URL()
	roundTripper, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return 0, nil, err
	}
	socket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(at, config)
	if err != nil {
		return 0, nil, err
	}
	dialer := portforward.NewFallbackDialerForStreaming(socket, spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, at),
		func(err error) bool { return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err) })
	ctx, begun, cancel := o.within(ctx, fmt.Sprintf("the API server, or the kubelet of the pod %s/%s to which it forwards a port,", o.Namespace, pod), true)
	ready, ended := make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", o.Port)}, ready, io.Discard, io.Discard)
	if err != nil {
		cancel()
		return 0, nil, err
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
		begun()
	case <-ctx.Done():
		cancel()
		return 0, nil, why(ctx, nil)
	case err := <-ended:
		cancel()
		return 0, nil, fmt.Errorf("forward a port to the pod %s/%s: %w; it takes the right to create pods/portforward there, "+
			"or --scheduler-address, or --snapshot with a file", o.Namespace, pod, err)
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		cancel()
		return 0, nil, err
	}
	return ports[0].Local, cancel, nil
}
