package store

import (
	"database/sql"
	"embed"
	"fmt"
	"reflect"
	"regexp"
	"slices"
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

// parse drops comments and the closing semicolon, and turns each @name into a numbered placeholder.
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
		n := slices.Index(s.names, m[1:])
		if n < 0 {
			n, s.names = len(s.names), append(s.names, m[1:])
		}
		return fmt.Sprintf("$%d", n+1)
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

// query runs a named statement on GORM's connection or transaction and scans its rows into dest: a pointer to a
// struct, which takes the first row, or to a slice. GORM's own Raw would render each statement for a log that is off.
func query(tx *gorm.DB, name string, a args, dest any) error {
	s := named(name)
	rows, err := tx.Statement.ConnPool.QueryContext(tx.Statement.Context, s.sql, s.bind(a)...)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer func() { _ = rows.Close() }() // scan has asked for their error
	if err := scan(tx, rows, reflect.ValueOf(dest).Elem()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func scan(tx *gorm.DB, rows *sql.Rows, into reflect.Value) error {
	many := into.Kind() == reflect.Slice
	for first := true; rows.Next() && (many || first); first = false {
		row := into
		if many {
			row = reflect.New(into.Type().Elem()).Elem()
		}
		var err error
		if row.Kind() == reflect.Struct {
			err = tx.ScanRows(rows, row.Addr().Interface())
		} else {
			err = rows.Scan(row.Addr().Interface())
		}
		if err != nil {
			return err
		}
		if many {
			into.Set(reflect.Append(into, row))
		}
	}
	return rows.Err()
}

// exec runs a named statement and gives the number of rows it changed.
func exec(tx *gorm.DB, name string, a args) (rows int64, err error) {
	s := named(name)
	res, err := tx.Statement.ConnPool.ExecContext(tx.Statement.Context, s.sql, s.bind(a)...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return res.RowsAffected()
}

func named(name string) statement {
	s, ok := statements[name]
	if !ok {
		panic("store: no statement named " + name)
	}
	return s
}
