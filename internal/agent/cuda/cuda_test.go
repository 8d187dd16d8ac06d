package cuda

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

// build makes the library of testdata and returns its path.
func build(t *testing.T, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), libraryName)
	source := filepath.Join("testdata", "libcuda.c")
	_, err := os.Stat(source) // so that Go's test cache knows of the file
	must.OK(t, err)
	args := append([]string{"-shared", "-fPIC", "-o", path, source}, flags...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// driver loads a library that fails as told and returns the function that lists the calls since.
func driver(t *testing.T, fail string, code int) (*Library, func() []string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	t.Setenv("FAKE_LOG", log)
	t.Setenv("FAKE_FAIL", fail)
	t.Setenv("FAKE_CODE", strconv.Itoa(code))
	l, err := open(build(t))
	must.OK(t, err)
	return l, func() []string {
		raw, err := os.ReadFile(log)
		must.OK(t, err)
		return strings.Fields(string(raw))
	}
}

var (
	entry = []string{"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"}
	work  = []string{"cuMemAlloc_v2", "cuMemsetD8_v2", "cuCtxSynchronize", "cuMemFree_v2"}
	exit  = []string{"cuDevicePrimaryCtxRelease_v2"}
)

func join(lists ...[]string) (all []string) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func TestExerciseDoesTheWorkAndGivesEverythingBack(t *testing.T) {
	l, calls := driver(t, "", 0)
	var before []string
	if err := l.Exercise(func() bool { before = calls(); return true }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(entry, before); diff != "" {
		t.Errorf("before connected: %s", diff)
	}
	if diff := cmp.Diff(join(entry, work, exit), calls()); diff != "" {
		t.Error(diff)
	}
}

func TestExerciseWithoutTheWordDoesNoWork(t *testing.T) {
	l, calls := driver(t, "", 0)
	must.OK(t, l.Exercise(func() bool { return false }))
	if diff := cmp.Diff(join(entry, exit), calls()); diff != "" {
		t.Error(diff)
	}
}

// After any failure the canary gives back what it took before, and the error names the call, the code and CUDA's name.
func TestEachFailureIsNamedAndCleanedUp(t *testing.T) {
	for fail, want := range map[string][]string{
		"cuInit":                       entry[:1],
		"cuDeviceGetCount":             entry[:2],
		"cuDeviceGet":                  entry[:3],
		"cuDevicePrimaryCtxRetain":     entry[:4],
		"cuCtxSetCurrent":              join(entry, exit),
		"cuMemAlloc_v2":                join(entry, work[:1], exit),
		"cuMemsetD8_v2":                join(entry, work[:2], work[3:], exit),
		"cuCtxSynchronize":             join(entry, work, exit),
		"cuMemFree_v2":                 join(entry, work, exit),
		"cuDevicePrimaryCtxRelease_v2": join(entry, work, exit),
	} {
		t.Run(fail, func(t *testing.T) {
			l, calls := driver(t, fail, 807)
			err := l.Exercise(func() bool { return true })
			if diff := cmp.Diff(want, calls()); diff != "" {
				t.Error(diff)
			}
			name, _, _ := strings.Cut(fail, "_v2")
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), name+": CUDA_ERROR_MPS_SERVER_NOT_READY (807): not ready") {
				t.Errorf("%v, want the call, the name and the code", err)
			}
		})
	}
}

func TestErrorOfANewerDriverIsStillClear(t *testing.T) {
	l, _ := driver(t, "cuInit", 4711)
	err := l.Exercise(func() bool { return true })
	if want := "cuInit: unknown error (4711): the driver has no text for it"; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestNoDeviceIsAnError(t *testing.T) {
	l, _ := driver(t, "", 0)
	t.Setenv("FAKE_NONE", "1")
	if err := l.Exercise(func() bool { return true }); !errors.Is(err, ErrNoDevice) {
		t.Errorf("%v, want %v", err, ErrNoDevice)
	}
}

func TestOpen(t *testing.T) {
	if _, err := open(filepath.Join(t.TempDir(), libraryName)); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("without the library: %v, want %v", err, ErrNoLibrary)
	}
	_, err := open(build(t, "-DWITHOUT_ERROR_STRING"))
	if err == nil || errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), "cuGetErrorString") {
		t.Errorf("with a function missing: %v, want an error that names it", err)
	}
	broken := filepath.Join(t.TempDir(), libraryName)
	must.OK(t, os.WriteFile(broken, []byte("not a library"), 0o755))
	if _, err := open(broken); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("with a broken library: %v, want %v", err, ErrNoLibrary)
	}
}

func TestWhatCodesMean(t *testing.T) {
	for code, want := range map[int]string{
		2: "full", 808: "full", 809: "full", 807: "not ready", 700: "fault", 719: "fault", 214: "fault", 806: "fault",
		34: "stub", 1: "", 46: "", 100: "", 701: "", 805: "", 999: "",
	} {
		e := &Error{Code: code}
		var got []string
		for name, is := range map[string]bool{"full": e.Full(), "not ready": e.NotReady(), "fault": e.Fault(), "stub": e.Stub()} {
			if is {
				got = append(got, name)
			}
		}
		if strings.Join(got, ",") != want {
			t.Errorf("code %d: %v, want %q", code, got, want)
		}
	}
}
