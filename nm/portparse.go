package nm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// prefix sets Kind and Switch and returns what follows the colon.
func (p *PortSpec) prefix(s string) (string, error) {
	if s == "" {
		return "", errors.New("empty; give an interface (eth0) or a port (netmap:eth0, vale0:a, pcap:file)")
	}
	end := strings.IndexAny(s, ":/@^*{}[")
	if end < 0 || s[end] != ':' {
		return s, nil // a bare interface name
	}
	pre := s[:end]
	for k, name := range kindPrefix {
		if pre == name && Kind(k) != KindVale {
			p.Kind = Kind(k)
			return s[end+1:], nil
		}
	}
	if id, ok := strings.CutPrefix(pre, "vale"); ok {
		if !isID(id, true) {
			return "", fmt.Errorf("switch %q: an id of letters, digits and _ follows vale", pre)
		}
		p.Kind, p.Switch = KindVale, pre
		return s[end+1:], nil
	}
	return "", fmt.Errorf("unknown prefix %q: use netmap, xdp, vale with an id, lagg or pcap", pre+":")
}

// name sets Name and the pipe and returns what follows.
func (p *PortSpec) name(s string) (string, error) {
	var err error
	if len(s) > 0 && s[0] == bracketed {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", errors.New("bracket [ is not closed by ]")
		}
		p.Name, s = s[1:end], s[end+1:]
		if strings.ContainsAny(p.Name, "/:[ \t\n\v\f\r") || p.Name == "." || p.Name == ".." {
			return "", fmt.Errorf("%q is no interface name", p.Name)
		}
	} else {
		n := strings.IndexAny(s, "*^/@{}")
		if n < 0 {
			n = len(s)
		}
		n = ringSuffix(s[:n])
		p.Name, s = s[:n], s[n:]
		if err := checkName(p.Name); err != nil {
			return "", err
		}
	}
	if p.Name == "" {
		return "", errors.New("empty name")
	}
	if s, err = p.pipe(s); err != nil {
		return "", err
	}
	if total := len(p.Switch) + len(p.Name) + len(p.Pipe); total > maxName {
		return "", fmt.Errorf("name of %d bytes: at most %d", total, maxName)
	}
	if p.Kind != KindVale && p.Pipe == "" && len(p.Name) > maxIfName {
		return "", fmt.Errorf("interface name of %d bytes: at most %d", len(p.Name), maxIfName)
	}
	return s, nil
}

// ringSuffix returns where in s a ring suffix "-N" starts, or the length of s.
// A lone trailing dash counts as one, so that it is refused.
func ringSuffix(s string) int {
	i := strings.LastIndexByte(s, '-')
	if i < 0 || strings.Trim(s[i+1:], "0123456789") != "" {
		return len(s)
	}
	return i
}

func checkName(s string) error {
	for _, c := range []byte(s) {
		if !isAlnum(c) && !strings.ContainsRune("_.~-", rune(c)) {
			return fmt.Errorf("character %q in name: use letters, digits and _.~- or write the name in brackets, [%s]", c, s)
		}
	}
	return nil
}

func checkMembers(s string) error {
	seen := map[string]bool{}
	for m := range strings.SplitSeq(s, "+") {
		if m == "" {
			return errors.New("empty member name; write lagg:eth1+eth2")
		}
		if len(m) > maxIfName {
			return fmt.Errorf("member name of %d bytes: at most %d", len(m), maxIfName)
		}
		if err := checkName(m); err != nil {
			return err
		}
		if seen[m] {
			return fmt.Errorf("member %s twice", m)
		}
		seen[m] = true
	}
	return nil
}

func (p *PortSpec) pipe(s string) (string, error) {
	if s == "" || s[0] != '{' && s[0] != '}' {
		return s, nil
	}
	if p.Kind == KindXDP {
		return "", errors.New("a pipe has no AF_XDP, use the prefix netmap")
	}
	p.Slave = s[0] == '}'
	n := 1
	for n < len(s) && isIDChar(s[n]) {
		n++
	}
	if n == 1 {
		return "", errors.New("no pipe id after the brace")
	}
	p.Pipe = s[1:n]
	return s[n:], nil
}

// rings sets Select and Ring and returns what follows.
func (p *PortSpec) rings(s string) (string, error) {
	if s == "" {
		return s, nil
	}
	var err error
	switch s[0] {
	case '*':
		p.Select, s = AllAndHost, s[1:]
	case '^':
		p.Select, s = HostRings, s[1:]
		if s != "" && isDigit(s[0]) {
			p.Select = OneHostRing
			p.Ring, s, err = number(s, 0, maxRing, "host ring")
		}
	case '-':
		p.Select = OneRing
		p.Ring, s, err = number(s[1:], 0, maxRing, "ring")
	}
	return s, err
}

// suffixes reads flags, the memory id and options.
func (p *PortSpec) suffixes(s string) error {
	for s != "" {
		var err error
		switch {
		case s[0] == '/' && p.Kind != KindPcap && p.Kind != KindLagg:
			s, err = p.flags(s[1:])
		case s[0] == '@' && len(s) > 1 && isDigit(s[1]):
			var id int
			id, s, err = number(s[1:], 1, maxMemID, "memory id")
			if err == nil && p.MemID != 0 && p.MemID != id {
				err = fmt.Errorf("memory id %d and %d", p.MemID, id)
			}
			p.MemID = id
		case s[0] == '@':
			s, err = p.option(s[1:])
		default:
			err = fmt.Errorf("unexpected %q", s)
		}
		if err != nil {
			return err
		}
	}
	if p.Flags&RXOnly != 0 && p.Flags&TXOnly != 0 {
		return errors.New("/R and /T exclude each other")
	}
	return nil
}

func (p *PortSpec) flags(s string) (string, error) {
	n := 0
	for n < len(s) && s[n] != '/' && s[n] != '@' {
		i := strings.IndexByte(flagLetters, s[n])
		if i < 0 {
			return "", fmt.Errorf("unknown flag %q: use x, R, T, r, t or z", s[n])
		}
		p.Flags |= 1 << i
		n++
	}
	if n == 0 {
		return "", errors.New("no flag after /: use x, R, T, r, t or z")
	}
	return s[n:], nil
}

// number reads a decimal number without sign or leading zeros from the start
// of s.
func number(s string, lo, hi int, what string) (n int, rest string, err error) {
	i := 0
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	if i == 0 {
		return 0, "", fmt.Errorf("no %s number", what)
	}
	n, err = strconv.Atoi(s[:i])
	if err != nil || n < lo || n > hi || i > 1 && s[0] == '0' {
		return 0, "", fmt.Errorf("%s %s: must be a number from %d to %d", what, s[:i], lo, hi)
	}
	return n, s[i:], nil
}

// cut splits s before the first sep.
func cut(s, sep string) (before, after string) {
	if i := strings.Index(s, sep); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isAlnum(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
func isIDChar(c byte) bool { return isAlnum(c) || c == '_' }

func isID(s string, empty bool) bool {
	for i := range len(s) {
		if !isIDChar(s[i]) {
			return false
		}
	}
	return empty || s != ""
}
