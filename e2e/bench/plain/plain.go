// Package plain is SQL without the store: what a rig prepares, and what it compares with.
//
// Allowed imports: pgx.
package plain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Exec runs one statement on a connection of its own.
func Exec(ctx context.Context, url, sql string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the bench's database: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// Text reads one text on a connection of its own.
func Text(ctx context.Context, url, sql string) (text string, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if err := conn.QueryRow(ctx, sql).Scan(&text); err != nil {
		return "", fmt.Errorf("%s: %w", sql, err)
	}
	return text, nil
}

// Hold opens a transaction with a snapshot and leaves it open until it is let go.
func Hold(ctx context.Context, url string) (letGo func() error, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect to the bench's database: %w", err)
	}
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"); err != nil {
		return nil, errors.Join(fmt.Errorf("hold a snapshot: %w", err), conn.Close(ctx))
	}
	return func() error { return conn.Close(ctx) }, nil
}

// Commits gives what a plain program reaches at this moment: one-row commits a second over some clients.
func Commits(ctx context.Context, url string, clients int, d time.Duration) (float64, error) {
	pool, err := pgxpool.New(ctx, fmt.Sprintf("%s&pool_max_conns=%d", url, clients))
	if err != nil {
		return 0, fmt.Errorf("connect to the bench's database: %w", err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE TABLE public.plain (id bigserial PRIMARY KEY, payload text)"); err != nil {
		return 0, fmt.Errorf("make a plain table: %w", err)
	}
	payload := strings.Repeat("x", 450)
	var all sync.WaitGroup
	var count atomic.Int64
	errs := make([]error, clients)
	began := time.Now()
	for c := range clients {
		all.Go(func() {
			for time.Since(began) < d && errs[c] == nil {
				if _, errs[c] = pool.Exec(ctx, "INSERT INTO public.plain (payload) VALUES ($1)", payload); errs[c] == nil {
					count.Add(1)
				}
			}
		})
	}
	all.Wait()
	return float64(count.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}
