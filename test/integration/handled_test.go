package integration

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// handled has the requests of clients answered by a handler in this process, without a connection.
type handled struct{ http.Handler }

// RoundTrip returns when the answer begins. The handler ends with it, or when the client closes the body.
func (h handled) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	reader, writer := io.Pipe()
	w := &pipeWriter{header: http.Header{}, body: writer, begun: make(chan struct{})}
	go func() {
		defer cancel()
		defer func() {
			if recover() != nil { // the handler cuts the connection
				w.cut = true
			}
			w.WriteHeader(http.StatusOK)
			_ = writer.CloseWithError(io.EOF) // never fails
		}()
		h.ServeHTTP(w, r.WithContext(ctx))
	}()
	select {
	case <-w.begun:
	case <-r.Context().Done():
		_ = reader.Close() // never fails
		return nil, r.Context().Err()
	}
	if w.cut {
		return nil, errors.New("the connection is cut")
	}
	stop := context.AfterFunc(r.Context(), func() { _ = reader.CloseWithError(r.Context().Err()) })
	return &http.Response{
		Status: http.StatusText(w.code), StatusCode: w.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
		Header: w.header, Body: pipeBody{reader, func() { stop(); cancel() }}, Request: r,
	}, nil
}

// pipeWriter is how a handler answers.
type pipeWriter struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	code   int
	cut    bool
	begun  chan struct{}
}

func (w *pipeWriter) Header() http.Header { return w.header }

// Flush has nothing to do: a client reads what is written.
func (w *pipeWriter) Flush() { w.WriteHeader(http.StatusOK) }

// WriteHeader begins the answer. Only the first call counts.
func (w *pipeWriter) WriteHeader(code int) {
	w.once.Do(func() {
		w.code = code
		close(w.begun)
	})
}

func (w *pipeWriter) Write(data []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(data)
}

type pipeBody struct {
	*io.PipeReader
	end func()
}

// Close ends the handler too.
func (b pipeBody) Close() error {
	b.end()
	return b.PipeReader.Close()
}
