package integration

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/tandem-gpu/tandem/test/bubble"
	"github.com/tandem-gpu/tandem/test/silent"
)

// sideBySide is how many tests run at the same time where -parallel does not say: each has an API server of its own, and mostly
// waits for it. More take memory, of which an API server has half a gigabyte.
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
