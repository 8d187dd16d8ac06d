package scenario

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Bounds, far above useful simulations.
const (
	maxNodes   = 100_000
	maxDevices = 128     // of a node, as in a GPUNode
	maxTotal   = 200_000 // devices of the cluster
	maxSlots   = 1000
	maxJobs    = 1_000_000
	maxWeight  = 1_000_000
	maxTime    = 10 * 8766 * time.Hour // ten years
	maxCores   = 1_000_000
	maxMemory  = vgpu.Bytes(1) << 50
)

// reader reads fields, and keeps the first error.
type reader struct {
	file string
	err  *Error
	// nodeLabels by the name of the node, then by key.
	nodeLabels map[string]map[string]string
}

// wrong notes an error, unless there is one already.
func (r *reader) wrong(path, found, want string) {
	if r.err == nil {
		r.err = &Error{File: r.file, Field: path, Found: found, Want: want}
	}
}

// whole reads a whole number.
func (r *reader) whole(path string, s scalar, from, to int64) int64 {
	n, err := strconv.ParseInt(string(s), 10, 64)
	if err != nil || n < from || n > to {
		r.wrong(path, quote(s), fmt.Sprintf("a whole number from %d to %d", from, to))
		return from
	}
	return n
}

// wholeOr reads a whole number, and takes another where nothing stands.
func (r *reader) wholeOr(otherwise int64, path string, s scalar, from, to int64) int64 {
	if s == "" {
		return otherwise
	}
	return r.whole(path, s, from, to)
}

// decimal is the form of numbers with a point; no exponents, no NaN, no infinity.
var decimalForm = regexp.MustCompile(`^-?[0-9]{1,12}(\.[0-9]{1,12})?$`)

func (r *reader) decimal(path string, s scalar, from, to float64) float64 {
	x, err := strconv.ParseFloat(string(s), 64)
	if err != nil || !decimalForm.MatchString(string(s)) || x < from || x > to || math.IsNaN(x) {
		r.wrong(path, quote(s), fmt.Sprintf("a decimal number from %s to %s", number(from), number(to)))
		return from
	}
	return x
}

// number writes a number without an exponent.
func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// duration reads a time such as 1h30m or 45s.
func (r *reader) duration(path string, s scalar, from time.Duration) time.Duration {
	d, err := time.ParseDuration(string(s))
	if err != nil || d < from || d > maxTime || d%time.Millisecond != 0 {
		r.wrong(path, quote(s), fmt.Sprintf("a time such as 1h30m from %v to %v in whole milliseconds", from, maxTime))
		return from
	}
	return d
}

// start reads a time from 0, which it is where nothing stands.
func (r *reader) start(path string, s scalar) time.Duration {
	if s == "" {
		return 0
	}
	return r.duration(path, s, 0)
}

// The forms of quantities: those of Kubernetes without signs and exponents.
var (
	cpuForm    = regexp.MustCompile(`^([0-9]{1,9}(\.[0-9]{1,3})?|[0-9]{1,12}m)$`)
	memoryForm = regexp.MustCompile(`^([0-9]{1,16}(\.[0-9]{1,3})?([kMGT]|[KMGT]i)|0)$`)
)

// cpu reads thousandths of cores from a quantity such as 4 or 500m.
func (r *reader) cpu(path string, s scalar) int64 {
	if s == "" {
		return 0
	}
	q, err := resource.ParseQuantity(string(s))
	if err != nil || !cpuForm.MatchString(string(s)) || q.Value() > maxCores {
		r.wrong(path, quote(s), fmt.Sprintf("CPU cores such as 4 or 500m from 0 to %d", maxCores))
		return 0
	}
	return q.MilliValue()
}

// memory reads bytes from a quantity such as 16Gi. The unit is required: people who write 16 do not mean 16 bytes.
func (r *reader) memory(path string, s scalar) vgpu.Bytes {
	if s == "" {
		return 0
	}
	q, err := resource.ParseQuantity(string(s))
	if err != nil || !memoryForm.MatchString(string(s)) || q.Value() > int64(maxMemory) {
		r.wrong(path, quote(s), "bytes with a unit, such as 16Gi or 512Mi, from 0 to 1Pi")
		return 0
	}
	return vgpu.Bytes(q.Value())
}

// nameForm is that of names in Kubernetes.
var nameForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// name reads a name that is free, and takes it.
func (r *reader) name(path string, s scalar, taken map[scalar]string) string {
	if !nameForm.MatchString(string(s)) {
		r.wrong(path, quote(s), "a name of up to 63 letters a-z, digits and -")
		return ""
	}
	if other := taken[s]; other != "" {
		r.wrong(path, quote(s), "a name that "+other+" does not have")
	}
	taken[s] = path
	return string(s)
}

// models reads names of GPU models, each once and known to the cluster.
func (r *reader) models(path string, list []scalar, known []string) []string {
	all := make([]string, 0, len(list))
	for i, s := range list {
		if !contains(known, string(s)) {
			r.wrong(at(path, i), quote(s), "a model of the cluster: "+orNone(known))
		}
		if contains(all, string(s)) {
			r.wrong(at(path, i), quote(s), "each model once")
		}
		all = append(all, string(s))
	}
	return all
}
