package group

// WorkerID is the number of a worker, in the order of arrival. No number is used twice: a worker that was lost and comes back
// is another one.
type WorkerID int

// TaskID is the number of a task. No number is used twice.
type TaskID int

// Task is some slices of one step, in ascending order, which one worker computes.
type Task struct {
	ID     TaskID
	Step   int
	Slices []int
}

// Event is something that happened. Events about members that State does not know, and answers that it does not wait for, change
// nothing.
type Event interface{ event() }

type (
	// WorkerJoined means that a worker is there.
	WorkerJoined struct{ Worker WorkerID }
	// WorkerLeaves means that a worker wants to leave.
	WorkerLeaves struct{ Worker WorkerID }
	// WorkerLost means that a worker is gone, or that nobody hears from it.
	WorkerLost struct{ Worker WorkerID }
	// TaskDone means that all servers have the gradients of a task. Loss is the loss of its slices.
	TaskDone struct {
		Worker WorkerID
		Task   TaskID
		Loss   int64
	}
	// ServerJoined means that a server is there.
	ServerJoined struct{ Server ServerID }
	// ServerLeaves means that a server wants to leave.
	ServerLeaves struct{ Server ServerID }
	// ServerLost means that a server is gone.
	ServerLost struct{ Server ServerID }
	// Applied answers Apply: the server's parameters are those after the step.
	Applied struct {
		Server ServerID
		Step   int
	}
	// Fetched answers Fetch.
	Fetched struct {
		Server  ServerID
		Version int
	}
	// Adopted answers Adopt.
	Adopted struct {
		Server  ServerID
		Version int
	}
)

func (WorkerJoined) event() {}
func (WorkerLeaves) event() {}
func (WorkerLost) event()   {}
func (TaskDone) event()     {}
func (ServerJoined) event() {}
func (ServerLeaves) event() {}
func (ServerLost) event()   {}
func (Applied) event()      {}
func (Fetched) event()      {}
func (Adopted) event()      {}

// Effect is something to do. The caller does the effects of a Step in their order.
type Effect interface{ effect() }

type (
	// Assign gives a worker a task. The layout says where its parameters are.
	Assign struct {
		Worker WorkerID
		Task   Task
		Layout Layout
	}
	// Apply makes a server change its parameters by the sum of the tasks, and forget all other tasks. Step is the number of
	// the step, and that of steps which the server has applied before.
	Apply struct {
		Server ServerID
		Step   int
		Tasks  []TaskID
	}
	// Fetch makes a server get what it lacks of its part in a next layout. The server keeps its present part meanwhile.
	Fetch struct {
		Server  ServerID
		Version int
		Step    int
		Range   Range
		Pieces  []Part
	}
	// Adopt makes a server change to its part in a next layout, and forget all tasks.
	Adopt struct {
		Server  ServerID
		Version int
		Step    int
		Range   Range
	}
	// Stepped tells that a step is done by all servers. Loss is that of its whole batch, Redone the number of its slices
	// that more than one worker had to compute.
	Stepped struct {
		Step, Workers, Servers, Redone int
		Loss                           int64
	}
	// Moved tells that a layout is in force.
	Moved struct {
		Step   int
		Layout Layout
	}
	// Finished tells that the last step is done.
	Finished struct{ Layout Layout }
	// Broken tells that the training cannot go on. State does nothing after it.
	Broken struct{ Reason string }
	// DismissWorker lets a worker go: it has left, or the training is over.
	DismissWorker struct {
		Worker WorkerID
		Over   bool
	}
	// DismissServer lets a server go: it has left, or the training is over.
	DismissServer struct {
		Server ServerID
		Over   bool
	}
)

func (Assign) effect()        {}
func (Apply) effect()         {}
func (Fetch) effect()         {}
func (Adopt) effect()         {}
func (Stepped) effect()       {}
func (Moved) effect()         {}
func (Finished) effect()      {}
func (Broken) effect()        {}
func (DismissWorker) effect() {}
func (DismissServer) effect() {}
