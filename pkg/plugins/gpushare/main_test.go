package gpushare

import (
	"os"
	"testing"

	logs "github.com/tandem-gpu/tandem/test/silent"
)

func TestMain(m *testing.M) {
	logs.Logs()
	os.Exit(m.Run())
}
