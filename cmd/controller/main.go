// Command controller keeps running work at the right size.
//
// Its feature "elastic" chooses the number of members of elastic gangs and lets surplus members leave. The scheduler
// carries out the rest; the two agree through ElasticTargets alone.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	c := command()
	if err := c.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}
