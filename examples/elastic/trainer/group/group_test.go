package group

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// told writes effects in short.
func told(effects []Effect) string {
	var all []string
	for _, effect := range effects {
		switch e := effect.(type) {
		case Assign:
			all = append(all, fmt.Sprintf("w%d task %d of step %d: %v", e.Worker, e.Task.ID, e.Task.Step, e.Task.Slices))
		case Apply:
			all = append(all, fmt.Sprintf("s%d apply %d %v", e.Server, e.Step, e.Tasks))
		case Fetch:
			all = append(all, fmt.Sprintf("s%d fetch %v", e.Server, e.Pieces))
		case Adopt:
			all = append(all, fmt.Sprintf("s%d adopt %v", e.Server, e.Range))
		case Stepped:
			all = append(all, fmt.Sprintf("step %d by %d/%d loss %d redone %d", e.Step, e.Workers, e.Servers, e.Loss, e.Redone))
		case Moved:
			all = append(all, fmt.Sprintf("moved to %d", len(e.Layout.Parts)))
		case DismissWorker:
			all = append(all, fmt.Sprintf("w%d goes over=%v", e.Worker, e.Over))
		case DismissServer:
			all = append(all, fmt.Sprintf("s%d goes over=%v", e.Server, e.Over))
		case Finished:
			all = append(all, "finished")
		case Broken:
			all = append(all, "broken: "+e.Reason)
		}
	}
	return strings.Join(all, "; ")
}

// turn is an event and the effects that it should have.
type turn struct {
	event Event
	want  string
}

func play(t *testing.T, cfg Config, turns []turn) {
	t.Helper()
	s := New(cfg)
	for i, c := range turns {
		if diff := cmp.Diff(c.want, told(s.Step(c.event))); diff != "" {
			t.Fatalf("turn %d, %T%+v (-want +got):\n%s", i, c.event, c.event, diff)
		}
	}
}

// A training of two steps: a worker joins during the first and computes in the second; another leaves when its task is done.
func TestJoinAndLeave(t *testing.T) {
	play(t, Config{Steps: 2, Slices: 5, Params: 10, MinWorkers: 2}, []turn{
		{WorkerJoined{1}, ""}, // the first step wants two
		{WorkerJoined{2}, "w1 task 1 of step 0: [0 1 2]; w2 task 2 of step 0: [3 4]"},
		{WorkerJoined{3}, ""},
		{TaskDone{1, 1, 30}, ""},
		{WorkerLeaves{2}, ""},
		{TaskDone{2, 2, 12}, "s0 apply 0 [1 2]; w2 goes over=false"},
		{Applied{0, 0}, "step 1 by 2/1 loss 42 redone 0; w1 task 3 of step 1: [0 1 2]; w3 task 4 of step 1: [3 4]"},
		{TaskDone{1, 3, 1}, ""},
		{TaskDone{3, 4, 1}, "s0 apply 1 [3 4]"},
		{Applied{0, 1}, "step 2 by 2/1 loss 2 redone 0; finished; w1 goes over=true; w3 goes over=true; s0 goes over=true"},
		{WorkerJoined{4}, "w4 goes over=true"}, // it comes late
	})
}

// A worker is lost with a task. One that has nothing to do computes its slices under a new number, and nobody hears what the
// lost one says later.
func TestLostWorker(t *testing.T) {
	play(t, Config{Steps: 9, Slices: 4, Params: 10, MinWorkers: 1}, []turn{
		{WorkerJoined{1}, "w1 task 1 of step 0: [0 1 2 3]"},
		{WorkerJoined{2}, ""},
		{WorkerLost{1}, "w2 task 2 of step 0: [0 1 2 3]"},
		{TaskDone{1, 1, 10}, ""},
		{TaskDone{2, 1, 10}, ""}, // it is not its task
		{TaskDone{2, 2, 10}, "s0 apply 0 [2]"},
		{TaskDone{2, 2, 10}, ""},
		{Applied{0, 1}, ""}, // it is not this step
		{Applied{0, 0}, "step 1 by 1/1 loss 10 redone 4; w2 task 3 of step 1: [0 1 2 3]"},
		{WorkerLost{2}, ""}, // nobody is left, and the step waits
		{WorkerLost{2}, ""},
		{WorkerJoined{3}, "w3 task 4 of step 1: [0 1 2 3]"},
	})
}

// The tasks that are done stay done when another worker is lost.
func TestLostWorkerCostsItsTask(t *testing.T) {
	play(t, Config{Steps: 9, Slices: 4, Params: 10, MinWorkers: 2}, []turn{
		{WorkerJoined{1}, ""},
		{WorkerJoined{2}, "w1 task 1 of step 0: [0 1]; w2 task 2 of step 0: [2 3]"},
		{TaskDone{1, 1, 10}, ""},
		{WorkerLost{2}, "w1 task 3 of step 0: [2 3]"},
		{TaskDone{1, 3, 10}, "s0 apply 0 [1 3]"},
		{Applied{0, 0}, "step 1 by 1/1 loss 20 redone 2; w1 task 4 of step 1: [0 1 2 3]"},
	})
}

// The parameters move between two steps: a server comes, later it goes.
func TestServersComeAndGo(t *testing.T) {
	play(t, Config{Steps: 9, Slices: 2, Params: 10, MinWorkers: 1}, []turn{
		{WorkerJoined{1}, "w1 task 1 of step 0: [0 1]"},
		{ServerJoined{1}, ""},
		{TaskDone{1, 1, 1}, "s0 apply 0 [1]"},
		{Applied{0, 0}, "step 1 by 1/1 loss 1 redone 0; s1 fetch [{0 5..10}]"},
		{Fetched{1, 1}, ""}, // it is not this layout
		{Fetched{1, 2}, "s0 adopt 0..5; s1 adopt 5..10"},
		{Adopted{1, 2}, ""},
		{Adopted{0, 2}, "moved to 2; w1 task 2 of step 1: [0 1]"},
		{ServerLeaves{1}, ""},
		{TaskDone{1, 2, 1}, "s0 apply 1 [2]; s1 apply 1 [2]"},
		{Applied{1, 1}, ""},
		{Applied{0, 1}, "step 2 by 1/2 loss 1 redone 0; s0 fetch [{1 5..10}]"},
		{Fetched{0, 3}, "s0 adopt 0..10"},
		{ServerLost{1}, ""}, // the other one has all
		{Adopted{0, 3}, "moved to 1; w1 task 3 of step 2: [0 1]"},
		{ServerLeaves{0}, ""}, // nobody else could hold its parameters
		{TaskDone{1, 3, 1}, "s0 apply 2 [3]"},
	})
}

// A worker that wants to leave gets no task, though slices are open; a worker that comes gets them.
func TestLeavingWorkerGetsNoTask(t *testing.T) {
	play(t, Config{Steps: 9, Slices: 2, Params: 10, MinWorkers: 2}, []turn{
		{WorkerJoined{1}, ""},
		{WorkerJoined{2}, "w1 task 1 of step 0: [0]; w2 task 2 of step 0: [1]"},
		{WorkerLeaves{2}, ""},
		{WorkerLost{1}, ""},
		{TaskDone{2, 2, 1}, "w2 goes over=false"},
		{WorkerJoined{3}, "w3 task 3 of step 0: [0]"},
		{TaskDone{3, 3, 1}, "s0 apply 0 [2 3]"},
	})
}

// A step in which workers can go on is not given up for a server.
func TestServerWaitsForTheStep(t *testing.T) {
	play(t, Config{Steps: 9, Slices: 2, Params: 10, MinWorkers: 2}, []turn{
		{WorkerJoined{1}, ""},
		{WorkerJoined{2}, "w1 task 1 of step 0: [0]; w2 task 2 of step 0: [1]"},
		{ServerJoined{1}, ""},
		{TaskDone{1, 1, 1}, ""},
		{WorkerLost{2}, "w1 task 3 of step 0: [1]"},
		{TaskDone{1, 3, 1}, "s0 apply 0 [1 3]"},
		{Applied{0, 0}, "step 1 by 1/1 loss 2 redone 1; s1 fetch [{0 5..10}]"},
		{ServerLeaves{1}, ""}, // it is about to get parameters, and gives them back
		{Fetched{1, 2}, "s0 adopt 0..5; s1 adopt 5..10"},
		{Adopted{0, 2}, ""},
		{Adopted{1, 2}, "moved to 2; s0 fetch [{1 5..10}]"},
	})
}

// A server need not wait for a step that no worker can go on with: its finished part is done again.
func TestServerLeavesAnAbandonedStep(t *testing.T) {
	play(t, Config{Steps: 9, Slices: 2, Params: 10, MinWorkers: 2}, []turn{
		{ServerJoined{1}, "s1 fetch [{0 5..10}]"},
		{Fetched{1, 2}, "s0 adopt 0..5; s1 adopt 5..10"},
		{Adopted{0, 2}, ""},
		{Adopted{1, 2}, "moved to 2"},
		{WorkerJoined{1}, ""},
		{WorkerJoined{2}, "w1 task 1 of step 0: [0]; w2 task 2 of step 0: [1]"},
		{WorkerLeaves{1}, ""},
		{TaskDone{1, 1, 7}, "w1 goes over=false"},
		{ServerLeaves{1}, ""},
		{WorkerLost{2}, "s0 fetch [{1 5..10}]"},
		{WorkerJoined{4}, ""}, // the parameters move
		{Fetched{0, 3}, "s0 adopt 0..10"},
		{Adopted{0, 3}, "moved to 1; w4 task 3 of step 0: [0 1]; s1 goes over=false"},
		{TaskDone{4, 3, 1}, "s0 apply 0 [3]"},
		{Applied{0, 0}, "step 1 by 1/1 loss 1 redone 2; w4 task 4 of step 1: [0 1]"},
	})
}

// A server that is lost before it holds anything costs nothing; later it ends the training.
func TestLostServer(t *testing.T) {
	play(t, Config{Steps: 9, Slices: 2, Params: 10, MinWorkers: 1}, []turn{
		{ServerJoined{1}, "s1 fetch [{0 5..10}]"},
		{ServerLost{1}, ""},
		{Fetched{1, 2}, ""},
		{WorkerJoined{1}, "w1 task 1 of step 0: [0 1]"},
		{TaskDone{1, 1, 1}, "s0 apply 0 [1]"},
		{ServerJoined{2}, ""},
		{Applied{0, 0}, "step 1 by 1/1 loss 1 redone 0; s2 fetch [{0 5..10}]"},
		{Fetched{2, 3}, "s0 adopt 0..5; s2 adopt 5..10"},
		{ServerLost{2}, "broken: server 2 was lost with the parameters 5..10"},
		{WorkerJoined{2}, ""},
	})
}
