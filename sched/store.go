package sched

import "github.com/netring/netring/ring"

// chunkSize is the unit in which the store keeps payload: small enough that a
// minimum-size frame wastes little, large enough that an Ethernet MTU is three
// copies.
const chunkSize = 512

const noChunk = ^uint32(0)

// carried are the flags that a waiting frame keeps.
const carried = ring.SlotVnet | ring.SlotGSO | ring.SlotTruncated | ring.SlotVLAN |
	ring.SlotMulticast | ring.SlotBroadcast | ring.SlotOtherHost

// record is one waiting frame, without its bytes.
type record struct {
	length uint32
	chunk  uint32 // first of its chunks; next free record if unused
	flags  ring.SlotFlags
	vnet   ring.Vnet // with SlotVnet
}

// store keeps copies of frames that wait, in chunks of memory that was taken
// once. Frames leave it in any order. A handle names a frame in it.
type store struct {
	mem     []byte
	next    []uint32 // per chunk: the frame's next one, or the next free one
	records []record
	free    uint32 // chain of free chunks
	unused  uint32 // chain of unused records
}

// newStore makes a store for frames frames of bytes bytes in all.
func newStore(frames int, bytes int64) *store {
	chunks := storeChunks(frames, bytes)
	s := &store{mem: make([]byte, chunks*chunkSize), next: make([]uint32, chunks), records: make([]record, frames)}
	for i := range s.next {
		s.next[i] = uint32(i) + 1
	}
	s.next[chunks-1] = noChunk
	for i := range s.records {
		s.records[i].chunk = uint32(i) + 1
	}
	s.records[frames-1].chunk = noChunk
	return s
}

// storeChunks is the number of chunks that always suffices: each frame leaves
// less than one chunk unfilled.
func storeChunks(frames int, bytes int64) int64 {
	return int64(frames) + (bytes+chunkSize-1)/chunkSize
}

// put copies the frame in the slots slots of r from k; false if the store is
// full or a slot names memory outside of its buffer.
func (s *store) put(r *ring.Ring, k, slots uint32) (handle uint32, cause ring.Cause, ok bool) {
	handle = s.unused
	if handle == noChunk {
		return 0, ring.DropFull, false
	}
	rec := &s.records[handle]
	after := rec.chunk
	first := r.Slot(k)
	*rec = record{chunk: noChunk, flags: first.Flags & carried}
	if first.Flags&ring.SlotVnet != 0 && !r.Vnet(k, &rec.vnet) {
		rec.chunk = after
		return 0, ring.DropMalformed, false
	}
	s.unused = after
	w := writer{s: s, rec: rec, last: noChunk}
	for i := range slots {
		b := r.Frame(k + i)
		if b == nil {
			s.drop(handle)
			return 0, ring.DropMalformed, false
		}
		if !w.write(b) {
			s.drop(handle)
			return 0, ring.DropFull, false
		}
	}
	return handle, 0, true
}

// drop forgets a frame.
func (s *store) drop(handle uint32) {
	rec := &s.records[handle]
	for c := rec.chunk; c != noChunk; {
		next := s.next[c]
		s.next[c] = s.free
		s.free = c
		c = next
	}
	rec.chunk = s.unused
	s.unused = handle
}

// writer appends to a frame.
type writer struct {
	s    *store
	rec  *record
	last uint32 // its last chunk
}

func (w *writer) write(b []byte) bool {
	s := w.s
	for len(b) != 0 {
		at := w.rec.length % chunkSize
		if at == 0 {
			c := s.free
			if c == noChunk {
				return false
			}
			s.free = s.next[c]
			s.next[c] = noChunk
			if w.last == noChunk {
				w.rec.chunk = c
			} else {
				s.next[w.last] = c
			}
			w.last = c
		}
		o := int(w.last) * chunkSize
		n := copy(s.mem[o+int(at):o+chunkSize], b)
		w.rec.length += uint32(n)
		b = b[n:]
	}
	return true
}

// reader reads a frame from its start.
type reader struct {
	s     *store
	chunk uint32
	at    int
}

func (s *store) read(handle uint32) reader {
	return reader{s: s, chunk: s.records[handle].chunk}
}

// read fills b, which is no longer than what is left of the frame.
func (r *reader) read(b []byte) {
	for len(b) != 0 {
		o := int(r.chunk) * chunkSize
		n := copy(b, r.s.mem[o+r.at:o+chunkSize])
		b = b[n:]
		if r.at += n; r.at == chunkSize {
			r.chunk, r.at = r.s.next[r.chunk], 0
		}
	}
}
