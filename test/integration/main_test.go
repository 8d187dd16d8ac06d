package integration

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/tandem-gpu/tandem/test/bubble"
	"github.com/tandem-gpu/tandem/test/silent"
)

// sideBySide is how many tests run at the same time where -parallel does not say. Those with an API server mostly wait for clocks and for each
// other: package sandbox bounds how many API servers run.
const sideBySide = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", sideBySide); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	bubble.Prepare()
	silent.Logs() // of the controllers and schedulers in this process
	os.Exit(m.Run())
}
