package diskfault

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
)

// The kinds of disk operations.
const (
	Open     = "open"
	Write    = "write"
	Truncate = "truncate"
	Sync     = "sync"
	Delete   = "delete"
)

// Result codes of SQLite that go with them (sqlite.org/rescode.html, read
// 2026-11-30).
const (
	DiskFull       int32 = 13   // SQLITE_FULL, of a write
	OpenFailed     int32 = 14   // SQLITE_CANTOPEN
	WriteFailed    int32 = 778  // SQLITE_IOERR_WRITE
	SyncFailed     int32 = 1034 // SQLITE_IOERR_FSYNC
	TruncateFailed int32 = 1546 // SQLITE_IOERR_TRUNCATE
	DeleteFailed   int32 = 2570 // SQLITE_IOERR_DELETE
)

// Op is a disk operation that is about to be done.
type Op struct {
	N    int64  // 1, 2, ... since the hook was set
	Kind string // Open, Write, Truncate, Sync or Delete
	File string // the whole path
	Off  int64  // of a write; of a truncation: the new size in bytes
	Data []byte // of a write; valid only until the hook returns
	Dir  bool   // of a sync or a deletion: the directory is synced too
}

// Verdict says what becomes of an operation. The zero Verdict means that it is
// done.
type Verdict struct {
	// Code is the result code of SQLite to fail with. Zero means that the
	// operation is done.
	Code int32
	// Short is how many bytes of a write are written before it fails or the
	// process dies. Zero means none.
	Short int
	// Kill ends the process as kill -9 does: before the operation, or once
	// Short bytes are written. False means that the process goes on.
	Kill bool

	op   Op
	done func(n int) // told that the operation is done, with the bytes written
}

// hooked is a hook on the files of one name.
type hooked struct {
	file string
	hook func(Op) Verdict
	n    atomic.Int64
}

var hooks struct {
	mu  sync.Mutex
	all atomic.Pointer[[]*hooked]
}

// SetHook makes hook judge every disk operation on a database: on the file, and
// on all whose path goes on with a hyphen (its -wal and -journal, and what is in
// a folder such as payments.db-owners) or, where file is a folder, inside it.
// Where several hooks fit, the longest name wins. The path need not exist yet.
// The hook is called by whichever goroutine uses the database, by several at
// once, inside the engine: it must not use a database itself, nor panic. A hook
// set later replaces the earlier one and counts anew; nil removes it. It is safe
// for concurrent use. Before [Register] it is an error.
func SetHook(file string, hook func(Op) Verdict) error {
	if !engine.registered.Load() {
		return errors.New("diskfault: set hook: call Register first, and open the database after it")
	}
	path, err := resolve(file)
	if err != nil {
		return fmt.Errorf("diskfault: set hook: %w", err)
	}
	hooks.mu.Lock()
	defer hooks.mu.Unlock()
	var all []*hooked
	if old := hooks.all.Load(); old != nil {
		for _, h := range *old {
			if h.file != path {
				all = append(all, h)
			}
		}
	}
	if hook != nil {
		all = append(all, &hooked{file: path, hook: hook})
	}
	hooks.all.Store(&all)
	return nil
}

// resolve is the path that the engine will use: absolute, without links.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	rest := ""
	for dir := path; ; dir = filepath.Dir(dir) {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			return "", err
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

// covers reports whether the hook is on that file too.
func (h *hooked) covers(file string) bool {
	rest, ok := strings.CutPrefix(file, h.file)
	return ok && (rest == "" || rest[0] == '-' || os.IsPathSeparator(rest[0]))
}

// ask lets the hook of the operation's file judge it.
func ask(op Op) Verdict {
	all := hooks.all.Load()
	if all == nil {
		return Verdict{op: op}
	}
	var by *hooked
	for _, h := range *all {
		if h.covers(op.File) && (by == nil || len(h.file) > len(by.file)) {
			by = h
		}
	}
	if by == nil {
		return Verdict{op: op}
	}
	op.N = by.n.Add(1)
	v := by.hook(op)
	v.op = op
	return v
}

// run does what the verdict leaves of the operation, given the bytes to write,
// and returns the code to answer.
func (v Verdict) run(do func(n int) int32) int32 {
	n, whole := len(v.op.Data), v.Code == 0 && !v.Kill
	if !whole {
		n = min(v.Short, n)
	}
	if whole || n > 0 && v.op.Kind == Write {
		code := do(n)
		if v.done != nil && code == 0 {
			v.done(n)
		}
		if whole {
			return code
		}
	}
	if v.Kill {
		kill()
	}
	return v.Code
}

// kill ends this process without running any deferred code.
func kill() {
	if self, err := os.FindProcess(os.Getpid()); err == nil && self.Kill() == nil {
		select {}
	}
	os.Exit(137) // where a process cannot kill itself
}
