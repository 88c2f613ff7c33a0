// Package migrations holds the database schema as numbered SQL files. Each one that changes what an older binary
// relies on raises meta.min_binary; everything else is additive.
//
// Allowed imports: the standard library.
package migrations

import "embed"

// Files are the migrations, NNNN_name.sql.
//
//go:embed *.sql
var Files embed.FS

// Latest is the schema version that this binary is made for. A binary starts on its own schema and on the next one,
// and refuses what states a higher min_binary. While two versions run at once, the older one runs no Task that the newer
// one took in.
const Latest = 8
