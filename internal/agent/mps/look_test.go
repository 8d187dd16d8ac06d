package mps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/test/must"
)

func TestStateOfAServer(t *testing.T) {
	for said, want := range map[string]ServerState{
		"ACTIVE": Active, "FAULT": Fault, "INITIALIZING": Initializing, "Active\n": Active,
		"Server 12 is in state FAULT": Fault, "ACTIVE (FAULT pending)": Fault, "FAULT, was ACTIVE": Fault,
		"": Unknown, "Server not found: 12": Unknown, "DEFAULT": Unknown, "INACTIVE": Unknown, "RECOVERING": Unknown,
	} {
		if got := state(said); got != want {
			t.Errorf("%q: %s, want %s", said, got, want)
		}
	}
}

func TestAnswersThatCouldBeReadInTwoWaysAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		guess []int
		said  string
		want  []Server
		ok    bool
	}{
		"no servers":      {nil, "", nil, true},
		"no client":       {[]int{7}, "7\nACTIVE\n", []Server{{7, Active, []int{}}}, true},
		"clients":         {[]int{7}, "7\nACTIVE\n70\n71\n", []Server{{7, Active, []int{70, 71}}}, true},
		"two servers":     {[]int{7, 8}, "7\n8\nACTIVE\n70\nFAULT\n80\n", []Server{{7, Active, []int{70}}, {8, Fault, []int{80}}}, true},
		"a new server":    {nil, "7\n", nil, false},
		"another server":  {[]int{7}, "8\nServer not found: 7\nServer not found: 7\n", nil, false},
		"one more":        {[]int{7}, "7\n8\nACTIVE\n70\n", nil, false},
		"a server less":   {[]int{7, 8}, "7\nACTIVE\n70\nServer not found: 8\nServer not found: 8\n", nil, false},
		"no state":        {[]int{7}, "7\n70\n", nil, false},
		"state of nobody": {[]int{7}, "7\n" + "ACTIVE\n" + "ACTIVE\n" + "70\n", nil, false},
		"unknown state":   {[]int{7}, "7\nRECOVERING\n70\n", nil, false},
		"list refused":    {[]int{7}, "7\nACTIVE\nServer not found: 7\n", nil, false},
		"other order":     {[]int{7, 8}, "8\n7\nACTIVE\n70\nFAULT\n80\n", nil, false},
	} {
		got, ok := answersTo(test.guess, test.said)
		if diff := cmp.Diff(test.want, got); diff != "" || ok != test.ok {
			t.Errorf("%s: %t, want %t; %s", name, ok, test.ok, diff)
		}
	}
}

// However many servers and clients there are, what the daemon says is read as it was meant, or not at all.
func TestAnswersAreReadAsTheyWereMeant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pid := rapid.IntRange(1, 30) // few, so that clients and servers share numbers
		servers := rapid.SliceOfNDistinct(pid, 0, 4, rapid.ID[int]).Draw(t, "servers")
		guess := servers
		if rapid.Bool().Draw(t, "wrong guess") {
			guess = rapid.SliceOfNDistinct(pid, 0, 4, rapid.ID[int]).Draw(t, "guess")
		}
		truth := map[int]Server{}
		var said strings.Builder
		for _, s := range servers {
			truth[s] = Server{PID: s, State: Active, Clients: rapid.SliceOfN(pid, 0, 3).Draw(t, "clients")}
			fmt.Fprintln(&said, s)
		}
		for _, g := range guess {
			s, ok := truth[g]
			// One that is not there is answered with silence or with a message, as the daemon likes.
			complaint := rapid.SampledFrom([]string{"", "Server not found\n"}).Draw(t, "complaint")
			if !ok {
				said.WriteString(complaint + complaint)
				continue
			}
			fmt.Fprintln(&said, "ACTIVE")
			for _, c := range s.Clients {
				fmt.Fprintln(&said, c)
			}
		}
		got, ok := answersTo(guess, said.String())
		if ok != slices.Equal(guess, servers) {
			t.Fatalf("guess %v of %v: read %t", guess, servers, ok)
		}
		for i, s := range got {
			if diff := cmp.Diff(truth[servers[i]], s); diff != "" {
				t.Fatalf("%q: %s", said.String(), diff)
			}
		}
	})
}

// program puts a script in the place of the control program. It answers each line of its standard input by the case
// statements; calls lists what it was asked, a line for each run.
func (n *node) program(cases string) (calls func() []string) {
	n.t.Helper()
	log := filepath.Join(n.dir, "asked")
	script := "#!/bin/sh\nasked=\nwhile read -r line; do\nasked=\"$asked$line;\"\ncase $line in\n" + cases + "\nesac\ndone\necho \"$asked\" >> " + log + "\n"
	must.OK(n.t, os.WriteFile(filepath.Join(n.dir, controlName), []byte(script), 0o755))
	n.t.Setenv("PATH", n.dir+":"+os.Getenv("PATH"))
	return func() []string {
		raw, err := os.ReadFile(log)
		must.OK(n.t, err)
		_ = os.Remove(log)
		return strings.Split(strings.TrimSpace(string(raw)), "\n")
	}
}

func TestLookRunsOnceWhereNothingChanged(t *testing.T) {
	n := newNode(t)
	calls := n.program(`get_server_list) echo 7;; get_server_status*) echo ACTIVE;; get_client_list*) echo 70; echo 71;;`)
	want := Daemon{Servers: []Server{{PID: 7, State: Active, Clients: []int{70, 71}}}}
	for i, asked := range [][]string{
		{"get_server_list;", "get_server_list;", "get_server_status 7;", "get_client_list 7;"},
		{"get_server_list;get_server_status 7;get_client_list 7;"},
	} {
		got, err := n.mps.Look(t.Context(), n.uuid)
		must.OK(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(asked, calls()); diff != "" {
			t.Errorf("look %d: %s", i, diff)
		}
	}
	must.OK(t, n.mps.Ready(t.Context(), n.uuid))
	if got := calls(); len(got) != 1 {
		t.Errorf("Ready asked %q, want one run", got)
	}
}

func TestLookAtARealDaemon(t *testing.T) {
	n := newNode(t)
	if _, err := n.mps.Look(t.Context(), n.uuid); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Look before Ensure: %v, want %v", err, ErrNotRunning)
	}
	pid := n.ensure()
	check := func(want ...Server) {
		t.Helper()
		for range 2 {
			got, err := n.mps.Look(t.Context(), n.uuid)
			must.OK(t, err)
			if diff := cmp.Diff(Daemon{PID: pid, Servers: want}, got); diff != "" {
				t.Error(diff)
			}
		}
	}
	check()
	first := n.server()
	check(Server{PID: first, State: Active, Clients: []int{}})
	n.say(fmt.Sprint("shutdown_server ", first))
	eventually(t, "the server is gone", func() bool { return n.say("get_server_list") == "" })
	check()
	check(Server{PID: n.server(), State: Active, Clients: []int{}})
}

func TestEndClientsByTheDaemonsAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		terminate string // what the daemon does for client 71
		ended     []int
		says      string
	}{
		"silence":              {`:`, []int{70, 71, 80}, ""},
		"code":                 {`echo 0`, []int{70, 71, 80}, ""},
		"code with its name":   {`echo "CUDA_SUCCESS (0)"`, []int{70, 71, 80}, ""},
		"gone by itself":       {`echo "Client not found"; touch gone71`, []int{70, 71, 80}, ""},
		"refused":              {`echo "not supported"`, []int{70, 80}, `client 71: terminate_client was refused: "not supported"`},
		"the daemon goes away": {`exit 1`, []int{70}, "client 71"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.program(`get_server_list) echo 7; echo 8;; get_server_status*) echo FAULT;;
get_client_list\ 7) echo 70; [ -e gone71 ] || echo 71; echo 72;; get_client_list\ 8) echo 80;;
terminate_client\ 7\ 71) ` + test.terminate + ` ;; terminate_client\ 7\ 70|terminate_client\ 8\ 80) ;;
*) echo "unexpected: $line";;`)
			t.Chdir(n.dir)
			ended, err := n.mps.EndClients(t.Context(), n.uuid, []int{80, 70, 71, 99})
			if diff := cmp.Diff(test.ended, ended); diff != "" {
				t.Error(diff)
			}
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("%v, want %q", err, test.says)
			}
		})
	}
}

// hangs is how long a command is waited for where some never end. Those that end take milliseconds, and longer on a busy machine.
const hangs = 30 * time.Second

// A command that hangs for one client leaves the others ended, and so do two with an answer between them. A daemon that
// answers none hangs itself. The cases wait beside each other.
func TestEndClientsWhereCommandsHang(t *testing.T) {
	const one = `get_server_list) echo 7;; get_server_status*) echo ACTIVE;; `
	type result struct {
		ended []int
		err   error
	}
	cases := []struct {
		name, answers string
		pids, ended   []int
		says          string
		tried         int // commands that end a client
		n             *node
		result        chan result
	}{
		{
			name: "one client", pids: []int{80, 70, 71, 99}, ended: []int{70, 80}, says: "client 71", tried: 3,
			answers: `get_server_list) echo 7; echo 8;; get_server_status*) echo FAULT;; get_client_list\ 7) seq 70 72;; get_client_list\ 8) echo 80;;
terminate_client\ 7\ 71) try; exec sleep 600;; terminate_client*) try;;`,
		},
		{
			name: "all clients", pids: numbers("70\n71\n72\n73\n74"), says: "client 70", tried: patience,
			answers: one + `get_client_list*) seq 70 90;; terminate_client*) try; exec sleep 600;;`,
		},
		{
			name: "two clients", pids: numbers("70\n71\n72\n73"), ended: []int{71, 73}, says: "client 72", tried: 4,
			answers: one + `get_client_list*) seq 70 73;; terminate_client\ 7\ 7[02]) try; exec sleep 600;; terminate_client*) try;;`,
		},
	}
	for i := range cases {
		c := &cases[i]
		c.n, c.result = newNode(t), make(chan result, 1)
		c.n.program(strings.ReplaceAll(c.answers, "try;", `echo "$line" >> `+c.n.dir+`/tried;`))
	}
	chosen := t.TempDir() // has the program that runs that of the node
	script := "#!/bin/sh\nexec \"${" + PipeVariable + "%/mps/*}/" + controlName + "\" \"$@\"\n"
	must.OK(t, os.WriteFile(filepath.Join(chosen, controlName), []byte(script), 0o755))
	t.Setenv("PATH", chosen+":"+os.Getenv("PATH"))
	for i := range cases {
		c := &cases[i]
		m, uuid := c.n.with(hangs), c.n.uuid
		go func() {
			ended, err := m.EndClients(t.Context(), uuid, c.pids)
			c.result <- result{ended, err}
		}()
	}
	for i := range cases {
		c := &cases[i]
		got := <-c.result
		if !slices.Equal(c.ended, got.ended) || !errors.Is(got.err, ErrNoAnswer) || !strings.Contains(got.err.Error(), c.says) {
			t.Errorf("%s: ended %v, %v; want %v, %v of %s", c.name, got.ended, got.err, c.ended, ErrNoAnswer, c.says)
		}
		raw, err := os.ReadFile(filepath.Join(c.n.dir, "tried"))
		if tried := strings.Count(string(raw), "\n"); err != nil || tried != c.tried {
			t.Errorf("%s: %d commands, %v; want %d", c.name, tried, err, c.tried)
		}
	}
}
