package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// User is the superuser of every private server.
const User = "slipway"

// Options say how a server is made.
type Options struct {
	// Dir holds data, socket and log; empty makes a temporary one that Stop removes.
	Dir string
	// Fsync keeps commits on disk. Tests do without, benchmarks do not.
	Fsync bool
	// Settings are added to the configuration.
	Settings map[string]string
}

// Mode is how a server is stopped.
type Mode syscall.Signal

// The modes of PostgreSQL's own pg_ctl.
const (
	Fast      = Mode(syscall.SIGINT)  // ends sessions, writes a checkpoint
	Immediate = Mode(syscall.SIGQUIT) // as after a crash: the next start recovers
)

// Server is a private PostgreSQL server.
type Server struct {
	dir      string
	socket   string
	port     int
	bin      string
	password string
	remove   bool
	account  *syscall.Credential

	mu      sync.Mutex
	process *os.Process
	done    chan struct{} // closed when process has been waited for
}

// Start makes a database cluster and starts a server on it.
func Start(ctx context.Context, o Options) (*Server, error) {
	bin, err := Binaries()
	if err != nil {
		return nil, err
	}
	s := &Server{dir: o.Dir, bin: bin, password: rand.Text()}
	if s.account, err = account(); err != nil {
		return nil, err
	}
	if err := s.folders(); err != nil {
		return nil, errors.Join(err, s.cleanup())
	}
	if err := s.initialize(ctx, o); err != nil {
		return nil, errors.Join(err, s.cleanup())
	}
	if err := s.Restart(ctx); err != nil {
		return nil, errors.Join(err, s.cleanup())
	}
	return s, nil
}

// folders makes the server's folder and gives it to the account that the server runs as.
func (s *Server) folders() error {
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "slipway-pg-")
		if err != nil {
			return fmt.Errorf("make the server's folder: %w", err)
		}
		s.dir, s.remove = dir, true
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("make the server's folder: %w", err)
	}
	s.socket = s.dir
	const longest = 80 // a socket's path is limited to 107 bytes
	if len(s.socket) > longest {
		dir, err := os.MkdirTemp("/tmp", "slipway-pg-")
		if err != nil {
			return fmt.Errorf("make the socket's folder: %w", err)
		}
		s.socket = dir
	}
	if s.account == nil {
		return nil
	}
	for _, dir := range []string{s.dir, s.socket} {
		if err := os.Chown(dir, int(s.account.Uid), int(s.account.Gid)); err != nil {
			return fmt.Errorf("hand over the server's folder: %w", err)
		}
	}
	return nil
}

func (s *Server) initialize(ctx context.Context, o Options) error {
	if _, err := os.Stat(filepath.Join(s.data(), "PG_VERSION")); err == nil {
		return errors.New("start a private server: its folder already holds one")
	}
	secret := filepath.Join(s.dir, "password")
	if err := os.WriteFile(secret, []byte(s.password), 0o600); err != nil {
		return fmt.Errorf("write the password: %w", err)
	}
	if s.account != nil {
		if err := os.Chown(secret, int(s.account.Uid), int(s.account.Gid)); err != nil {
			return fmt.Errorf("hand over the password: %w", err)
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "--pgdata", s.data(), "--username", User,
		"--encoding", "UTF8", "--locale", "C", "--auth-local", "trust", "--auth-host", "scram-sha-256",
		"--pwfile", secret, "--no-sync", "--no-instructions")
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make a database cluster: %w: %s", err, bytes.TrimSpace(out))
	}
	return s.configure(o)
}

func (s *Server) configure(o Options) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	s.port = port
	settings := map[string]string{
		"listen_addresses": "127.0.0.1", "port": strconv.Itoa(port), "unix_socket_directories": s.socket,
		"unix_socket_permissions": "0700", "max_connections": "200", "shared_buffers": "256MB",
		"max_wal_size": "2GB", "log_min_messages": "warning", "log_timezone": "UTC", "timezone": "UTC",
		"autovacuum_naptime": "5s",
	}
	if !o.Fsync {
		settings["fsync"], settings["synchronous_commit"], settings["full_page_writes"] = "off", "off", "off"
	}
	for k, v := range o.Settings {
		settings[k] = v
	}
	lines := make([]string, 0, len(settings))
	for k, v := range settings {
		lines = append(lines, fmt.Sprintf("%s = '%s'", k, strings.ReplaceAll(v, "'", "''")))
	}
	sort.Strings(lines)
	file := filepath.Join(s.data(), "postgresql.auto.conf")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the server's settings: %w", err)
	}
	return nil
}

// Restart starts the server after Stop, Kill or a crash, on the same folder and port.
func (s *Server) Restart(ctx context.Context) error {
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := s.start()
		if err == nil {
			err = s.answers(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		// Orphans of a killed server may hold its memory or port for a moment.
		pause(ctx, 100*time.Millisecond)
	}
}

// start runs the server below a thread of its own, because its death signal is bound to the thread that made it.
func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return errors.New("start the server: it is running")
	}
	started := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		defer close(done)
		cmd := exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.data())
		cmd.Dir = s.dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
		log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			started <- fmt.Errorf("open the server's log: %w", err)
			return
		}
		defer func() { _ = log.Close() }() // the server has a handle of its own
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("start the server: %w", err)
			return
		}
		s.process = cmd.Process
		started <- nil
		_ = cmd.Wait() // how it ended stands in its log
	}()
	if err := <-started; err != nil {
		return err
	}
	s.done = done
	return nil
}

// answers waits until the server takes connections.
func (s *Server) answers(ctx context.Context) error {
	for {
		out, err := exec.CommandContext(ctx, filepath.Join(s.bin, "pg_isready"), "-q", "-h", s.socket,
			"-p", strconv.Itoa(s.port), "-d", "postgres", "-U", User).CombinedOutput()
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
			s.forget()
			return fmt.Errorf("start the server: it ended at once: %s", s.tail())
		case <-ctx.Done():
			return fmt.Errorf("start the server: no answer: %w: %s", ctx.Err(), out)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the server and, where its folder was a temporary one and mode is Fast, removes the folder.
// A server that was stopped with Immediate can be started again with Restart.
func (s *Server) Stop(mode Mode) error {
	err := s.signal(syscall.Signal(mode))
	if mode == Fast {
		err = errors.Join(err, s.cleanup())
	}
	return err
}

// Pause ends the server as Fast does and keeps its folder for Restart.
func (s *Server) Pause() error { return s.signal(syscall.SIGINT) }

// Kill ends the server and all its sessions without a word, as a crash of the machine would.
func (s *Server) Kill() error {
	sessions := s.sessions()
	err := s.signal(syscall.SIGKILL)
	for _, p := range sessions {
		if p.alive() {
			// Left alone it would go on serving for a moment: it notices the death of its parent only when idle.
			if kill := syscall.Kill(p.pid, syscall.SIGKILL); kill != nil && !errors.Is(kill, syscall.ESRCH) {
				err = errors.Join(err, fmt.Errorf("end session %d: %w", p.pid, kill))
			}
		}
	}
	const patience = 10 * time.Second
	for began := time.Now(); slices.ContainsFunc(sessions, session.alive); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			return errors.Join(err, errors.New("end the server's sessions: they live on"))
		}
	}
	return err
}

func (s *Server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	process, done := s.process, s.done
	s.mu.Unlock()
	if process == nil {
		return nil
	}
	if err := process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the server: %w", err)
	}
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		_ = process.Kill() // it had its time
		<-done
	}
	s.forget()
	return nil
}

func (s *Server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = nil
}

func (s *Server) cleanup() error {
	var errs []error
	if s.socket != "" && s.socket != s.dir {
		errs = append(errs, os.RemoveAll(s.socket))
	}
	if s.remove {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// URL gives the connection string of a database over the unix socket.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d&sslmode=disable", User, database, s.socket, s.port)
}

// TCP gives the connection string of a database over the loopback address.
func (s *Server) TCP(database string) string {
	return fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", User, s.password, s.port, database)
}

// Address gives the server's place on the loopback address, host:port.
func (s *Server) Address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Pid is the process that all others of the server are children of; 0: it does not run.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.Pid
}

// LogFile is where the server writes its log.
func (s *Server) LogFile() string { return filepath.Join(s.dir, "server.log") }

// Version gives the server's version in its own words.
func (s *Server) Version() string {
	out, err := exec.Command(filepath.Join(s.bin, "postgres"), "--version").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) tail() string {
	raw, err := os.ReadFile(s.LogFile())
	if err != nil {
		return err.Error()
	}
	const enough = 2000
	return string(raw[max(0, len(raw)-enough):])
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }() // it has told its port
	return l.Addr().(*net.TCPAddr).Port, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
