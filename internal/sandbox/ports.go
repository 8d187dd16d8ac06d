package sandbox

import (
	"fmt"
	"os"
	"sync"
	"syscall"
)

// FreePorts returns n ports of loopback for programs that this process starts. Until this process ends no other program gets one of
// them by chance, also while a program that used it is down. The programs must listen with SO_REUSEADDR, as Go's net and nearly all
// servers do.
func FreePorts(n int) ([]int, error) {
	ports, _, err := reservePorts(n)
	return ports, err
}

// reservePorts returns n ports of loopback, and what gives them up.
//
// A socket is bound to each, with SO_REUSEADDR, and never listens. Linux then gives the port to no other socket of any process that
// asks for any port, whether to listen or to connect from. It gives it to one that asks for it by number with SO_REUSEADDR, since
// no other of the port's sockets listens.
func reservePorts(n int) (ports []int, giveUp func(), err error) {
	sockets := make([]int, 0, n)
	giveUp = sync.OnceFunc(func() {
		for _, socket := range sockets {
			_ = syscall.Close(socket)
		}
	})
	for range n {
		socket, port, err := bindAny()
		if err != nil {
			giveUp()
			return nil, nil, fmt.Errorf("reserve port: %w", err)
		}
		sockets, ports = append(sockets, socket), append(ports, port)
	}
	return ports, giveUp, nil
}

// bindAny returns a socket that is bound to a free port of loopback.
func bindAny() (socket, port int, err error) {
	socket, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, os.NewSyscallError("socket", err)
	}
	defer func() {
		if err != nil {
			_ = syscall.Close(socket)
		}
	}()
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, 0, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, 0, os.NewSyscallError("bind", err)
	}
	name, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, 0, os.NewSyscallError("getsockname", err)
	}
	return socket, name.(*syscall.SockaddrInet4).Port, nil
}
