package store

// MigrationLockID is the session lock of the migration.
const MigrationLockID = migrationLockID
