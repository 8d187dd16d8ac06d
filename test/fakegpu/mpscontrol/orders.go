package main

// obey looks at the state file. An order that is new happens to the servers that run now.
func (d *daemon) obey() {
	s := d.state.State()
	if s == nil {
		return
	}
	was, wasLost := d.orders, d.lost
	d.orders, d.lost = s.Orders(d.device)
	if d.orders.Fault != was.Fault {
		d.faultNext = d.orders.Fault && len(d.servers) == 0
	}
	if d.orders.Wedge != was.Wedge {
		d.wedgeNext = d.orders.Wedge && len(d.servers) == 0
	}
	for _, s := range d.servers {
		if d.orders.Fault && !was.Fault || d.lost && !wasLost {
			d.fault(s, true)
		}
		if d.orders.Wedge && !was.Wedge {
			s.wedged = true
		}
		d.recover(s)
	}
}

// fault breaks a server and every client of it.
func (d *daemon) fault(s *server, ordered bool) {
	s.fault = true
	s.ordered = ordered && len(s.clients) == 0
	for _, c := range s.clients {
		c.broken = true
		c.say("fault")
	}
	d.log.print("Server %d is in FAULT", s.pid())
	d.publish()
}

// recover ends a server's FAULT when the last client from before it has gone.
func (d *daemon) recover(s *server) {
	if !s.fault || d.lost || s.ordered && d.orders.Fault {
		return
	}
	for _, c := range s.clients {
		if c.broken {
			return
		}
	}
	s.fault, s.ordered = false, false
	d.log.print("Server %d is active again", s.pid())
}
