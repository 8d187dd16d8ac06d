package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
)

// removedAfter is how much older than the oldest tenant a file has to be for the agent to remove it.
const removedAfter = 5 * time.Minute

// leavesMemory: a pod writes to its /dev/shm until that is full. The file outlives the pod, and fills the tmpfs that has a size
// and nothing else of the host. Its neighbour goes on, and new pods start.
func leavesMemory(n *Tenant) {
	n.create(newPod("neighbour", work(4)))
	neighbour := n.running("neighbour")[0]
	n.works(neighbour)
	beside := n.witness([]*v1.Pod{neighbour})

	n.create(writer("greedy", "dd if=/dev/zero of=/dev/shm/left bs=1M"))
	n.checkShares(n.running("greedy")[0])
	n.await("a full tmpfs", func(context.Context) error {
		usage, err := mps.SharedMemoryUsage(sharedMemoryDir)
		if err == nil && usage != (mps.Usage{Size: sharedMemorySize, Used: sharedMemorySize}) {
			err = fmt.Errorf("%d of %d bytes are used", usage.Used, usage.Size)
		}
		return err
	})
	n.delete("greedy")
	left, err := os.Stat(inSharedMemory("left"))
	n.must(err)
	if left.Size() != sharedMemorySize {
		n.t.Errorf("the pod has left %d bytes, want %d", left.Size(), int64(sharedMemorySize))
	}
	n.left = left.ModTime()
	host, err := mps.SharedMemoryUsage(filepath.Dir(sharedMemoryDir))
	n.must(err)
	if host.Used != 0 {
		n.t.Errorf("%d bytes of the host's own /dev/shm are used, want none", host.Used)
	}
	n.create(newPod("later", work(4)))
	n.works(n.running("later")[0])
	beside.undisturbed()
	n.delete("neighbour", "later")
}

// memoryRemoved: the agent removes what that pod has left, and leaves alone what a pod that lives has written. It is the last
// scenario, so that in a whole run nobody waits until the file is old enough.
func memoryRemoved(n *Tenant) {
	if n.left.IsZero() {
		leavesMemory(n)
	}
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*patience)
	defer cancel()
	n.must(poll(ctx, "a time when every new pod is young enough", func(context.Context) error {
		// The API server tells the creation of a pod in whole seconds.
		if wait := time.Until(n.left.Add(removedAfter + time.Second)); wait > 0 {
			return fmt.Errorf("it is %v away", wait)
		}
		return nil
	}))
	const kept = 1 << 20
	write := fmt.Sprintf("dd if=/dev/zero of=/dev/shm/kept bs=%d count=1", kept)
	n.create(writer("lives", "until "+write+"; do sleep 1; done")) // it may be full still
	n.checkShares(n.running("lives")[0])
	n.await("the removal of what the pod has left", func(context.Context) error {
		_, err := os.Stat(inSharedMemory("left"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
	// The agent measures after each round, so it has looked at the folder since the pod wrote its file.
	n.await("what the agent says of the rest", func(ctx context.Context) error {
		used, err := n.agentMetric(ctx, "tandem_agent_shared_memory_bytes", `state="used"`)
		if err == nil && used != kept {
			err = fmt.Errorf("%v bytes are used, want %d", used, kept)
		}
		return err
	})
	file, err := os.Stat(inSharedMemory("kept"))
	n.must(err)
	if file.Size() != kept {
		n.t.Errorf("the file of the pod that lives has %d bytes, want %d", file.Size(), kept)
	}
}

// writer is a pod that runs a command and then lives on. The command's own words do not reach the log, where they might come
// before the last of what the container tells of itself.
func writer(name, command string) *v1.Pod {
	pod := newPod(name, share("main", 4))
	pod.Spec.Containers[0].Command = []string{"sh", "-c", tell + command + " 2>/dev/null; exec sleep 1000000"}
	return pod
}

// inSharedMemory is where the host has a file that containers with a share see in /dev/shm.
func inSharedMemory(name string) string { return filepath.Join(sharedMemoryDir, name) }
