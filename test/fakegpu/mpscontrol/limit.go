package main

import (
	"fmt"
	"io"
	"strconv"
)

// percentage reads a percentage: above 0, at most 100.
func percentage(out io.Writer, args []string, at int) (float64, bool) {
	if len(args) == at+1 {
		if p, err := strconv.ParseFloat(args[at], 64); err == nil && p > 0 && p <= 100 {
			return p, true
		}
	}
	fmt.Fprintln(out, "Invalid active thread percentage")
	return 0, false
}

func (d *daemon) setDefaultPercent(out io.Writer, args []string) {
	if p, ok := percentage(out, args, 0); ok && !d.orders.IgnoreLimits {
		d.percent = p
	}
}

func (d *daemon) getDefaultPercent(out io.Writer, _ []string) { fmt.Fprintf(out, "%.1f\n", d.percent) }

func (d *daemon) setPercent(out io.Writer, args []string) {
	p, ok := percentage(out, args, 1)
	if !ok {
		return
	}
	if s := d.find(out, args[:1]); s != nil {
		s.percent = p
	}
}

func (d *daemon) getPercent(out io.Writer, args []string) {
	if s := d.find(out, args); s != nil {
		fmt.Fprintf(out, "%.1f\n", s.percent)
	}
}

const mib = 1 << 20

// limit reads "<n>G" or "<n>M", the two documented forms.
func limit(out io.Writer, args []string, at int) (uint64, bool) {
	if len(args) == at+1 && args[at] != "" {
		last := len(args[at]) - 1
		n, err := strconv.ParseUint(args[at][:last], 10, 32)
		if shift, ok := map[byte]int{'G': 30, 'M': 20}[args[at][last]]; ok && err == nil {
			return n << shift, true
		}
	}
	fmt.Fprintln(out, "Invalid device memory limit")
	return 0, false
}

// show writes a limit as drivers do: whole GiB from 1 GiB on, rounded down, and an empty line for none.
func show(out io.Writer, n uint64) {
	if n == 0 {
		fmt.Fprintln(out)
		return
	}
	if n >= 1024*mib {
		fmt.Fprintf(out, "%dG\n", n/(1024*mib))
		return
	}
	fmt.Fprintf(out, "%dM\n", n/mib)
}

// setDefaultLimit takes every device name without a check, as the real daemon does.
func (d *daemon) setDefaultLimit(out io.Writer, args []string) {
	if n, ok := limit(out, args, 1); ok && !d.orders.IgnoreLimits {
		d.limits[args[0]] = n
	}
}

func (d *daemon) getDefaultLimit(out io.Writer, args []string) {
	if len(args) == 1 {
		show(out, d.limits[args[0]])
	}
}

func (d *daemon) setLimit(out io.Writer, args []string) {
	n, ok := limit(out, args, 2)
	if !ok {
		return
	}
	if s := d.find(out, args[:1]); s != nil {
		s.limits[args[1]] = n
	}
}

func (d *daemon) getLimit(out io.Writer, args []string) {
	if len(args) != 2 {
		fmt.Fprintln(out, "usage: get_device_pinned_mem_limit <PID> <dev>")
		return
	}
	if s := d.find(out, args[:1]); s != nil {
		show(out, s.limits[args[1]])
	}
}
