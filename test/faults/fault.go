package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// Fault is one way to break a node.
type Fault struct {
	Name string
	// root: the fault can only be made by root, and needs a node with a small disk.
	root bool
	// strike breaks the device, or the node. dice is any number, the same in each run of a sequence.
	strike func(ctx context.Context, n *Node, uuid string, dice int) error
	// lift takes away what would keep the agent from putting things right; nil where there is nothing.
	lift func(ctx context.Context, n *Node, uuid string) error
}

// XID numbers by their effects (internal/agent/nvml's classes).
var (
	applicationXIDs = []uint64{13, 31, 43, 45}
	containedXIDs   = []uint64{94, 32, 109, 126}
	resetXIDs       = []uint64{48, 95, 119, 140}
)

// storm is how many XID errors a storm has.
const storm = 500

// Faults lists all faults. The order is part of what a seed means.
func Faults() []Fault {
	return append(deviceFaults(), nodeFaults()...)
}

func deviceFaults() []Fault {
	return []Fault{
		{Name: "XID of an application", strike: func(_ context.Context, n *Node, uuid string, dice int) error {
			return n.raise(uuid, pick(applicationXIDs, dice))
		}},
		{Name: "XID that is over with its clients", strike: func(_ context.Context, n *Node, uuid string, dice int) error {
			return n.raise(uuid, pick(containedXIDs, dice))
		}},
		{Name: "XID that asks for a reset", strike: needsReset, lift: wasReset},
		{Name: "XID storm", strike: func(_ context.Context, n *Node, uuid string, dice int) error {
			all := make([]uint64, storm)
			for i := range all {
				all[i] = pick(applicationXIDs, dice+i)
			}
			all[storm/2] = pick(containedXIDs, dice)
			return n.raise(uuid, all...)
		}},
		{Name: "GPU lost", strike: func(_ context.Context, n *Node, uuid string, _ int) error {
			return n.lose(uuid)
		}, lift: returned(false)},
		{Name: "GPU lost and back under another index", strike: func(_ context.Context, n *Node, uuid string, _ int) error {
			return n.lose(uuid)
		}, lift: returned(true)},
		{Name: "uncorrected ECC errors", strike: func(_ context.Context, n *Node, uuid string, dice int) error {
			return n.change(uuid, func(d *fakegpu.Device) { d.UncorrectedECC += uint64(1 + dice%3) })
		}, lift: func(_ context.Context, n *Node, uuid string) error { // a reset counts anew
			return n.change(uuid, func(d *fakegpu.Device) { d.UncorrectedECC = 0 })
		}},
		{Name: "row remapping failed", strike: func(_ context.Context, n *Node, uuid string, _ int) error {
			return n.change(uuid, func(d *fakegpu.Device) { d.RowRemapFailure = true })
		}, lift: func(_ context.Context, n *Node, uuid string) error {
			return n.change(uuid, func(d *fakegpu.Device) { d.RowRemapFailure = false })
		}},
		{Name: "MPS daemon killed", strike: func(_ context.Context, n *Node, uuid string, _ int) error {
			return n.killDaemon(uuid)
		}},
		{Name: "MPS server killed", strike: func(_ context.Context, n *Node, uuid string, _ int) error {
			for _, pid := range n.servers(uuid) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
			}
			return nil
		}},
		{Name: "MPS daemon hangs", strike: ordered(func(m *fakegpu.MPS) { m.Hang = true }), lift: ordered0(func(m *fakegpu.MPS) { m.Hang = false })},
		{Name: "MPS daemon does not start", strike: func(ctx context.Context, n *Node, uuid string, dice int) error {
			if err := ordered(func(m *fakegpu.MPS) { m.NoStart = true })(ctx, n, uuid, dice); err != nil {
				return err
			}
			return n.killDaemon(uuid)
		}, lift: ordered0(func(m *fakegpu.MPS) { m.NoStart = false })},
		{Name: "MPS server has a fault", strike: ordered(func(m *fakegpu.MPS) { m.Fault = true }), lift: ordered0(func(m *fakegpu.MPS) { m.Fault = false })},
		{Name: "client killed at work", strike: func(_ context.Context, n *Node, uuid string, _ int) error {
			n.tenants.kill(uuid) // there may be no program
			return nil
		}},
		{Name: "MPS server wedged", strike: ordered(func(m *fakegpu.MPS) { m.Wedge = true }), lift: ordered0(func(m *fakegpu.MPS) { m.Wedge = false })},
		{Name: "stale pipe directory", strike: func(_ context.Context, n *Node, uuid string, _ int) error {
			if err := n.killDaemon(uuid); err != nil {
				return err
			}
			// A PID that another process has got since.
			path := n.pipe(uuid) + "/" + controlName + ".pid"
			if err := os.WriteFile(path, fmt.Appendf(nil, "%d", n.bystander.PID()), 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			return nil
		}},
	}
}

func nodeFaults() []Fault {
	return []Fault{
		{Name: "agent restarted", strike: func(_ context.Context, n *Node, _ string, _ int) error {
			n.StopAgent(false)
			return nil
		}, lift: agentBack},
		{Name: "agent killed", strike: func(_ context.Context, n *Node, _ string, _ int) error {
			n.StopAgent(true)
			return nil
		}, lift: agentBack},
		{Name: "second agent", strike: secondAgent},
		{Name: "kubelet restarted", strike: func(_ context.Context, n *Node, _ string, _ int) error {
			n.StopKubelet()
			return nil
		}, lift: func(ctx context.Context, n *Node, _ string) error { return n.StartKubelet(ctx) }},
		{Name: "own checkpoint corrupted", strike: func(_ context.Context, n *Node, _ string, dice int) error {
			ran := n.StopAgent(dice%2 == 0)
			if err := n.spoilRecords(dice); err != nil {
				return err
			}
			if ran {
				return n.StartAgent()
			}
			return nil
		}},
		{Name: "kubelet's checkpoint corrupted", strike: func(_ context.Context, n *Node, _ string, _ int) error {
			return n.spoilCheckpoint()
		}, lift: func(_ context.Context, n *Node, _ string) error { return n.healCheckpoint() }},
		{Name: "disk full under the agent's checkpoint", root: true, strike: func(_ context.Context, n *Node, _ string, _ int) error {
			return n.fillDisk()
		}, lift: func(_ context.Context, n *Node, _ string) error {
			if err := os.Remove(n.filler()); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			return nil
		}},
	}
}

func pick[T any](list []T, dice int) T { return list[dice%len(list)] }

// raise has the driver log XID errors.
func (n *Node) raise(uuid string, numbers ...uint64) error {
	return fakegpu.Update(n.state(), func(s *fakegpu.State) {
		for _, xid := range numbers {
			s.Events = append(s.Events, fakegpu.Event{UUID: uuid, XID: xid})
		}
	})
}

// needsReset: the driver logs an error and requires a reset until the test makes one.
func needsReset(_ context.Context, n *Node, uuid string, dice int) error {
	return fakegpu.Update(n.state(), func(s *fakegpu.State) {
		d, _ := s.Find(uuid)
		d.RecoveryAction = 1
		s.Events = append(s.Events, fakegpu.Event{UUID: uuid, XID: pick(resetXIDs, dice)})
	})
}

func wasReset(_ context.Context, n *Node, uuid string) error {
	return n.change(uuid, func(d *fakegpu.Device) { d.RecoveryAction = 0 })
}

// lose takes a GPU off the bus, as XID 79 says.
func (n *Node) lose(uuid string) error {
	return fakegpu.Update(n.state(), func(s *fakegpu.State) {
		d, _ := s.Find(uuid)
		d.Lost = true
		s.Events = append(s.Events, fakegpu.Event{UUID: uuid, XID: 79})
	})
}

// returned brings a lost GPU back, at the place of its neighbour if it moves.
func returned(moves bool) func(context.Context, *Node, string) error {
	return func(_ context.Context, n *Node, uuid string) error {
		return fakegpu.Update(n.state(), func(s *fakegpu.State) {
			for i := range s.Devices {
				if s.Devices[i].UUID != uuid || !s.Devices[i].Lost {
					continue
				}
				s.Devices[i].Lost = false
				if other := (i + 1) % len(s.Devices); moves {
					s.Devices[i], s.Devices[other] = s.Devices[other], s.Devices[i]
				}
				return
			}
		})
	}
}

// ordered orders the MPS daemon of a device to misbehave.
func ordered(order func(*fakegpu.MPS)) func(context.Context, *Node, string, int) error {
	return func(_ context.Context, n *Node, uuid string, _ int) error {
		return n.change(uuid, func(d *fakegpu.Device) { order(&d.MPS) })
	}
}

func ordered0(order func(*fakegpu.MPS)) func(context.Context, *Node, string) error {
	return func(ctx context.Context, n *Node, uuid string) error { return ordered(order)(ctx, n, uuid, 0) }
}

// killDaemon sends SIGKILL to the control daemon of a device, if there is one.
func (n *Node) killDaemon(uuid string) error {
	pid, ok := n.daemon(uuid)
	if !ok {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill daemon: %w", err)
	}
	return nil
}

func agentBack(_ context.Context, n *Node, _ string) error { return n.StartAgent() }

// secondAgentTimeout is how long a second agent may take to find the first. Only one that runs on reaches it.
const secondAgentTimeout = 5 * time.Minute

// secondAgent starts a second agent, which must end by itself and say why.
func secondAgent(ctx context.Context, n *Node, _ string, _ int) error {
	if _, err := n.Metric(ctx, "tandem_agent_registered"); err != nil {
		return nil // the first one does not run, or has not come as far as to take the lock
	}
	ctx, cancel := context.WithTimeout(ctx, secondAgentTimeout)
	defer cancel()
	cmd := n.command()
	for i, arg := range cmd.Args {
		if strings.HasPrefix(arg, "--http-address=") {
			cmd.Args[i] = "--http-address=127.0.0.1:0"
		}
	}
	second, err := n.processes.Start("second-agent", cmd)
	if err != nil {
		return err
	}
	select {
	case <-second.Done():
	case <-ctx.Done():
		second.Stop(0)
		return errors.New("a second agent runs beside the first")
	}
	if said := second.Tail(20); second.Err() == nil || !strings.Contains(said, "another agent") {
		return fmt.Errorf("the second agent ended with %w and does not say that there is another agent:\n%s", second.Err(), said)
	}
	return nil
}

// spoilRecords overwrites the agent's checkpoint in one of the ways in which files break.
func (n *Node) spoilRecords(dice int) error {
	path := n.path("state", "checkpoint.json")
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	broken := [][]byte{nil, []byte("{"), raw[:len(raw)/2], []byte(strings.Replace(string(raw), `"version":1`, `"version":7`, 1))}
	return os.WriteFile(path, pick(broken, dice), 0o600)
}

func (n *Node) filler() string { return n.path("state", "filler") }

// fillDisk leaves no byte on the file system of the agent's state.
func (n *Node) fillDisk() error {
	if !n.mounted {
		return errors.New("fill disk: the node has none of its own")
	}
	f, err := os.Create(n.filler())
	if err != nil {
		return fmt.Errorf("fill disk: %w", err)
	}
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if closed := f.Close(); !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(fmt.Errorf("fill disk: %w", err), closed)
	}
	return nil
}
