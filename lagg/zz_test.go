package lagg
import ("testing";"math/bits";"encoding/binary";"github.com/cespare/xxhash/v2")
func mum(a,b uint64) uint64 { h,l := bits.Mul64(a,b); return h^l }
func mumSum(b []byte, s uint64) uint64 {
	le := binary.LittleEndian
	n := uint64(len(b))
	for len(b) >= 16 { s = mum(le.Uint64(b)^0xa0761d6478bd642f, le.Uint64(b[8:])^s); b = b[16:] }
	var x, y uint64
	if len(b) >= 8 { x = le.Uint64(b); b = b[8:] }
	for i, c := range b { y |= uint64(c)<<(8*i) }
	return mum(x^0xe7037ed1a0b428db, y^s^n)
}
var sink uint64
func BenchmarkH(b *testing.B) {
	buf := make([]byte, 80)
	for _, n := range []int{16, 24,32,40,56,64} {
		b.Run("xx", func(b *testing.B){ k := buf[:n]; for b.Loop() { sink += xxhash.Sum64(k) } ; b.ReportMetric(float64(n),"bytes")})
		b.Run("mum", func(b *testing.B){ k := buf[:n]; for b.Loop() { sink += mumSum(k, 1) }; b.ReportMetric(float64(n),"bytes") })
	}
}
