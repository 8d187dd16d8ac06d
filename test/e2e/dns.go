package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clusterDomain ends the names of services, as in most clusters.
const clusterDomain = "cluster.local"

// dnsTTL is how long, in seconds, a pod may keep an answer: as long as CoreDNS says.
const dnsTTL = 5

// startDNS answers the names of headless services and of the pods behind them, as CoreDNS does in a cluster. Services with an
// address of their own have none here: no kube-proxy routes it.
func (c *Cluster) startDNS(context.Context) error {
	var err error
	if c.dns, err = net.ListenPacket("udp", net.JoinHostPort(nodeIP, "53")); err != nil {
		return fmt.Errorf("start DNS: %w", err)
	}
	go c.serveDNS(c.dns)
	return nil
}

// serveDNS answers until the connection is closed.
func (c *Cluster) serveDNS(connection net.PacketConn) {
	buffer := make([]byte, 512)
	for {
		n, from, err := connection.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if answer, err := c.answer(buffer[:n]); err == nil {
			_, _ = connection.WriteTo(answer, from) // who gets no answer asks again
		}
	}
}

// answer returns the answer to a question in DNS' format.
func (c *Cluster) answer(question []byte) ([]byte, error) {
	var asked dnsmessage.Message
	if err := asked.Unpack(question); err != nil {
		return nil, err
	}
	if len(asked.Questions) != 1 {
		return nil, fmt.Errorf("answer DNS: %d questions", len(asked.Questions))
	}
	q := asked.Questions[0]
	answer := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: asked.ID, Response: true, Authoritative: true, RecursionDesired: asked.RecursionDesired},
		Questions: asked.Questions,
	}
	addresses, err := c.resolve(q.Name.String())
	switch {
	case err != nil:
		answer.RCode = dnsmessage.RCodeServerFailure
	case len(addresses) == 0:
		answer.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		for _, a := range addresses {
			answer.Answers = append(answer.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: dnsTTL}, Body: &dnsmessage.AResource{A: a.As4()},
			})
		}
	}
	return answer.Pack()
}

// resolve returns the addresses of "service.namespace.svc.cluster.local." or of one pod, "hostname.service. …".
func (c *Cluster) resolve(name string) ([]netip.Addr, error) {
	short, ours := strings.CutSuffix(strings.ToLower(name), ".svc."+clusterDomain+".")
	labels := strings.Split(short, ".")
	if !ours || len(labels) < 2 || len(labels) > 3 {
		return nil, nil
	}
	hostname, service, namespace := "", labels[len(labels)-2], labels[len(labels)-1]
	if len(labels) == 3 {
		hostname = labels[0]
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	slices, err := c.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for i := range slices.Items {
		for _, e := range slices.Items[i].Endpoints {
			if hostname != "" && (e.Hostname == nil || *e.Hostname != hostname) || e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			for _, raw := range e.Addresses {
				if a, err := netip.ParseAddr(raw); err == nil && a.Is4() {
					addresses = append(addresses, a)
				}
			}
		}
	}
	return addresses, nil
}
