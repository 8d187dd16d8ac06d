package vgpu

import (
	"math"
	"strconv"
)

// MilliGPU is compute in thousandths of one device.
type MilliGPU int64

// Bytes is an amount of device memory.
type Bytes int64

// Slots counts slots of devices. A slot is 1/N of its device.
type Slots int64

// WholeGPU is the compute of one device.
const WholeGPU MilliGPU = 1000

// percent is the step of compute limits: MPS takes whole percents of a device.
const percent = WholeGPU / 100

// ComputeOf returns the compute of k slots of a device with n slots, rounded up to a whole percent. MPS limits are
// whole percents, and MPS must not throttle a share below its request. Example: 3 of 7 slots are 42.86 %, so 430.
//
// Rounding up has a price. If n does not divide 100, the limits of a full device add up to more than WholeGPU, by less
// than one percent per share (seven shares of 1/7 have 150 each, 1050 together).
func ComputeOf(k, n Slots) MilliGPU {
	return MilliGPU((100*k+n-1)/n) * percent
}

// MemoryOf returns k/n of total, rounded down, without overflow for n below 2³¹. Example: 3 of 7 slots of 16 GiB are
// floor(16 GiB × 3 / 7) = 7362801078 bytes.
func MemoryOf(total Bytes, k, n Slots) Bytes {
	whole, rest := int64(total)/int64(n), int64(total)%int64(n)
	return Bytes(whole*int64(k) + rest*int64(k)/int64(n))
}

// Sum returns a + b, saturated at the largest or least number of 64 bits. Example: the sum of two amounts of 2⁶³ − 1 is
// 2⁶³ − 1, and not −2.
func Sum[T ~int64](a, b T) T {
	switch s := a + b; {
	case a > 0 && b > 0 && s < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && s >= 0:
		return math.MinInt64
	default:
		return s
	}
}

// Difference returns a − b, saturated at the largest or least number of 64 bits.
func Difference[T ~int64](a, b T) T {
	switch d := a - b; {
	case a >= 0 && b < 0 && d < 0:
		return math.MaxInt64
	case a < 0 && b > 0 && d >= 0:
		return math.MinInt64
	default:
		return d
	}
}

// Units of memory.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

// String writes the amount as a Kubernetes quantity where it is exact ("16Gi", "1536Mi"), else with two decimals
// ("6.86Gi").
func (b Bytes) String() string {
	switch {
	case b%GiB == 0 && b != 0:
		return strconv.FormatInt(int64(b/GiB), 10) + "Gi"
	case b%MiB == 0 && b != 0:
		return strconv.FormatInt(int64(b/MiB), 10) + "Mi"
	case b >= GiB:
		return strconv.FormatFloat(float64(b)/float64(GiB), 'f', 2, 64) + "Gi"
	case b >= MiB:
		return strconv.FormatFloat(float64(b)/float64(MiB), 'f', 2, 64) + "Mi"
	}
	return strconv.FormatInt(int64(b), 10)
}

// String writes the amount in percent of a device: "30%", "42.5%".
func (m MilliGPU) String() string {
	return strconv.FormatFloat(float64(m)/float64(percent), 'f', -1, 64) + "%"
}
