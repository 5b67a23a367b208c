package sched

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// vector is the part that all cases have; the rest is decoded by kind.
type vector struct {
	Name  string            `json:"name"`
	Steps []json.RawMessage `json:"steps"`
}

// TestVectors runs every case of every file in testdata/vectors. The kind of a
// file is its name up to the first '-' or '.'.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("testdata/vectors/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("vectors: %d files, %v", len(files), err)
	}
	kinds := map[string]func(*testing.T, json.RawMessage){"dql": runDQL, "prioq": runPrioq, "stage": runStage}
	for _, file := range files {
		kind, _, _ := strings.Cut(filepath.Base(file), ".")
		kind, _, _ = strings.Cut(kind, "-")
		run := kinds[kind]
		if run == nil {
			t.Errorf("%s: no test for vectors of kind %q", file, kind)
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var cases []json.RawMessage
		if err := json.Unmarshal(b, &cases); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(cases) == 0 {
			t.Errorf("%s: no cases", file)
		}
		for i, c := range cases {
			var v vector
			decode(t, c, &v)
			if len(v.Steps) == 0 {
				t.Errorf("%s case %d: no steps", file, i)
			}
			t.Run(v.Name, func(t *testing.T) { run(t, c) })
		}
	}
}

func decode(t *testing.T, raw json.RawMessage, to any) {
	t.Helper()
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatal(err)
	}
}

// want fails with the case's name, the step's number and both states.
func want[S any](t *testing.T, step int, op string, got, want S) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: step %d (%s):\n got %+v\nwant %+v", t.Name(), step, op, got, want)
	}
}

type dqlState struct {
	Limit     uint32 `json:"limit"`
	Avail     int32  `json:"avail"`
	Queued    uint32 `json:"total_queued"`
	Completed uint32 `json:"total_completed"`
	Over      uint32 `json:"over_limit"`
	Lowest    uint32 `json:"lowest_slack"`
	Start     int64  `json:"slack_start"`
}

func dqlStateOf(d *DynamicLimit) dqlState {
	return dqlState{
		d.Limit(), d.Avail(), d.p.queued.Load(), d.c.completed, d.c.prevOver, d.c.lowestSlack, d.c.slackStart,
	}
}

// startAt puts the totals of a fresh limit to total.
func (d *DynamicLimit) startAt(total uint32) {
	d.p.queued.Store(total)
	d.p.adj.Store(total)
	d.c.completed, d.c.prevQueued = total, total
}

func runDQL(t *testing.T, raw json.RawMessage) {
	var c struct {
		Hold  int64  `json:"hold_ticks"`
		Start uint32 `json:"start_total"`
		Min   uint32 `json:"min_limit"`
		Max   uint32 `json:"max_limit"`
		Steps []struct {
			Op   string
			N    uint32
			T    int64
			Want dqlState
		}
	}
	decode(t, raw, &c)
	d, err := NewDynamicLimit(LimitOptions{Min: c.Min, Max: c.Max, Hold: c.Hold}, 0)
	if err != nil {
		t.Fatal(err)
	}
	d.startAt(c.Start)
	for i, s := range c.Steps {
		ok := false
		switch s.Op {
		case "queued":
			ok = d.Queued(s.N, s.T)
		case "completed":
			ok = d.Completed(s.N, s.T)
		}
		if !ok {
			t.Fatalf("step %d: %s(%d) was refused", i, s.Op, s.N)
		}
		want(t, i, fmt.Sprint(s.Op, " ", s.N), dqlStateOf(d), s.Want)
	}
}

func runPrioq(t *testing.T, raw json.RawMessage) {
	type state struct {
		Accepted  bool  `json:"accepted"`
		Dropped   []int `json:"dropped"`
		ID        int   `json:"id"`
		Len       int   `json:"len"`
		Bytes     int64 `json:"bytes"`
		PrioLen   int   `json:"prio_len"`
		PrioBytes int64 `json:"prio_bytes"`
	}
	var c struct {
		Rule       string
		MaxPackets int `json:"max_packets"`
		MaxBytes   int `json:"max_bytes"`
		Steps      []struct {
			Op       string
			ID       int
			Bytes    uint32
			Priority bool
			Want     state
		}
	}
	decode(t, raw, &c)
	rule, err := ParseRule(c.Rule)
	if err != nil {
		t.Fatal(err)
	}
	q, err := NewPriorityQueue[int](c.MaxPackets, c.MaxBytes, rule)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range c.Steps {
		var got state
		switch s.Op {
		case "enqueue":
			got.Dropped = []int{}
			got.Accepted = q.Room(s.Priority, func(id int, _ uint32, _ Eviction) { got.Dropped = append(got.Dropped, id) })
			if got.Accepted {
				q.Push(s.ID, s.Bytes, s.Priority)
			}
		case "dequeue":
			got.ID, _, _ = q.Pop()
		default:
			t.Fatalf("step %d: %q", i, s.Op)
		}
		got.Len, got.Bytes, got.PrioLen, got.PrioBytes = q.Len(), q.Bytes(), q.PriorityLen(), q.PriorityBytes()
		want(t, i, s.Op, got, s.Want)
	}
}

func runStage(t *testing.T, raw json.RawMessage) {
	type state struct {
		Handed  int `json:"handed"`
		Waiting int `json:"waiting"`
	}
	var c struct {
		MaxPackets int `json:"max_packets"`
		MaxBytes   int `json:"max_bytes"`
		Steps      []struct {
			Op    string
			Bytes uint32
			Want  state
		}
	}
	decode(t, raw, &c)
	st := NewStager(c.MaxPackets, c.MaxBytes)
	for i, s := range c.Steps {
		var got state
		switch s.Op {
		case "packet":
			got.Handed = st.Packet(s.Bytes)
		case "rollup":
			got.Handed = st.Rollup()
		default:
			t.Fatalf("step %d: %q", i, s.Op)
		}
		got.Waiting = st.Waiting()
		want(t, i, s.Op, got, s.Want)
	}
}
