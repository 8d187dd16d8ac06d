// Package must ends a test at the first step that fails, where the steps after it would mean nothing.
//
// It is for errors that say all by themselves. A test that has more to tell calls Fatalf.
package must

// T is what a test, a benchmark, a fuzz target and a rapid property have in common.
type T interface {
	Helper()
	Fatal(...any)
}

// OK ends the test with the error, if there is one.
func OK(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
