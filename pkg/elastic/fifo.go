package elastic

// elasticFIFO gives each job its least size in the order of the queue, where it fits, and then divides what is left: one
// size more for each in turn. It is Elastic-FIFO of Voda (github.com/heyfey/vodascheduler), which decides anew at each
// event and does not weigh what a change costs.
func elasticFIFO(_ *search, p *pool) []int {
	z := p.atLeast(nil)
	z.share(p.inOrder())
	return z.want
}
