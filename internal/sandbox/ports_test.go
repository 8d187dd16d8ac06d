package sandbox

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tandem-gpu/tandem/test/must"
)

// only returns a socket to which Linux gives no other port than this one when it asks for any.
func only(t *testing.T, port int) int {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.OK(t, err)
	t.Cleanup(func() { _ = unix.Close(socket) })
	err = unix.SetsockoptInt(socket, unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, port|port<<16)
	if errors.Is(err, unix.ENOPROTOOPT) {
		t.Skip("needs a Linux of 6.3 or later, in which a socket can ask for the ports of a range")
	}
	must.OK(t, err)
	return socket
}

// The kernel gives a reserved port only to a program that asks for its number. A program that takes any port never gets it,
// whether it listens or connects.
func TestReservedPortsGoToNobodyByChance(t *testing.T) {
	ports, giveUp, err := reservePorts(2)
	must.OK(t, err)
	defer giveUp()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	defer other.Close()
	loopback := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	to := &unix.SockaddrInet4{Addr: loopback.Addr, Port: other.Addr().(*net.TCPAddr).Port}
	try := func(port int) (listen, connect error) {
		return unix.Bind(only(t, port), loopback), unix.Connect(only(t, port), to)
	}
	listen, connect := try(ports[0])
	if !errors.Is(listen, syscall.EADDRINUSE) || !errors.Is(connect, syscall.EADDRNOTAVAIL) {
		t.Errorf("a reserved port: listen %v, connect %v; want both refused", listen, connect)
	}
	giveUp()
	if listen, _ := try(ports[0]); listen != nil {
		t.Errorf("a port that was given up: %v", listen)
	}
}

// Programs listen on their port as often as they are started.
func TestReservedPortsServeTheirProgram(t *testing.T) {
	ports, err := FreePorts(2)
	must.OK(t, err)
	if ports[0] == ports[1] {
		t.Errorf("two ports are the same, %d", ports[0])
	}
	for _, host := range []string{"127.0.0.1", "", "127.0.0.1"} {
		address := fmt.Sprintf("%s:%d", host, ports[0])
		server, err := net.Listen("tcp", address)
		must.OK(t, err)
		client, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0]))
		must.OK(t, err)
		if second, err := net.Listen("tcp", address); err == nil {
			second.Close()
			t.Errorf("two programs listen on %s", address)
		}
		server.Close()
		client.Close()
	}
}
