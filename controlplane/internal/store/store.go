package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"slipway.dev/slipway/migrations"
)

// Config says how to reach the database.
type Config struct {
	URL       string
	MaxConns  int32         // of the pool; 0: 16
	Replica   string        // who we are, in attempts and notifications
	BeatEvery time.Duration // how long heartbeats are collected before they are stored together; 0: 1 s
	// StatementTimeout and LockTimeout bound what one statement may take; 0: 5 s and 2 s.
	StatementTimeout, LockTimeout time.Duration
}

// Store is the database. It starts nothing by itself: Run does.
type Store struct {
	cfg        Config
	pool       *pgxpool.Pool
	sql        *sql.DB
	db         *gorm.DB
	instance   string
	sessionKey []byte

	wakes    wakes
	beats    beats
	waiting  waitingCounts
	idle     idleLanes
	ahead    ahead
	services serviceTimes
	proven   proven
	deadlock deadlockCount
}

// Open connects, and refuses a transaction pooler and a schema that does not fit this binary.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	pc, err := cfg.poolConfig()
	if err != nil {
		return nil, err
	}
	if err := refusePooler(ctx, pc.ConnConfig); err != nil {
		return nil, err
	}
	var pool *pgxpool.Pool
	// Where one connection is silent its idle neighbours are not tried one by one.
	pc.ConnConfig.DialFunc = dial(cfg.answerWithin(), func() { pool.Reset() })
	if pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return nil, fmt.Errorf("open the database pool: %w", err)
	}
	s := &Store{cfg: cfg, pool: pool, sql: stdlib.OpenDBFromPool(pool), wakes: newWakes(), beats: newBeats(), proven: proven{doubts: make(chan struct{}, 1)}}
	if err := s.prepare(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) prepare(ctx context.Context) error {
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: s.sql}), &gorm.Config{
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		Logger:                 logger.Discard,
		// The database's time decides; a stamp from here would be a fault.
		NowFunc: func() time.Time { panic("store: GORM asked for the local time") },
	})
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	s.db = db
	if err := s.checkSchema(ctx); err != nil {
		return err
	}
	var meta metaRow
	if err := s.db.WithContext(ctx).Take(&meta).Error; err != nil {
		return classify(ctx, fmt.Errorf("read the instance: %w", err))
	}
	s.instance, s.sessionKey = meta.Instance, meta.SessionKey
	return nil
}

func (c Config) withDefaults() Config {
	const (
		conns     = 16
		statement = 5 * time.Second
		lock      = 2 * time.Second
	)
	if c.MaxConns == 0 {
		c.MaxConns = conns
	}
	if c.BeatEvery == 0 {
		c.BeatEvery = time.Second
	}
	if c.StatementTimeout == 0 {
		c.StatementTimeout = statement
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = lock
	}
	return c
}

func (c Config) poolConfig() (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, errors.New("read the database URL: it does not parse") // the text would show the password
	}
	pc.MaxConns, pc.PingTimeout = c.MaxConns, min(pingWithin, c.answerWithin())
	pc.ConnConfig.DialFunc = dial(c.answerWithin(), func() {})
	if pc.ConnConfig.ConnectTimeout == 0 {
		pc.ConnConfig.ConnectTimeout = min(connectWithin, c.answerWithin())
	}
	params := pc.ConnConfig.RuntimeParams
	params["application_name"] = "slipway/" + c.Replica
	params["search_path"] = "slipway"
	params["slipway.binary"] = strconv.Itoa(migrations.Latest) // who is older runs nothing of ours
	params["statement_timeout"] = milliseconds(c.StatementTimeout)
	params["lock_timeout"] = milliseconds(c.LockTimeout)
	// Every statement here is meant for an index; a plan made while a table was small must not stay.
	params["enable_seqscan"] = "off"
	params["jit"] = "off"
	// The statements are made for one plan each; planning them anew for every value costs more than running them.
	// Lists ask for the opposite.
	params["plan_cache_mode"] = "force_generic_plan"
	// One that stands still inside a transaction keeps its locks from the others no longer than that.
	params["idle_in_transaction_session_timeout"] = milliseconds(c.answerWithin())
	return pc, nil
}

// answerWithin is how long the database may keep silent: twice what it is allowed for a statement.
func (c Config) answerWithin() time.Duration { return 2 * c.StatementTimeout }

func milliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// refusePooler detects a pooler that hands out server connections by transaction. Such a pooler either refuses our
// session settings at once, or shows one server process to two clients.
func refusePooler(ctx context.Context, cfg *pgx.ConnConfig) error {
	first, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		if strings.Contains(err.Error(), "unsupported startup parameter") {
			return fmt.Errorf("%w (%w)", ErrPooler, err)
		}
		return classify(ctx, fmt.Errorf("connect to the database: %w", err))
	}
	defer func() { _ = first.Close(context.WithoutCancel(ctx)) }() // only a probe
	own, err := serverProcess(ctx, first)
	if err != nil || own == first.PgConn().PID() {
		return err // PostgreSQL itself told the same number at the start
	}
	second, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return classify(ctx, fmt.Errorf("connect to the database: %w", err))
	}
	defer func() { _ = second.Close(context.WithoutCancel(ctx)) }() // only a probe
	tx, err := second.Begin(ctx)                                    // holds what it is given
	if err != nil {
		return classify(ctx, fmt.Errorf("probe for a pooler: %w", err))
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	held, err := serverProcess(ctx, second)
	if err != nil {
		return err
	}
	if held == own {
		return ErrPooler
	}
	const patience = 5 * time.Second // a pooler without a free server keeps us waiting here
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if again, err := serverProcess(ctx, first); err != nil || again != own {
		return ErrPooler
	}
	return nil
}

func serverProcess(ctx context.Context, c *pgx.Conn) (uint32, error) {
	var pid uint32
	err := c.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	if err != nil {
		return 0, classify(ctx, fmt.Errorf("ask for the server process: %w", err))
	}
	return pid, nil
}

// Close gives every connection back. Call it after Run has returned.
func (s *Store) Close() {
	_ = s.sql.Close() // holds nothing of its own
	s.pool.Close()
}

// Instance is the uuid that the first migration made.
func (s *Store) Instance() string { return s.instance }

// SessionKey is the HMAC key of runner session keys.
func (s *Store) SessionKey() []byte { return s.sessionKey }

// Now is the database's time.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	if err := s.db.WithContext(ctx).Raw("SELECT slipway.now()").Scan(&now).Error; err != nil {
		return time.Time{}, classify(ctx, fmt.Errorf("ask for the database's time: %w", err))
	}
	return now.UTC(), nil
}
