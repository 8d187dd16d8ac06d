package main

import (
	"context"
	"fmt"
)

// scene is one step of the story of a notebook, a training and a fleet that share two nodes.
type scene struct {
	what string
	do   func(context.Context) error
	// workers are the Job's after it, and replicas those of the fleet's variants; nil before there is a fleet.
	workers  int
	replicas []int64
	// event is the reason of the event that tells what happened to the notebook, "" for none.
	event string
	nodes []string
}

const firstNode, secondNode = "a100-1", "a100-2"

// story is what happens after the pods run.
func (c *cluster) story() []scene {
	train, both := []string{firstNode}, []string{firstNode, secondNode}
	few, many := []int64{1, 0}, []int64{1, 1}
	return []scene{
		{what: "train-vision ends, and train-huge takes its place; jane submits the Job", do: c.beginElastic, workers: 2, nodes: train},
		{what: "train-huge ends", do: func(ctx context.Context) error { return c.remove(ctx, "train-huge") }, workers: 4, nodes: train},
		{what: "jane opens the notebook " + parkedNotebook + ", and makes the fleet " + fleetName + fmt.Sprintf(": %d requests a second arrive", requestsFew),
			do: c.beginServing, workers: 4, replicas: few, nodes: both},
		{what: fmt.Sprintf("the load of the fleet rises to %d requests a second", requestsMany), do: c.arrive(requestsMany), workers: 2, replicas: many, nodes: train},
		{what: "a cell of " + parkedNotebook + " ends, and nothing works there for a minute: it is parked, and " + nextNotebook + " gets its share", do: c.parkNotebook,
			workers: 2, replicas: many, event: "NotebookParked", nodes: []string{secondNode}},
		{what: fmt.Sprintf("the load of the fleet falls to %d requests a second", requestsFew), do: c.arrive(requestsFew), workers: 4, replicas: few, nodes: train},
		{what: "somebody opens the page of " + parkedNotebook + ": the training gives it a place", do: c.wakeNotebook,
			workers: 3, replicas: few, event: "NotebookWoken", nodes: both},
	}
}

// arrive has so many requests a second arrive at the fleet.
func (c *cluster) arrive(rate int64) func(context.Context) error {
	return func(context.Context) error {
		c.requests.rate.Store(rate)
		return nil
	}
}

func (c *cluster) beginServing(ctx context.Context) error {
	if err := c.openNotebook(ctx); err != nil {
		return err
	}
	return c.createFleet(ctx)
}

// tell plays the story: a training grows into idle GPUs, gives a fleet a GPU and gets it back, and gives a notebook a place. Pictures show the nodes
// after each step.
func (c *cluster) tell(ctx context.Context, out *terminal) error {
	out.say("a training, a fleet and a notebook on %s and %s. The training is an elastic Job: 1 to %d workers of half an A100,", firstNode, secondNode, maxWorkers)
	out.say("         as many as idle GPUs allow. The demo itself stands for Prometheus and for the notebook's server, no gateway runs, and")
	out.say("         the clock of the controller is %d times as fast: a minute takes two seconds", clockSpeed)
	for _, s := range c.story() {
		out.say("  %s", s.what)
		if err := c.play(ctx, out, &s); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return c.checkElastic(ctx)
}

func (c *cluster) play(ctx context.Context, out *terminal, s *scene) error {
	if err := s.do(ctx); err != nil {
		return err
	}
	if s.event != "" {
		note, err := c.told(ctx, s.event)
		if err != nil {
			return err
		}
		out.say("    %s: %s", parkedNotebook, note)
	}
	if s.replicas != nil {
		said, err := c.awaitFleet(ctx, s.replicas...)
		if err != nil {
			return fmt.Errorf("wait for the fleet %s: %w", fleetName, err)
		}
		out.say("    %s: %s", fleetName, said)
	}
	target, err := c.awaitWorkers(ctx, s.workers)
	if err != nil {
		return fmt.Errorf("wait for %d workers of %s: %w", s.workers, elasticJob, err)
	}
	out.say("    %s: %d workers: %s", elasticJob, s.workers, target.Status.Message)
	for _, name := range s.nodes {
		gpus, err := c.nodeGPUs(ctx, name)
		if err != nil {
			return err
		}
		out.print(draw(gpus, out.width, out.colours))
	}
	out.print("\n")
	return nil
}
