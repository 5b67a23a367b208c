package nm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// optionRule says what an option of a port name takes.
type optionRule struct {
	kinds   []Kind
	deflt   string // key of "@name=value", empty if there is none
	keys    map[string]func(string) error
	refused string // why it is recognised and not done here
}

// optionRules are the options there are. It is a function and not a variable
// so that nobody can change it.
func optionRules(name string) (optionRule, bool) {
	any := []Kind{KindNetmap, KindXDP, KindVale, KindLagg}
	count := intIn(1, 1<<12)
	slots := powerOfTwo(1 << 20)
	onOff := oneOf("on", "off")
	switch name {
	case "conf":
		return optionRule{kinds: any, keys: map[string]func(string) error{
			"rings": count, "tx-rings": count, "rx-rings": count,
			"slots": slots, "tx-slots": slots, "rx-slots": slots,
			"host-rings": noHostRings, "host-tx-rings": noHostRings, "host-rx-rings": noHostRings,
		}}, true
	case "share":
		return optionRule{refused: "give the ports that shall share memory the same id, as @1"}, true
	case "tpacket":
		return optionRule{kinds: []Kind{KindNetmap, KindLagg, KindVale}, keys: map[string]func(string) error{
			"version": oneOf("2", "3"), "block-size": intIn(4096, 1<<26),
			"fanout": oneOf("hash", "lb", "cpu", "qm", "rollover"),
			"vnet":   onOff, "bypass": onOff, "promisc": onOff,
			"profile": oneOf("throughput", "latency", "lowmem"),
		}}, true
	case "xdp":
		return optionRule{kinds: []Kind{KindXDP}, keys: map[string]func(string) error{
			"mode": oneOf("auto", "native", "generic"), "zerocopy": oneOf("auto", "force", "never"),
			"frames": intIn(1, 1<<22), "frame-size": oneOf("2048", "4096"), "multibuf": onOff, "promisc": onOff,
			"coalesce": coalesce,
		}}, true
	case "lagg":
		// The selection has its own parser; here only the form is checked.
		return optionRule{kinds: []Kind{KindLagg}, keys: nil}, true
	case "vale":
		return optionRule{kinds: []Kind{KindVale}, keys: map[string]func(string) error{
			"full": oneOf("drop", "backpressure"),
		}}, true
	case "extmem":
		return optionRule{refused: "memory from a file is not offered: rings bring their own memory, see share"}, true
	case "offset":
		return optionRule{refused: "the offset of frames is the driver's; each slot has its own"}, true
	}
	return optionRule{}, false
}

// option reads one option, s being what follows its "@".
func (p *PortSpec) option(s string) (string, error) {
	text, rest := cut(s, "@")
	end := strings.IndexAny(text, "=:")
	name, body := text, ""
	if end >= 0 {
		name, body = text[:end], text[end:]
	}
	if name == "" {
		return "", errors.New("empty option after @")
	}
	rule, ok := optionRules(name)
	switch {
	case !ok:
		return "", fmt.Errorf("unknown option %q: there are conf, tpacket, xdp, lagg and vale", name)
	case rule.refused != "":
		return "", fmt.Errorf("option %s: %s", name, rule.refused)
	case !slices.Contains(rule.kinds, p.Kind):
		return "", fmt.Errorf("option %s does not go with a %s: port", name, p.Kind)
	case p.Option(name) != nil:
		return "", fmt.Errorf("option %s twice", name)
	}
	o := Option{Name: name}
	if err := o.body(body, rule); err != nil {
		return "", fmt.Errorf("option %s: %w", name, err)
	}
	p.Options = append(p.Options, o)
	return rest, nil
}

func (o *Option) body(body string, rule optionRule) error {
	switch {
	case body == "" || body == ":":
		return errors.New("no settings; write @" + o.Name + ":key=value")
	case body[0] == '=':
		if rule.deflt == "" {
			return errors.New("has no default key; write @" + o.Name + ":key=value")
		}
		return o.set(rule.deflt, body[1:], rule)
	}
	for kv := range strings.SplitSeq(body[1:], ",") {
		key, value, ok := strings.Cut(kv, "=")
		if !ok {
			return fmt.Errorf("%q: must be key=value", kv)
		}
		if err := o.set(strings.ReplaceAll(key, "_", "-"), value, rule); err != nil {
			return err
		}
	}
	return nil
}

func (o *Option) set(key, value string, rule optionRule) error {
	check, known := rule.keys[key]
	if rule.keys == nil {
		known = isID(strings.ReplaceAll(key, "-", "_"), false)
	}
	switch {
	case !known:
		return fmt.Errorf("unknown key %q", key)
	case value == "":
		return fmt.Errorf("%s has no value", key)
	}
	if _, twice := o.Get(key); twice {
		return fmt.Errorf("%s twice", key)
	}
	if check != nil {
		if err := check(value); err != nil {
			return fmt.Errorf("%s=%s: %w", key, value, err)
		}
	}
	o.Keys = append(o.Keys, KeyValue{key, value})
	return nil
}

// String is the option as it stands in a port name.
func (o *Option) String() string {
	var b strings.Builder
	b.WriteString("@" + o.Name)
	sep := ":"
	for _, kv := range o.Keys {
		b.WriteString(sep + kv.Key + "=" + kv.Value)
		sep = ","
	}
	return b.String()
}

func intIn(lo, hi int) func(string) error {
	return func(s string) error {
		if _, rest, err := number(s, lo, hi, "value"); err != nil || rest != "" {
			return fmt.Errorf("must be a number from %d to %d", lo, hi)
		}
		return nil
	}
}

func powerOfTwo(hi int) func(string) error {
	return func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > hi || n&(n-1) != 0 || s[0] == '+' || s[0] == '0' {
			return fmt.Errorf("must be a power of two up to %d", hi)
		}
		return nil
	}
}

func oneOf(words ...string) func(string) error {
	return func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("must be one of %s", strings.Join(words, ", "))
		}
		return nil
	}
}

// coalesce takes "off" or a duration, whose bounds are the driver's.
func coalesce(s string) error {
	if d, err := time.ParseDuration(s); s != "off" && (err != nil || d <= 0) {
		return errors.New("must be a duration such as 50us, or off")
	}
	return nil
}

func noHostRings(string) error {
	return errors.New("there are no host rings: the host's stack keeps receiving what the interface does")
}
