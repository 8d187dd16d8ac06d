package testkit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// line is the arguments of one command.
type line struct {
	request vgpu.Request
	policy  placement.Policy
	on      []vgpu.DeviceID
	self    vgpu.UID
	until   int64
	gang    gangLine
	seed    int64
	why     bool
	keep    bool
	input   string
}

// parseArgs reads the arguments: words without a value are the pod, its containers, "why" and "keep-budgets".
func parseArgs(args []datadriven.CmdArg) (*line, error) {
	l := &line{}
	for _, a := range args {
		err := error(nil)
		switch {
		case len(a.Vals) > 0:
			err = l.key(a.Key, a.Vals)
		case a.Key == "why":
			l.why = true
		case a.Key == "keep-budgets":
			l.keep = true
		case l.request.Pod == "":
			l.request.Pod, l.request.UID = a.Key, vgpu.UID(a.Key)
		default:
			err = l.container(a.Key)
		}
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}

// container reads "5" or "name:share"; the first container without a name is main.
func (l *line) container(w string) error {
	name, share, named := strings.Cut(w, ":")
	if !named {
		name, share = "main", w
	}
	c, err := parseShare(share)
	c.Name = name
	l.request.Containers = append(l.request.Containers, c)
	return err
}

func (l *line) key(key string, values []string) (err error) {
	switch key {
	case "on":
		for _, v := range values {
			l.on = append(l.on, vgpu.DeviceID(v))
		}
	case "policy":
		l.policy, err = placement.ByName(values[0])
	case "models":
		err = l.variants(values)
	case "seed":
		l.seed, err = strconv.ParseInt(values[0], 10, 64)
	case "cpu":
		l.request.Host.MilliCPU, err = parseCPU(values[0])
	case "memory":
		l.request.Host.Memory, err = ParseBytes(values[0])
	case "ends":
		l.request.Ends, err = strconv.ParseInt(values[0], 10, 64)
	case "until":
		l.until, err = strconv.ParseInt(values[0], 10, 64)
	case "self":
		l.self = vgpu.UID(values[0])
	case "priority":
		var n int64
		n, err = strconv.ParseInt(values[0], 10, 32)
		l.request.Priority = int32(n)
	case "compute-limit":
		var n int64
		n, err = strconv.ParseInt(values[0], 10, 32)
		l.request.ComputeLimit = vgpu.MilliGPU(n) * vgpu.WholeGPU / 100
	case "memory-limit":
		l.request.MemoryLimit, err = ParseBytes(values[0])
	default:
		return l.gangKey(key, values)
	}
	return err
}

// variants reads "A100", "A100:50%" and "A100:50%@3".
func (l *line) variants(words []string) error {
	for _, w := range words {
		v := vgpu.Variant{}
		w, cost, priced := strings.Cut(w, "@")
		model, percent, part := strings.Cut(w, ":")
		v.Model = model
		if part {
			n, err := strconv.ParseInt(strings.TrimSuffix(percent, "%"), 10, 32)
			if err != nil {
				return err
			}
			v.Compute = vgpu.MilliGPU(n) * vgpu.WholeGPU / 100
		}
		if priced {
			n, err := strconv.ParseInt(cost, 10, 64)
			if err != nil {
				return err
			}
			v.Cost = n
		}
		l.request.Variants = append(l.request.Variants, v)
	}
	return nil
}

// whatIf runs the commands of the input inside Cluster.WhatIf.
func (s *Script) whatIf(l *line) (string, error) {
	var b strings.Builder
	lines := strings.Split(strings.TrimSpace(l.input), "\n")
	rest := s.block(&b, lines, "")
	if len(rest) > 0 {
		return b.String(), fmt.Errorf("unexpected %q", rest[0])
	}
	return b.String(), nil
}

// block runs lines up to the "}" of its level inside a WhatIf, and returns what follows.
func (s *Script) block(b *strings.Builder, lines []string, indent string) (rest []string) {
	defer s.restoreHosts(s.hosts())
	s.cluster.WhatIf(func() {
		for len(lines) > 0 {
			text := strings.TrimSpace(lines[0])
			lines = lines[1:]
			if text == "}" {
				break
			}
			if text == "{" {
				lines = s.block(b, lines, indent+"  ")
				continue
			}
			s.step(b, text, indent)
		}
	})
	return lines
}

// step runs one line and checks the ledger.
func (s *Script) step(b *strings.Builder, text, indent string) {
	name, args, err := datadriven.ParseLine(text)
	var out string
	switch {
	case err != nil:
		out = fmt.Sprintf("error: %v\n", err)
	case slices.Contains([]string{"cluster", "sick", "heal", "whatif"}, name):
		out = fmt.Sprintf("error: %s makes another cluster, which no what-if undoes\n", name)
	default:
		out = s.Command(name, args, "")
	}
	if err := s.cluster.Check(); err != nil {
		out += fmt.Sprintf("error: the ledger is broken: %v\n", err)
	}
	for _, l := range strings.SplitAfter(strings.TrimRight(out, "\n"), "\n") {
		b.WriteString(indent + l)
	}
	b.WriteString("\n")
}
