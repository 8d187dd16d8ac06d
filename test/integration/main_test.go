package integration

import (
	"fmt"
	"os"
	"testing"

	"github.com/tandem-gpu/tandem/test/bubble"
	"github.com/tandem-gpu/tandem/test/silent"
)

func TestMain(m *testing.M) {
	bubble.Prepare()
	silent.Logs() // of the controllers and schedulers in this process
	os.Exit(m.Run())
}
