// Command conns opens short TCP connections as fast as they come, or answers
// them. The client counts how many it completed and how long each took to
// connect, and prints that as JSON.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// result is what the client prints. Times are those of the handshake.
type result struct {
	Connections int     `json:"connections"`
	Failed      int     `json:"failed"`
	PerSecond   float64 `json:"per_second"`
	P50, P99    float64 // milliseconds
}

func main() {
	serve := flag.String("serve", "", "address to answer on")
	dial := flag.String("dial", "", "address to connect to")
	seconds := flag.Float64("seconds", 3, "how long the client goes on")
	parallel := flag.Int("parallel", 8, "connections at a time")
	flag.Parse()
	var err error
	switch {
	case *serve != "" && *dial == "" && flag.NArg() == 0:
		err = server(*serve)
	case *dial != "" && *serve == "" && *seconds > 0 && *parallel > 0 && flag.NArg() == 0:
		d := time.Duration(*seconds * float64(time.Second))
		err = json.NewEncoder(os.Stdout).Encode(client(*dial, d, *parallel))
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "conns:", err)
		os.Exit(1)
	}
}

// server greets each connection with a byte and waits for its end.
func server(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			if _, err := c.Write([]byte{'.'}); err == nil {
				_, _ = io.Copy(io.Discard, c) // ends with the client's reset
			}
		}()
	}
}

func client(addr string, d time.Duration, parallel int) result {
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		took   []time.Duration
		failed int
	)
	start := time.Now()
	end := start.Add(d)
	for range parallel {
		wg.Go(func() {
			for time.Now().Before(end) {
				t, err := connect(addr, end)
				mu.Lock()
				if err == nil {
					took = append(took, t)
				} else if time.Now().Before(end) {
					failed++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	r := result{Connections: len(took), Failed: failed, PerSecond: float64(len(took)) / time.Since(start).Seconds()}
	if slices.Sort(took); len(took) > 0 {
		r.P50 = took[len(took)/2].Seconds() * 1e3
		r.P99 = took[len(took)*99/100].Seconds() * 1e3
	}
	return r
}

// connect opens a connection, reads the greeting and resets it, so that
// neither end is left in TIME_WAIT.
func connect(addr string, end time.Time) (time.Duration, error) {
	start := time.Now()
	d := net.Dialer{Deadline: end}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	took := time.Since(start)
	defer c.Close()
	if err := c.(*net.TCPConn).SetLinger(0); err != nil {
		return 0, err
	}
	if err := c.SetDeadline(end); err != nil {
		return 0, err
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return took, err
}
