package lagg

import "sync/atomic"

// Counters of an [Egress]. Its worker adds to them once per batch; read them
// at any time.
type Counters struct {
	Frames [MaxMembers]atomic.Uint64 // handed to each member, copies of broadcasts included
	NoLink atomic.Uint64             // dropped, as no member could send (ring.DropLink)
	Moved  atomic.Uint64             // flows that were given to another member
	Kept   atomic.Uint64             // frames that stayed with a stand-in, so as not to be overtaken
}

// Status is a group at one moment, with its counters since the start, over all
// workers.
type Status struct {
	Proto   string         `json:"proto"`
	Members []MemberStatus `json:"members"`
	NoLink  uint64         `json:"no_link"` // see Counters
	Moved   uint64         `json:"moved"`
	Kept    uint64         `json:"kept"`
}

// MemberStatus is one member of a [Status].
type MemberStatus struct {
	Name    string `json:"name"`
	Link    bool   `json:"link"`    // the link is up
	Active  bool   `json:"active"`  // and in use: not held down
	Sends   bool   `json:"sends"`   // active, and of failover the one that sends
	Accepts bool   `json:"accepts"` // may deliver
	Downs   uint64 `json:"downs"`   // times that the link went down
	Frames  uint64 `json:"frames"`  // handed to it
}

// Status may be called by any goroutine.
func (g *Group) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.snap.Load()
	st := Status{Proto: g.opt.Proto.String()}
	for i, name := range g.names {
		m := MemberStatus{Name: name, Link: g.links[i].up, Active: s.active[i], Accepts: s.accept[i], Downs: g.links[i].downs}
		m.Sends = s.active[i] && (g.opt.Proto != Failover || s.sender == i)
		for _, e := range g.egresses {
			m.Frames += e.Stats.Frames[i].Load()
		}
		st.Members = append(st.Members, m)
	}
	for _, e := range g.egresses {
		st.NoLink += e.Stats.NoLink.Load()
		st.Moved += e.Stats.Moved.Load()
		st.Kept += e.Stats.Kept.Load()
	}
	return st
}
