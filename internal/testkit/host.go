package testkit

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// parseRoom reads "cpu=64" or "cpu=500m", and "memory=256Gi"; a missing one is zero.
func parseRoom(words []string) (r vgpu.Room, err error) {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "cpu":
			r.MilliCPU, err = parseCPU(value)
		case "memory":
			r.Memory, err = ParseBytes(value)
		default:
			err = fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// parseCPU reads cores, or with "m" thousandths of a core.
func parseCPU(w string) (int64, error) {
	digits, milli := strings.CutSuffix(w, "m")
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("read CPU %q: %w", w, err)
	}
	if milli {
		return n, nil
	}
	return 1000 * n, nil
}

// drawRoom writes the amounts that are not zero, as parseRoom reads them.
func drawRoom(r vgpu.Room) string {
	s := ""
	switch {
	case r.MilliCPU == 0:
	case r.MilliCPU%1000 == 0:
		s += fmt.Sprintf(" cpu=%d", r.MilliCPU/1000)
	default:
		s += fmt.Sprintf(" cpu=%dm", r.MilliCPU)
	}
	if r.Memory != 0 {
		s += " memory=" + drawBytes(r.Memory)
	}
	return s
}

// drawBytes writes an amount exactly.
func drawBytes(b vgpu.Bytes) string {
	if b%vgpu.GiB == 0 {
		return fmt.Sprintf("%dGi", b/vgpu.GiB)
	}
	return strconv.FormatInt(int64(b), 10)
}

// ParseMix reads a line per usual request: "slots=5 cpu=2 memory=4Gi device-memory=20Gi models=A|B weight=3"; only the weight is required.
func ParseMix(text string) (*fragmentation.Mix, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	kinds := make([]fragmentation.Kind, 0, len(lines))
	for number, line := range lines {
		k, err := parseKind(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		kinds = append(kinds, k)
	}
	return fragmentation.NewMix(kinds)
}

func parseKind(words []string) (k fragmentation.Kind, err error) {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "slots":
			var n int64
			n, err = strconv.ParseInt(value, 10, 64)
			k.Slots = vgpu.Slots(n)
		case "cpu":
			k.MilliCPU, err = parseCPU(value)
		case "memory":
			k.Memory, err = ParseBytes(value)
		case "device-memory":
			k.DeviceMemory, err = ParseBytes(value)
		case "models":
			k.Models = value
		case "weight":
			k.Weight, err = strconv.ParseInt(value, 10, 64)
		default:
			err = fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return k, err
		}
	}
	return k, nil
}
