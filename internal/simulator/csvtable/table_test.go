package csvtable

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestTooManyRows reads one row more than the bound.
func TestTooManyRows(t *testing.T) {
	text := "placement,local_bsz,step_time\n1,1,1\n" + strings.Repeat("1,1,1\n", MaxRows)
	tb, err := New(strings.NewReader(text), "t.csv")
	if err != nil {
		t.Fatal(err)
	}
	for tb.Next() {
	}
	const want = "read t.csv line 1048578: found one more row, want at most 1048576 rows"
	if tb.err == nil || tb.err.Error() != want || tb.rows != MaxRows {
		t.Errorf("%d rows, error %v, want %s", tb.rows, tb.err, want)
	}
}

// FuzzContent reads bytes that may be compressed: bytes that cannot be decompressed give an *Error.
func FuzzContent(f *testing.F) {
	f.Add([]byte("name\np\n"))
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := unzip(bytes.NewReader(data), "f.csv")
		if err == nil {
			_, err = io.ReadAll(r)
		}
		var own *Error
		if err != nil && (!errors.As(err, &own) || own.File != "f.csv") {
			t.Fatalf("error %#v", err)
		}
	})
}

// FuzzDetect gives headers, with their columns separated by commas.
func FuzzDetect(f *testing.F) {
	f.Add("name,cpu_milli,memory_mib,num_gpu,gpu_milli")
	f.Add("name,time,num_gpu")
	f.Add("")
	schemas := []Schema[int]{{Format: "pods", Needs: []string{"name", "num_gpu"}}, {Format: "jobs", Needs: []string{"name", "time"}}}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := detect(strings.Split(text, ","), schemas); (s == nil) != (err != nil) {
			t.Fatalf("schema %v, error %v", s, err)
		}
	})
}
