package wire

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/group"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/model"
)

func pipe(t *testing.T) (a, b *Conn, raw net.Conn) {
	t.Helper()
	x, y := net.Pipe()
	t.Cleanup(func() { x.Close(); y.Close() })
	return New(x), New(y), x
}

// A message arrives as it was sent, with its numbers.
func TestMessages(t *testing.T) {
	a, b, _ := pipe(t)
	for _, m := range []Message{
		{Kind: Beat},
		{Kind: Welcome, ID: 3, Spec: &model.Spec{Seed: 1 << 63, Width: 8, Batch: 4, Slices: 2, Rate: 0.1}},
		{Kind: Assign, Step: 7, Task: 12, Slices: []int{0, 4}, Parts: []Part{{Range: group.Range{To: 5}}, {Address: "10.0.0.1:7070", Range: group.Range{From: 5, To: 9}}}},
		{Kind: Apply, Tasks: []group.TaskID{1, 2}, Loss: -1 << 60},
	} {
		sent := make(chan error)
		go func() { sent <- a.Send(m, []byte{1, 2, 3}) }()
		got, numbers, err := b.Receive()
		if diff := cmp.Diff(m, got); diff != "" || err != nil || string(numbers) != "\x01\x02\x03" {
			t.Errorf("received %v with %v and %v (-want +got):\n%s", got, numbers, err, diff)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}
}

func TestNumbers(t *testing.T) {
	floats := []float32{0, -1.5, 3e38}
	got := make([]float32, 3)
	if err := Floats(OfFloats(floats), got); err != nil || !slices.Equal(got, floats) {
		t.Errorf("%v, %v, want %v", got, err, floats)
	}
	ints := []int32{0, -1, 1<<31 - 1}
	if got, err := Ints(OfInts(ints), 3); err != nil || !slices.Equal(got, ints) {
		t.Errorf("%v, %v, want %v", got, err, ints)
	}
	if Floats(make([]byte, 11), got) == nil {
		t.Error("11 bytes are taken for 3 numbers")
	}
	if _, err := Ints(make([]byte, 8), 3); err == nil {
		t.Error("8 bytes are taken for 3 numbers")
	}
}

// A message that claims to be too long, or that is no message, is an error. So is silence, where it is limited.
func TestBadMessages(t *testing.T) {
	head := func(text, numbers uint32) []byte {
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, text), numbers)
	}
	for _, c := range []struct {
		what  string
		bytes []byte
		want  string
	}{
		{"too much text", head(maxText+1, 0), "are more than"},
		{"too many numbers", head(2, maxNumbers+1), "are more than"},
		{"no JSON", append(head(2, 0), "no"...), "receive message: invalid"},
	} {
		_, b, raw := pipe(t)
		go raw.Write(c.bytes) //nolint:errcheck // the end of the pipe stops it
		if _, _, err := b.Receive(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
	_, b, _ := pipe(t)
	b.Silence = time.Millisecond
	if _, _, err := b.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("silence: %v", err)
	}
}

// Ask returns the numbers of the answer, and an error for a refusal or another answer.
func TestAsk(t *testing.T) {
	for _, c := range []struct {
		answer Message
		want   string
	}{
		{Message{Kind: Values}, ""},
		{Message{Kind: Refused, Reason: "too late"}, "read: refused: too late"},
		{Message{Kind: Added}, "read: the answer is \"added\", not \"values\""},
	} {
		a, b, _ := pipe(t)
		go func() {
			if _, _, err := b.Receive(); err == nil {
				_ = b.Send(c.answer, []byte{9})
			}
		}()
		numbers, err := a.Ask(Message{Kind: Read}, nil, Values)
		switch {
		case c.want == "" && (err != nil || string(numbers) != "\x09"):
			t.Errorf("%v, %v", numbers, err)
		case c.want != "" && (err == nil || err.Error() != c.want):
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// A server that is not server 0 refuses members, and Join says so when its time is up.
func TestJoinRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		c := New(conn)
		if _, _, err := c.Receive(); err == nil {
			_ = c.Send(Message{Kind: Refused, Reason: "not here"}, nil)
		}
	}()
	_, _, err = Join(t.Context(), listener.Addr().String(), 0, func(*Conn) Message { return Message{Kind: AsWorker} })
	if err == nil || !strings.Contains(err.Error(), "not here") {
		t.Errorf("%v", err)
	}
}
