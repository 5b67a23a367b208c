package ringtest

import (
	"bytes"
	"testing"
	"time"

	"github.com/netring/netring/ring"
)

// patience is how long the functions below wait. Only a test that fails takes
// so long: it is meant for the slowest machine.
const patience = 20 * time.Second

// Await syncs r, sleeping on its descriptor, until it has a slot for the
// program.
func Await(t testing.TB, r *ring.Ring) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
		if r.Space() > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: the %v ring has had no slot for %v", r.Port(), r.Dir(), patience)
		}
		r.Arm()
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
		if r.Space() == 0 {
			sleepOn(t, r, 20*time.Millisecond)
		}
	}
}

// Put writes frame into the next free slot of r, which it waits for, and passes
// it; r is not synced after that.
func Put(t testing.TB, r *ring.Ring, frame []byte) {
	t.Helper()
	if r.Space() == 0 {
		Await(t, r)
	}
	s := r.Slot(r.Head)
	s.Len, s.Flags = uint32(copy(r.Buf(r.Head), frame)), 0
	if int(s.Len) != len(frame) {
		t.Fatalf("%s: a frame of %d bytes does not fit a buffer", r.Port(), len(frame))
	}
	r.Head++
	r.Cur = r.Head
}

// Flush syncs r until all that was passed is done.
func Flush(t testing.TB, r *ring.Ring) {
	t.Helper()
	for deadline := time.Now().Add(patience); r.Pending() > 0; {
		if err := r.Sync(); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d frames have not been sent for %v", r.Port(), r.Pending(), patience)
		}
	}
}

// Get returns a copy of the next frame of r, which it waits for, with its slot
// and what the driver knows of it, and passes it.
func Get(t testing.TB, r *ring.Ring) ([]byte, ring.Slot, ring.Meta) {
	t.Helper()
	if r.Space() == 0 {
		Await(t, r)
	}
	var m ring.Meta
	r.Meta(r.Head, &m)
	b, s := bytes.Clone(r.Frame(r.Head)), *r.Slot(r.Head)
	r.Head++
	r.Cur = r.Head
	return b, s, m
}
