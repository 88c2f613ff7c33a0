package store

// MigrationLockID is the session lock of the migration.
const MigrationLockID = migrationLockID

// Hurry has the batch that is being collected stored at once.
func (s *Store) Hurry() { raise(s.beats.hurry) }

// Held is for how many Attempts a heartbeat is held.
func (s *Store) Held() int {
	s.beats.holds.Lock()
	defer s.beats.holds.Unlock()
	return len(s.beats.held)
}
