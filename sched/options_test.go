package sched

import (
	"slices"
	"testing"
	"time"
)

func TestOptions(t *testing.T) {
	tx, _ := newTx(t, txConfig{})
	clk := new(Clock)
	for _, o := range []Options{
		{StagePackets: -1}, {StageBytes: 10}, {StagePackets: 1, StageBytes: -1}, {QueuePackets: -1}, {QueueBytes: 5},
		{QueuePackets: 1 << 21}, {QueuePackets: 1, QueueBytes: 1<<30 + 1}, {Rule: 2}, {Full: 2}, {Watchdog: -1, Clock: clk},
		{Limit: true}, {Watchdog: 1}, {Limit: true, Clock: clk, LimitMin: 2, LimitMax: 1}, {LimitHold: 1},
		{Limit: true, Clock: clk, LimitStall: 2 * time.Millisecond}, {Limit: true, Clock: clk, LimitHold: -time.Second},
	} {
		if _, err := NewQueue(tx, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	rx, _ := newRx(t, 4, 256, 0)
	if _, err := NewQueue(rx, Options{}); err == nil {
		t.Error("a receive ring was accepted")
	}
	o := Defaults()
	o.Clock = clk
	q, err := NewQueue(tx, o)
	if err != nil {
		t.Fatal(err)
	}
	if m := q.Memory(); m < o.QueueBytes || m > 2<<20 {
		t.Errorf("a default queue takes %d bytes", m)
	}
}

func TestCPUMap(t *testing.T) {
	for name, c := range map[string]struct {
		m    CPUMap
		want []int
	}{
		"default":  {nil, []int{0, 0, 0, 0, 0, 0, 0, 0}},
		"mask 0":   {MapMask(0), []int{0, 0, 0, 0, 0, 0, 0, 0}},
		"mask 1":   {MapMask(1), []int{0, 1, 0, 1, 0, 1, 0, 1}},
		"mask 3":   {MapMask(3), []int{0, 1, 2, 3, 0, 1, 2, 3}},
		"modulo 3": {MapModulo(3), []int{0, 1, 2, 0, 1, 2, 0, 1}},
		"modulo 6": {MapModulo(6), []int{0, 1, 2, 3, 4, 5, 0, 1}},
	} {
		most := slices.Max(c.want)
		for cpu, want := range c.want {
			if got := c.m.Queue(cpu); got != want {
				t.Errorf("%s: cpu %d uses %d, want %d", name, cpu, got, want)
			}
		}
		cpus := []int{0, 1, 2, 3, 4, 5, 6, 7}
		if err := c.m.Validate(cpus, most+1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.m.Validate(cpus, most); err == nil {
			t.Errorf("%s: accepted for %d sub-queues", name, most)
		}
	}
	if MapModulo(0).Validate([]int{0}, 8) == nil {
		t.Error("modulo 0 was accepted")
	}
}
