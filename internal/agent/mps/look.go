package mps

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Daemon is what a control daemon says of itself.
type Daemon struct {
	// PID is the daemon's record of its PID; 0 where this process cannot see it.
	PID int
	// Servers in the daemon's order. The list is empty before the first client.
	Servers []Server
}

// Server is one server process of a daemon.
type Server struct {
	PID   int
	State ServerState
	// Clients are the PIDs of the client processes, as the PID namespace of the daemon numbers them: the host's.
	Clients []int
}

// ServerState is the state of a server.
type ServerState string

// States of a server. Unknown is one that the daemon gives no name for or another one.
const (
	Unknown      ServerState = "Unknown"
	Initializing ServerState = "Initializing"
	Active       ServerState = "Active"
	Fault        ServerState = "Fault"
)

// stateWords are the names that the daemon uses. Source: NVIDIA MPS documentation, get_server_status.
var stateWords = map[string]ServerState{"INITIALIZING": Initializing, "ACTIVE": Active, "FAULT": Fault}

// state finds the state in what the daemon says of one server. A fault counts whatever else the line says.
func state(said string) ServerState {
	words := strings.FieldsFunc(strings.ToUpper(said), func(r rune) bool { return r < 'A' || r > 'Z' })
	found := Unknown
	for _, w := range words {
		switch s, ok := stateWords[w]; {
		case ok && s == Fault:
			return Fault
		case ok:
			found = s
		}
	}
	return found
}

// look lists the servers, and the state and the clients of each. Every run of the control program is a process start,
// so one run carries the question for the servers and the questions about the servers of the last look (guess). With
// other servers, or with an ambiguous answer, look makes one run for each question.
func (c control) look(ctx context.Context, guess []int) (Daemon, error) {
	said, err := c.run(ctx, questions(guess))
	if err != nil {
		return Daemon{}, err
	}
	servers, ok := answersTo(guess, said)
	if !ok {
		if servers, err = c.lookSlowly(ctx); err != nil {
			return Daemon{}, err
		}
	}
	pid, alive := c.recorded()
	if !alive {
		pid = 0
	}
	return Daemon{PID: pid, Servers: servers}, nil
}

const (
	listServers = "get_server_list"
	askState    = "get_server_status "
	listClients = "get_client_list "
)

func questions(guess []int) string {
	lines := []string{listServers}
	for _, pid := range guess {
		lines = append(lines, askState+strconv.Itoa(pid), listClients+strconv.Itoa(pid))
	}
	return strings.Join(lines, "\n")
}

// answersTo reads the answers to the questions. The answers come in the order of the questions without a divider. A
// list has one number in each line and a state has none, so each state ends the list before it. The result is certain
// only if the first list names the guessed servers and there is one known state for each; else answersTo returns false.
func answersTo(guess []int, said string) ([]Server, bool) {
	var lists [][]int
	var states []ServerState
	list := []int{}
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if pid, err := strconv.Atoi(line); err == nil && pid > 0 {
			list = append(list, pid)
		} else if line != "" {
			lists, states = append(lists, list), append(states, state(line))
			list = []int{}
		}
	}
	lists = append(lists, list)
	if len(states) != len(guess) || !slices.Equal(lists[0], guess) || slices.Contains(states, Unknown) {
		return nil, false
	}
	servers := slices.Grow([]Server(nil), len(guess))
	for i, pid := range guess {
		servers = append(servers, Server{PID: pid, State: states[i], Clients: lists[i+1]})
	}
	return servers, true
}

// lookSlowly makes one run for each question. A server may end between two of them: then its state is unknown.
func (c control) lookSlowly(ctx context.Context) ([]Server, error) {
	list, err := c.run(ctx, listServers)
	if err != nil {
		return nil, err
	}
	pids := numbers(list)
	if len(pids) == 0 {
		return nil, nil
	}
	servers := make([]Server, 0, len(pids))
	for _, pid := range pids {
		status, err := c.run(ctx, askState+strconv.Itoa(pid))
		if err != nil {
			return nil, err
		}
		clients, err := c.run(ctx, listClients+strconv.Itoa(pid))
		if err != nil {
			return nil, err
		}
		servers = append(servers, Server{PID: pid, State: state(status), Clients: numbers(clients)})
	}
	return servers, nil
}

// numbers returns the PIDs of a list that has one in each line; an error message has none.
func numbers(list string) []int {
	pids := []int{}
	for line := range strings.Lines(list) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// fault returns an error for the first server with a fault.
func (d Daemon) fault() error {
	for _, s := range d.Servers {
		if s.State == Fault {
			return fmt.Errorf("%w: server %d", ErrFault, s.PID)
		}
	}
	return nil
}

// servers returns their PIDs.
func (d Daemon) servers() []int {
	pids := make([]int, 0, len(d.Servers))
	for _, s := range d.Servers {
		pids = append(pids, s.PID)
	}
	return pids
}
