package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// Standby makes a second server that follows this one by streaming, until Promote.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	b := &Server{bin: s.bin, password: s.password, account: s.account}
	if err := b.folders(); err != nil {
		return nil, errors.Join(err, b.cleanup())
	}
	if err := b.follow(ctx, s); err != nil {
		return nil, errors.Join(err, b.cleanup())
	}
	return b, nil
}

func (s *Server) follow(ctx context.Context, primary *Server) error {
	err := s.command(ctx, "pg_basebackup", "--pgdata", s.data(), "--host", primary.socket, "--port", strconv.Itoa(primary.port),
		"--username", User, "--checkpoint", "fast", "--write-recovery-conf", "--no-sync")
	if err != nil {
		return err
	}
	if s.port, err = freePort(); err != nil {
		return err
	}
	// What is said last counts.
	own := fmt.Sprintf("port = '%d'\nunix_socket_directories = '%s'\n", s.port, s.socket)
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write the standby's settings: %w", err)
	}
	_, err = f.WriteString(own)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the standby's settings: %w", err)
	}
	return s.Restart(ctx)
}

// Promote makes a standby a server of its own that can be written.
func (s *Server) Promote(ctx context.Context) error {
	return s.command(ctx, "pg_ctl", "promote", "--pgdata", s.data(), "--wait")
}

// Save keeps what the database holds now. The server is stopped for a moment, here and when back puts it back.
func (s *Server) Save(ctx context.Context) (back func(context.Context) error, err error) {
	kept := s.data() + ".kept"
	copied := func(ctx context.Context, from, to string) error {
		if err := s.Pause(); err != nil {
			return err
		}
		if err := os.RemoveAll(to); err != nil {
			return fmt.Errorf("make room for a copy: %w", err)
		}
		if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil {
			return fmt.Errorf("copy the server's folder: %w: %s", err, bytes.TrimSpace(out))
		}
		return s.Restart(ctx)
	}
	if err := copied(ctx, s.data(), kept); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return copied(ctx, kept, s.data()) }, nil
}

// command runs one of the server's own programs as its account.
func (s *Server) command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
