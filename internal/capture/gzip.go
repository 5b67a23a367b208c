package capture

import (
	"bufio"
	"compress/gzip"
	"io"
)

// zipped is a compressed file that remembers how it ended: readers of what is
// in it do not tell a file that is cut off from one that is not, if only its
// checksum is missing.
type zipped struct {
	z   *gzip.Reader
	err error
}

func (z *zipped) Read(b []byte) (n int, err error) {
	if n, err = z.z.Read(b); err != nil {
		z.err = err
	}
	return n, err
}

// plain returns b, or what is in it if it is compressed.
func (r *Reader) plain(b *bufio.Reader) (*bufio.Reader, error) {
	r.zip = nil
	magic, err := b.Peek(2)
	if err != nil {
		return nil, noEOF(err)
	}
	if magic[0] != 0x1f || magic[1] != 0x8b {
		return b, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, noEOF(err)
	}
	r.zip = &zipped{z: z}
	return bufio.NewReaderSize(r.zip, 1<<18), nil
}

// end is the error of a file whose packets have all been read.
func (r *Reader) end() error {
	if r.zip != nil && r.zip.err != nil {
		return r.zip.err
	}
	return io.EOF
}
