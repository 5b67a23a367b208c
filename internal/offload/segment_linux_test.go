package offload

import (
	"testing"

	"github.com/netring/netring/internal/netlab"
)

func TestUDPSegmenter(t *testing.T) {
	lab := netlab.Setup(t, "a", "b")
	lab.Pair(t, "a", "a0", "b", "b0", netlab.VethOpts{})
	ns := lab.NS("a")
	for _, c := range []struct {
		on   bool
		want Segmenter
	}{{true, NotSegmented}, {false, KernelSegments}} {
		if err := ns.Offload("a0", map[string]bool{"tx-udp-segmentation": c.on}); err != nil {
			netlab.Skip(t, "cannot switch UDP segmentation: %v", err)
		}
		if err := ns.Do(func() error {
			got, err := UDPSegmenter("a0")
			if got != c.want {
				t.Errorf("tx-udp-segmentation %v: %v, want %v", c.on, got, c.want)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	if err := ns.Do(func() error { _, err := UDPSegmenter("nosuch0"); return err }); err == nil {
		t.Error("an interface that is not there has a segmenter")
	}
	for s, want := range map[Segmenter]string{segmenter("ice", map[string]bool{"tx-udp-segmentation": true}): "device", segmenter("tun", map[string]bool{"tx-udp-segmentation": true}): "peer-sees-super-frames", segmenter("ice", nil): "kernel"} {
		if s.String() != want {
			t.Errorf("%v, want %s", s, want)
		}
	}
}
