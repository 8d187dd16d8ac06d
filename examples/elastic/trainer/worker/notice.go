package worker

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"
)

// AnnotationLeaving is the annotation of a pod that is about to be evicted; the value is a time.
const AnnotationLeaving = "tandem-gpu.io/leaving-at"

// readNotice is the pause between two looks at the file with the notice. The kubelet writes it anew when an annotation changes.
const readNotice = 200 * time.Millisecond

var (
	errNotice = errors.New("the pod has a notice of its eviction")
	errSignal = errors.New("the process is to end")
)

// noticed reports whether the pod has a notice of its eviction. A file that is not there has none.
func (o Options) noticed() bool {
	if o.Notice == "" {
		return false
	}
	text, err := os.ReadFile(o.Notice)
	return err == nil && hasNotice(string(text))
}

// hasNotice reports whether annotations, as a downwardAPI volume has them, have a notice: lines of key="value".
func hasNotice(text string) bool {
	for line := range strings.Lines(text) {
		key, quoted, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || key != AnnotationLeaving {
			continue
		}
		value, err := strconv.Unquote(quoted)
		return err == nil && value != ""
	}
	return false
}

// awaitNoNotice waits while the pod has a notice.
func (o Options) awaitNoNotice(ctx context.Context) error {
	for ctx.Err() == nil && o.noticed() {
		pause(ctx, readNotice)
	}
	if ctx.Err() != nil {
		return ErrLeft
	}
	return nil
}

// untilNotice returns a context that is done when the worker is to leave, with the reason as its cause.
func (o Options) untilNotice(ctx context.Context) (context.Context, context.CancelFunc) {
	wanted, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { end(errSignal) })
	if o.Notice != "" {
		go func() {
			for pause(wanted, readNotice) {
				if o.noticed() {
					end(errNotice)
				}
			}
		}()
	}
	return wanted, func() { stop(); end(nil) }
}
