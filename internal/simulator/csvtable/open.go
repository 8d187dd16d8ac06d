package csvtable

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
)

// MaxBytes bounds a file after decompression. The largest published one has 4 MB; a larger bound lets a small
// compressed file fill the memory.
const MaxBytes = 64 << 20

// gzipMagic is how every gzip file begins.
var gzipMagic = []byte{0x1f, 0x8b}

// Open opens a file for reading. It decompresses a file that begins as gzip does, whatever its name. Reading gives an
// *Error for broken gzip and beyond MaxBytes.
func Open(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open trace: %w", err)
	}
	r, err := unzip(f, path)
	if err != nil {
		f.Close()
		return nil, err
	}
	return content{Reader: &sized{r: r, file: path, left: MaxBytes}, Closer: f}, nil
}

// content is what a file has inside, with the file to close.
type content struct {
	io.Reader
	io.Closer
}

// unzip returns the content of r: decompressed if it is gzip, else as it is.
func unzip(r io.Reader, name string) (io.Reader, error) {
	b := bufio.NewReader(r)
	start, err := b.Peek(len(gzipMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("open trace: %w", err)
	}
	if !bytes.Equal(start, gzipMagic) {
		return b, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, brokenGzip(name, err)
	}
	return &zipped{z: z, file: name}, nil
}

func brokenGzip(name string, err error) *Error {
	return &Error{File: name, Value: fmt.Sprintf("broken gzip (%v)", err), Legal: "a whole gzip file"}
}

// zipped decompresses, and names the file in its errors.
type zipped struct {
	z    *gzip.Reader
	file string
}

func (z *zipped) Read(p []byte) (int, error) {
	n, err := z.z.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = brokenGzip(z.file, err)
	}
	return n, err
}

// sized refuses to read more than so many bytes.
type sized struct {
	r    io.Reader
	file string
	left int64
}

func (s *sized) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.left -= int64(n); s.left < 0 {
		return 0, &Error{
			File:  s.file,
			Value: fmt.Sprintf("more than %d bytes", MaxBytes),
			Legal: "at most so many after decompression",
		}
	}
	return n, err
}
