package store

import "context"

type beats struct{}

func newBeats() beats { return beats{} }

func (s *Store) beatLoop(ctx context.Context) { <-ctx.Done() }
