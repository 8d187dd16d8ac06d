// Package wire is how the members of a training talk: messages over a stream, each with some bytes of numbers behind it.
//
// A message is a line of JSON with a length before it, and the numbers follow as they are. Nothing is encrypted and nobody is
// asked who he is: the members trust their network. A message that is too long ends the connection.
package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/group"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/model"
)

// Kind says what a message is about.
type Kind string

// Kinds of the first message of a connection.
const (
	// AsWorker opens the connection of a worker to the coordinator, with its Name. The answer is Welcome, with ID and Spec.
	AsWorker Kind = "worker"
	// AsServer opens that of a server to the coordinator, with the Address of its data. The answer is Welcome too.
	AsServer Kind = "server"
	// AsData opens a connection for data, to any server. It has no answer.
	AsData Kind = "data"
)

// Kinds of messages between a member and the coordinator.
const (
	Welcome Kind = "welcome"
	Beat    Kind = "beat"    // says that the sender lives
	Leave   Kind = "leave"   // the member wants to leave
	Dismiss Kind = "dismiss" // the member may go; Over tells that the training has ended
	Abort   Kind = "abort"   // the training is broken, for a Reason
	Assign  Kind = "assign"  // a worker gets a Task with Step and Slices; Parts is the layout
	Done    Kind = "done"    // all servers have the gradients of the Task; Loss
	Apply   Kind = "apply"   // a server applies the Tasks of a Step
	Applied Kind = "applied" // it has, with Step
	Fetch   Kind = "fetch"   // a server fetches Parts of its next Range, with Version and Step
	Fetched Kind = "fetched" // it has, with Version
	Adopt   Kind = "adopt"   // a server changes to its next Range, with Version and Step
	Adopted Kind = "adopted" // it has, with Version
)

// Kinds of messages about data, and their answers.
const (
	Read    Kind = "read"    // wants the parameters of a Range before a Step; the answer is Values
	Values  Kind = "values"  // the parameters
	Add     Kind = "add"     // has the gradients of a Range by a Task of a Step; the answer is Added
	Added   Kind = "added"   // the server has them
	Refused Kind = "refused" // the answer to what a server cannot do, with a Reason
)

// Part is a range of parameters and the address of the server that holds it; "" is the address of the coordinator.
type Part struct {
	Address string      `json:"address,omitempty"`
	Range   group.Range `json:"range"`
}

// Message is what one member tells another. Its Kind says which fields count.
type Message struct {
	Kind    Kind           `json:"kind"`
	ID      int            `json:"id,omitempty"`
	Name    string         `json:"name,omitempty"`
	Address string         `json:"address,omitempty"`
	Reason  string         `json:"reason,omitempty"`
	Over    bool           `json:"over,omitempty"`
	Spec    *model.Spec    `json:"spec,omitempty"`
	Version int            `json:"version,omitempty"`
	Step    int            `json:"step,omitempty"`
	Task    group.TaskID   `json:"task,omitempty"`
	Tasks   []group.TaskID `json:"tasks,omitempty"`
	Slices  []int          `json:"slices,omitempty"`
	Loss    int64          `json:"loss,omitempty"`
	Range   group.Range    `json:"range,omitzero"`
	Parts   []Part         `json:"parts,omitempty"`
}

// Bounds of a message, in bytes. The network of the largest width has 19 MiB of parameters.
const (
	maxText    = 1 << 20
	maxNumbers = 64 << 20
)

// Conn is a connection. Several goroutines may send; one receives.
type Conn struct {
	conn   net.Conn
	reader *bufio.Reader
	// Silence ends Receive when nothing has come for so long; 0 waits for ever.
	Silence time.Duration

	mu     sync.Mutex
	writer *bufio.Writer
}

// New returns a connection over a stream, which it owns.
func New(c net.Conn) *Conn {
	return &Conn{conn: c, reader: bufio.NewReaderSize(c, 64<<10), writer: bufio.NewWriterSize(c, 64<<10)}
}

// Close ends the connection; Send and Receive fail then.
func (c *Conn) Close() { c.conn.Close() }

// Limit bounds the time for all that is sent from now on.
func (c *Conn) Limit(d time.Duration) {
	_ = c.conn.SetWriteDeadline(time.Now().Add(d)) // it fails where the connection has ended, and so does Send
}

// LocalHost returns the host of the connection's own end.
func (c *Conn) LocalHost() string {
	host, _, err := net.SplitHostPort(c.conn.LocalAddr().String())
	if err != nil {
		return "" // a pipe has none
	}
	return host
}

// Send sends a message with numbers, which may be nil.
func (c *Conn) Send(m Message, numbers []byte) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("send %s: %w", m.Kind, err)
	}
	var head [8]byte
	binary.LittleEndian.PutUint32(head[:4], uint32(len(text)))
	binary.LittleEndian.PutUint32(head[4:], uint32(len(numbers)))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, part := range [][]byte{head[:], text, numbers} {
		if _, err := c.writer.Write(part); err != nil {
			return fmt.Errorf("send %s: %w", m.Kind, err)
		}
	}
	if err := c.writer.Flush(); err != nil {
		return fmt.Errorf("send %s: %w", m.Kind, err)
	}
	return nil
}

// Receive returns the next message and its numbers.
func (c *Conn) Receive() (Message, []byte, error) {
	until := time.Time{}
	if c.Silence > 0 {
		until = time.Now().Add(c.Silence)
	}
	if err := c.conn.SetReadDeadline(until); err != nil {
		return Message{}, nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(c.reader, head[:]); err != nil {
		return Message{}, nil, err
	}
	length, rest := binary.LittleEndian.Uint32(head[:4]), binary.LittleEndian.Uint32(head[4:])
	if length > maxText || rest > maxNumbers {
		return Message{}, nil, fmt.Errorf("receive message: %d bytes of text and %d of numbers are more than %d and %d", length, rest, maxText, maxNumbers)
	}
	all := make([]byte, length+rest)
	if _, err := io.ReadFull(c.reader, all); err != nil {
		return Message{}, nil, err
	}
	var m Message
	if err := json.Unmarshal(all[:length], &m); err != nil {
		return Message{}, nil, fmt.Errorf("receive message: %w", err)
	}
	return m, all[length:], nil
}

// Ask sends a message and returns the answer, which must be of a kind.
func (c *Conn) Ask(m Message, numbers []byte, want Kind) ([]byte, error) {
	if err := c.Send(m, numbers); err != nil {
		return nil, err
	}
	answer, values, err := c.Receive()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", m.Kind, err)
	case answer.Kind == Refused:
		return nil, fmt.Errorf("%s: refused: %s", m.Kind, answer.Reason)
	case answer.Kind != want:
		return nil, fmt.Errorf("%s: the answer is %q, not %q", m.Kind, answer.Kind, want)
	}
	return values, nil
}

// errLength tells of numbers that are not as many as they should be.
var errLength = errors.New("the numbers are not as many as the range has")

// Floats writes numbers of 4 bytes each into values.
func Floats(numbers []byte, values []float32) error {
	if len(numbers) != 4*len(values) {
		return errLength
	}
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(numbers[4*i:]))
	}
	return nil
}

// OfFloats returns values as numbers of 4 bytes each.
func OfFloats(values []float32) []byte {
	numbers := make([]byte, 4*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(numbers[4*i:], math.Float32bits(v))
	}
	return numbers
}

// Ints returns numbers of 4 bytes each as count values.
func Ints(numbers []byte, count int) ([]int32, error) {
	if len(numbers) != 4*count {
		return nil, errLength
	}
	values := make([]int32, count)
	for i := range values {
		values[i] = int32(binary.LittleEndian.Uint32(numbers[4*i:]))
	}
	return values, nil
}

// OfInts returns values as numbers of 4 bytes each.
func OfInts(values []int32) []byte {
	numbers := make([]byte, 4*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(numbers[4*i:], uint32(v))
	}
	return numbers
}
