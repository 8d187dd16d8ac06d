package mps

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	mebibyte vgpu.Bytes = 1 << 20
	gibibyte vgpu.Bytes = 1 << 30
)

// percent writes a share of the SMs. MPS takes 1 to 100 and rounds down to what the hardware can divide.
func percent(p int) string { return strconv.Itoa(min(max(p, 1), 100)) }

// megabytes writes a memory limit in one of the two documented forms, an integer with M (the other is G). The amount
// rounds down, so that shares never add up to more than the device has, and never to 0, which means no limit. Example:
// 5 GiB + 1 byte → "5120M"; 1 byte → "1M".
func megabytes(limit vgpu.Bytes) string {
	return strconv.FormatInt(int64(max(limit/mebibyte, 1)), 10) + "M"
}

// clientMemory is the limit of one device in a client's environment: "<uuid>=<n>M". The UUID means the same GPU
// whatever else the client sees.
func clientMemory(uuid string, limit vgpu.Bytes) string { return uuid + "=" + megabytes(limit) }

// samePercent compares the daemon's value ("50.0") with the wanted one.
func samePercent(shown string, want int) bool {
	p, err := strconv.ParseFloat(strings.TrimSpace(shown), 64)
	return err == nil && p == float64(want)
}

// sameMemory compares the daemon's limit with the wanted one. Some drivers show whole GiB, rounded down, from 1 GiB on:
// for "5120M" they say "5G", for "5000M" they say "4G". So a limit that is shown in G may be wrong by less than a GiB;
// one that was not taken shows as 0 or as nothing.
func sameMemory(shown string, want vgpu.Bytes) bool {
	shown = strings.TrimSpace(shown)
	if text, ok := strings.CutSuffix(shown, "G"); ok {
		n, err := strconv.ParseInt(text, 10, 32)
		return err == nil && n > 0 && vgpu.Bytes(n) == want/gibibyte
	}
	if text, ok := strings.CutSuffix(shown, "M"); ok {
		n, err := strconv.ParseInt(text, 10, 64)
		return err == nil && fmt.Sprintf("%dM", n) == megabytes(want)
	}
	return false
}
