// Package silent keeps what klog logs out of the output of tests, where it would hide what a failing test says.
package silent

import (
	"flag"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Logs drops the output of klog from now on, unless the tests run with -v. TestMain calls it.
func Logs() {
	flag.Parse()
	if !testing.Verbose() {
		klog.SetLogger(logr.Discard())
	}
}
