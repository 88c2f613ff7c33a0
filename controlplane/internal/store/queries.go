package store

import (
	"embed"
	"fmt"
	"strings"

	"gorm.io/gorm"
)

//go:embed *.sql
var sqlFiles embed.FS

// statements are the named statements of all .sql files, by "file/name".
var statements = loadStatements()

func loadStatements() map[string]string {
	files, err := sqlFiles.ReadDir(".")
	if err != nil {
		panic(err) // embedded
	}
	all := map[string]string{}
	for _, f := range files {
		raw, err := sqlFiles.ReadFile(f.Name())
		if err != nil {
			panic(err) // embedded
		}
		for _, part := range strings.Split("\n"+string(raw), "\n-- name: ")[1:] {
			name, body, _ := strings.Cut(part, "\n")
			all[strings.TrimSuffix(f.Name(), ".sql")+"/"+strings.TrimSpace(name)] = uncommented(body)
		}
	}
	return all
}

// uncommented drops comment lines and the closing semicolon: the server need not parse them each time.
func uncommented(body string) string {
	var kept []string
	for _, line := range strings.Split(body, "\n") {
		if trimmed := strings.TrimSpace(line); trimmed != "" && !strings.HasPrefix(trimmed, "--") {
			kept = append(kept, line)
		}
	}
	return strings.TrimSuffix(strings.TrimSpace(strings.Join(kept, "\n")), ";")
}

// args are the @named parameters of a statement.
type args map[string]any

// query runs a named statement and scans its rows into dest.
func query(tx *gorm.DB, name string, a args, dest any) (rows int64, err error) {
	res := tx.Raw(statement(name), map[string]any(a)).Scan(dest)
	if res.Error != nil {
		return 0, fmt.Errorf("%s: %w", name, res.Error)
	}
	return res.RowsAffected, nil
}

// exec runs a named statement and gives the number of rows it changed.
func exec(tx *gorm.DB, name string, a args) (rows int64, err error) {
	res := tx.Exec(statement(name), map[string]any(a))
	if res.Error != nil {
		return 0, fmt.Errorf("%s: %w", name, res.Error)
	}
	return res.RowsAffected, nil
}

func statement(name string) string {
	s, ok := statements[name]
	if !ok {
		panic("store: no statement named " + name)
	}
	return s
}
