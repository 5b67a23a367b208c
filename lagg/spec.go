package lagg

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Spec is a group as a user writes it.
type Spec struct {
	Members []string
	Options Options
}

// ParseSpec reads a group:
//
//	[ "lagg:" ] member { "+" member } [ "@lagg:" key "=" value { "," key "=" value } ]
//
// with the keys proto (failover, roundrobin, loadbalance, broadcast), stride,
// stride-bytes, hash (l2, l3, l4, joined by +), seed, symmetric, inner, flowid
// and rx-all (on or off), flowid-shift, weights (numbers joined by +), flowlet,
// holddown and holddown-max (durations such as 5ms), and primary (a member).
func ParseSpec(s string) (Spec, error) {
	sp, err := parseSpec(s)
	if err != nil {
		return Spec{}, fmt.Errorf("lagg: %q: %w", s, err)
	}
	return sp, nil
}

func parseSpec(s string) (sp Spec, err error) {
	body := strings.TrimPrefix(s, "lagg:")
	names, opts, has := strings.Cut(body, "@")
	for m := range strings.SplitSeq(names, "+") {
		if m == "" || strings.ContainsAny(m, " \t:/,=") {
			return sp, fmt.Errorf("member %q: write interfaces joined by +, as eth1+eth2", m)
		}
		if slices.Contains(sp.Members, m) {
			return sp, fmt.Errorf("member %s twice", m)
		}
		sp.Members = append(sp.Members, m)
	}
	if has {
		list, ok := strings.CutPrefix(opts, "lagg:")
		if !ok {
			return sp, fmt.Errorf("option %q: must be @lagg: with key=value, separated by commas", "@"+opts)
		}
		seen := map[string]bool{}
		for kv := range strings.SplitSeq(list, ",") {
			key, value, ok := strings.Cut(kv, "=")
			key = strings.ReplaceAll(key, "_", "-")
			switch {
			case !ok || value == "":
				return sp, fmt.Errorf("%q: must be key=value", kv)
			case seen[key]:
				return sp, fmt.Errorf("%s twice", key)
			}
			seen[key] = true
			if err := sp.set(key, value); err != nil {
				return sp, fmt.Errorf("%s=%s: %w", key, value, err)
			}
		}
	}
	return sp, sp.Options.Validate(len(sp.Members))
}

func (sp *Spec) set(key, value string) (err error) {
	o := &sp.Options
	switch key {
	case "proto":
		i := slices.Index(protoNames[:], value)
		if i < 0 {
			return fmt.Errorf("must be one of %s", strings.Join(protoNames[:], ", "))
		}
		o.Proto = Proto(i)
	case "stride":
		o.Stride, err = number32(value, 1, 1<<31)
	case "stride-bytes":
		o.StrideBytes, err = number32(value, minStrideBytes, 1<<31)
	case "hash":
		o.Hash, err = fields(value)
	case "seed":
		if o.Seed, err = strconv.ParseUint(value, 10, 64); err != nil || o.Seed == 0 || value[0] == '0' {
			err = errors.New("must be a number above 0, below 2^64")
		}
	case "symmetric":
		o.Symmetric, err = onOff(value)
	case "inner":
		o.Inner, err = onOff(value)
	case "flowid":
		o.FlowID, err = onOff(value)
	case "flowid-shift":
		var n uint32
		n, err = number32(value, 0, 31)
		o.FlowIDShift = uint8(n)
	case "weights":
		for w := range strings.SplitSeq(value, "+") {
			n, err := number32(w, 1, 1<<16)
			if err != nil {
				return err
			}
			o.Weights = append(o.Weights, n)
		}
	case "flowlet":
		o.FlowletGap, err = duration(value)
	case "holddown":
		if o.HoldDown, err = duration(value); o.HoldDown == 0 {
			o.HoldDown = -1
		}
	case "holddown-max":
		o.HoldDownMax, err = duration(value)
	case "primary":
		if o.Primary = slices.Index(sp.Members, value); o.Primary < 0 {
			return fmt.Errorf("must be one of the members, %s", strings.Join(sp.Members, ", "))
		}
	case "rx-all":
		o.RxAll, err = onOff(value)
	default:
		return errors.New("unknown key; there are proto, stride, stride-bytes, hash, seed, symmetric, inner, flowid, " +
			"flowid-shift, weights, flowlet, primary, rx-all, holddown and holddown-max")
	}
	return err
}

// String is the canonical form; it parses to an equal Spec.
func (sp Spec) String() string {
	o := &sp.Options
	var kv []string
	add := func(cond bool, format string, v any) {
		if cond {
			kv = append(kv, fmt.Sprintf(format, v))
		}
	}
	add(true, "proto=%v", o.Proto)
	add(o.Stride != 0, "stride=%d", o.Stride)
	add(o.StrideBytes != 0, "stride-bytes=%d", o.StrideBytes)
	add(o.Hash != 0, "hash=%s", o.Hash)
	add(o.Seed != 0, "seed=%d", o.Seed)
	add(o.Symmetric, "symmetric=%s", "on")
	add(o.Inner, "inner=%s", "on")
	add(o.FlowID, "flowid=%s", "on")
	add(o.FlowIDShift != 0, "flowid-shift=%d", o.FlowIDShift)
	add(o.Weights != nil, "weights=%s", strings.ReplaceAll(strings.Trim(fmt.Sprint(o.Weights), "[]"), " ", "+"))
	add(o.FlowletGap != 0, "flowlet=%v", o.FlowletGap)
	add(o.HoldDown != 0, "holddown=%v", max(o.HoldDown, 0))
	add(o.HoldDownMax != 0, "holddown-max=%v", o.HoldDownMax)
	if o.Primary != 0 {
		add(true, "primary=%s", sp.Members[o.Primary])
	}
	add(o.RxAll, "rx-all=%s", "on")
	return "lagg:" + strings.Join(sp.Members, "+") + "@lagg:" + strings.Join(kv, ",")
}

func (f Fields) String() string {
	var s []string
	for i, name := range []string{"l2", "l3", "l4"} {
		if f&(1<<i) != 0 {
			s = append(s, name)
		}
	}
	return strings.Join(s, "+")
}

func fields(s string) (f Fields, err error) {
	for name := range strings.SplitSeq(s, "+") {
		i := slices.Index([]string{"l2", "l3", "l4"}, name)
		if i < 0 || f&(1<<i) != 0 {
			return 0, errors.New("must be l2, l3, l4, each once, joined by +")
		}
		f |= 1 << i
	}
	return f, nil
}

func number32(s string, lo, hi uint64) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n < lo || n > hi || len(s) > 1 && s[0] == '0' || s[0] == '+' {
		return 0, fmt.Errorf("must be a number from %d to %d", lo, hi)
	}
	return uint32(n), nil
}

func onOff(s string) (bool, error) {
	switch s {
	case "on", "1":
		return true, nil
	case "off", "0":
		return false, nil
	}
	return false, errors.New("must be on or off (or 1 or 0)")
}

func duration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, errors.New("must be a duration such as 500us or 10ms")
	}
	return d, nil
}
