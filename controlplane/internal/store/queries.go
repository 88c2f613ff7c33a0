package store

import (
	"embed"
	"fmt"
	"regexp"
	"strings"

	"gorm.io/gorm"
)

//go:embed *.sql
var sqlFiles embed.FS

// statement is one named statement: its @parameters became placeholders, in the order of names.
type statement struct {
	sql   string
	names []string
}

// statements are the named statements of all .sql files, by "file/name".
var statements = loadStatements()

func loadStatements() map[string]statement {
	files, err := sqlFiles.ReadDir(".")
	if err != nil {
		panic(err) // embedded
	}
	all := map[string]statement{}
	for _, f := range files {
		raw, err := sqlFiles.ReadFile(f.Name())
		if err != nil {
			panic(err) // embedded
		}
		for _, part := range strings.Split("\n"+string(raw), "\n-- name: ")[1:] {
			name, body, _ := strings.Cut(part, "\n")
			all[strings.TrimSuffix(f.Name(), ".sql")+"/"+strings.TrimSpace(name)] = parse(body)
		}
	}
	return all
}

var parameter = regexp.MustCompile(`@([a-z_]+)`)

// parse drops comments and the closing semicolon, and turns @name into a placeholder.
func parse(body string) statement {
	var kept []string
	for _, line := range strings.Split(body, "\n") {
		if trimmed := strings.TrimSpace(line); trimmed != "" && !strings.HasPrefix(trimmed, "--") {
			kept = append(kept, line)
		}
	}
	sql := strings.TrimSuffix(strings.TrimSpace(strings.Join(kept, "\n")), ";")
	var s statement
	s.sql = parameter.ReplaceAllStringFunc(sql, func(m string) string {
		s.names = append(s.names, m[1:])
		return "?"
	})
	return s
}

// args are the @parameters of a statement.
type args map[string]any

func (s statement) bind(a args) []any {
	values := make([]any, len(s.names))
	for i, n := range s.names {
		v, ok := a[n]
		if !ok {
			panic("store: statement lacks parameter " + n)
		}
		values[i] = v
	}
	return values
}

// query runs a named statement and scans its rows into dest.
func query(tx *gorm.DB, name string, a args, dest any) (rows int64, err error) {
	s := named(name)
	res := tx.Raw(s.sql, s.bind(a)...).Scan(dest)
	if res.Error != nil {
		return 0, fmt.Errorf("%s: %w", name, res.Error)
	}
	return res.RowsAffected, nil
}

// exec runs a named statement and gives the number of rows it changed.
func exec(tx *gorm.DB, name string, a args) (rows int64, err error) {
	s := named(name)
	res := tx.Exec(s.sql, s.bind(a)...)
	if res.Error != nil {
		return 0, fmt.Errorf("%s: %w", name, res.Error)
	}
	return res.RowsAffected, nil
}

func named(name string) statement {
	s, ok := statements[name]
	if !ok {
		panic("store: no statement named " + name)
	}
	return s
}
