//go:build linux || darwin

package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// damageEnv makes this test binary a process that uses a journal under limits
// which a test process must not give itself.
const damageEnv = "IDEM_TEST_DAMAGE"

func init() {
	text := os.Getenv(damageEnv)
	if text == "" {
		return
	}
	var l damageLife
	orDie(0, json.Unmarshal([]byte(text), &l))
	orDie(0, json.NewEncoder(os.Stdout).Encode(l.live()))
	os.Exit(0)
}

// damageLife is what such a process does: it opens the journal and calls
// operations.
type damageLife struct {
	Path  string
	Calls []string
	Files bool   // first with as few open files as there may be, then more and more
	Bytes int64  // how large a file may become once the journal is open; zero: any size
	Early bool   // Bytes holds before it is opened
	Copy  string // the journal's files are copied there, and nothing else is done
}

// damageEnd is what it met with.
type damageEnd struct {
	Refused  []string            // errors of Open, in order
	Wrong    []string            // what they should not be
	Calls    map[string]string   // how each ended: with "", or with an error
	Again    map[string]string   // the same, without the limit
	Arrivals map[string][]string // keys
	Early    int                 // arrivals under the limit
}

func (l damageLife) live() (end damageEnd) {
	if l.Copy != "" {
		for _, side := range []string{"", "-wal", "-shm"} {
			orDie(0, os.WriteFile(l.Copy+side, orDie(os.ReadFile(l.Path+side)), 0o600))
		}
		return end
	}
	signal.Ignore(syscall.SIGXFSZ) // a file that becomes too large is an error then, and no death
	base := &damageBase{arrivals: map[string][]string{}, up: true}
	end.Arrivals, end.Calls, end.Again = base.arrivals, map[string]string{}, map[string]string{}
	journal := l.open(&end)
	if journal == nil {
		return end
	}
	client := damageClient(journal, base)
	call := func(ends map[string]string, want error) {
		for _, o := range l.Calls {
			_, err := damageCall(context.Background(), client, o)
			ends[o] = textOf(err)
			if err != nil && !errors.Is(err, want) {
				end.Wrong = append(end.Wrong, textOf(err))
			}
		}
	}
	if l.Bytes > 0 {
		free := limit(syscall.RLIMIT_FSIZE, uint64(l.Bytes))
		call(end.Calls, idem.ErrJournal)
		end.Early = base.sent("")
		free()
		call(end.Again, nil)
	} else {
		call(end.Calls, nil)
	}
	orDie(0, journal.Close())
	return end
}

// open opens the journal, under the limits.
func (l damageLife) open(end *damageEnd) *idem.SQLiteJournal {
	try := func() *idem.SQLiteJournal {
		journal, err := idem.Open(l.Path, nil)
		if err == nil {
			return journal
		}
		end.Refused = append(end.Refused, err.Error())
		if !errors.Is(err, idem.ErrJournal) {
			end.Wrong = append(end.Wrong, err.Error())
		}
		return nil
	}
	if l.Bytes > 0 && l.Early {
		free := limit(syscall.RLIMIT_FSIZE, uint64(l.Bytes))
		journal := try()
		free()
		if journal != nil {
			end.Wrong = append(end.Wrong, "it opens under the limit")
			return journal
		}
		return try()
	}
	if !l.Files {
		return try()
	}
	r, w, err := os.Pipe() // so that the runtime opens what it needs for itself
	orDie(0, errors.Join(err, r.Close(), w.Close()))
	before := openFiles()
	for n := 3; ; n++ {
		free := limit(syscall.RLIMIT_NOFILE, uint64(n))
		journal := try()
		free()
		if journal != nil {
			return journal
		}
		if left := openFiles(); left != before {
			end.Wrong = append(end.Wrong, strconv.Itoa(left-before)+" files are left open")
			return nil
		}
	}
}

// limit sets a limit of this process.
func limit(what int, n uint64) (free func()) {
	var was syscall.Rlimit
	orDie(0, syscall.Getrlimit(what, &was))
	now := was
	now.Cur = n
	orDie(0, syscall.Setrlimit(what, &now))
	return func() { orDie(0, syscall.Setrlimit(what, &was)) }
}

// openFiles counts the descriptors in use.
func openFiles() (n int) {
	for fd := range 1024 {
		var s syscall.Stat_t
		if syscall.Fstat(fd, &s) == nil {
			n++
		}
	}
	return n
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// child runs such a process, as another user where file modes do not bind this
// one.
func (d *damage) child(l damageLife) (end damageEnd) {
	d.Helper()
	cmd := l.command(d, d.path)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: damageUser, Gid: damageUser}}
	}
	out, err := cmd.Output()
	require.NoError(d, err)
	require.NoError(d, json.Unmarshal(out, &end), string(out))
	for o, keys := range end.Arrivals { // they are this journal's too
		d.base.arrivals[o] = append(d.base.arrivals[o], keys...)
	}
	assert.Empty(d, end.Wrong)
	return end
}

// command is such a process.
func (l damageLife) command(d *damage, path string) *exec.Cmd {
	l.Path = path
	text, err := json.Marshal(l)
	require.NoError(d, err)
	self, err := os.Executable()
	require.NoError(d, err)
	if runtime.GOOS == "linux" {
		self = "/proc/self/exe" // wherever it is, the other user may run it
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), damageEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	return cmd
}

const damageUser = 65534

// given makes all of it the other user's, until this one opens it.
func (d *damage) given() {
	d.Helper()
	if os.Geteuid() != 0 {
		return
	}
	require.NoError(d, os.Chmod(filepath.Dir(d.dir), 0o755))
	d.owned(damageUser)
	d.lent = true
}

// owned makes all of it that user's.
func (d *damage) owned(user int) {
	d.Helper()
	require.NoError(d, filepath.WalkDir(d.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, user, user)
	}))
}

// damageModes are files and folders that their own user may not use. Open fails
// and sends nothing; with the modes put right, all is as it was.
func damageModes() []damageRow {
	mode := func(side string, mode fs.FileMode, why string) func(d *damage) {
		return func(d *damage) {
			d.given()
			file := d.path + side
			if side == "/" {
				file = d.dir
			}
			info, err := os.Stat(file)
			require.NoError(d, err)
			require.NoError(d, os.Chmod(file, mode))
			d.Cleanup(func() { os.Chmod(file, info.Mode().Perm()) })
			end := d.child(damageLife{Calls: []string{"lost-old", d.another()}})
			require.Len(d, end.Refused, 1)
			assert.Contains(d, end.Refused[0], strconv.Quote(d.path))
			assert.Contains(d, end.Refused[0], why)
			assert.Empty(d, end.Arrivals)
			require.NoError(d, os.Chmod(file, info.Mode().Perm()))
			end = d.child(damageLife{Calls: []string{"lost-old", d.fresh[0]}})
			assert.Empty(d, end.Refused)
			assert.Equal(d, map[string]string{"lost-old": "", d.fresh[0]: ""}, end.Calls)
			assert.Len(d, end.Arrivals, 2)
		}
	}
	return []damageRow{
		{name: "folder of mode 0000", check: mode("/", 0, "permission denied")},
		{name: "folder not writable", closed: true, check: mode("/", 0o500, "must be writable")},
		{name: "database of mode 0000", check: mode("", 0, "must be writable")},
		{name: "database of mode 0400", check: mode("", 0o400, "must be writable")},
		{name: "-wal of mode 0000", check: mode("-wal", 0, "must be writable")},
		{name: "-wal of mode 0400", check: mode("-wal", 0o400, "must be writable")},
		{name: "-shm of mode 0000", check: mode("-shm", 0, "must be writable")},
		{name: "-shm of mode 0400", check: mode("-shm", 0o400, "must be writable")},
		{name: "owner folder of mode 0000", check: mode("-owners", 0, "permission denied")},
	}
}

// damageLimits are limits of the process.
func damageLimits() []damageRow {
	return []damageRow{
		{name: "too many open files", check: func(d *damage) {
			d.given()
			end := d.child(damageLife{Files: true, Calls: []string{"lost-old", d.another()}})
			assert.GreaterOrEqual(d, len(end.Refused), 5)
			for _, text := range end.Refused {
				assert.Contains(d, text, strconv.Quote(d.path))
				assert.Regexp(d, "too many open files|unable to open database file", text)
			}
			assert.Equal(d, map[string]string{"lost-old": "", d.fresh[0]: ""}, end.Calls)
		}},
		{name: "file too large", check: func(d *damage) {
			d.given()
			info, err := os.Stat(d.path + "-wal")
			require.NoError(d, err)
			calls := []string{"lost-old", d.another()}
			end := d.child(damageLife{Bytes: info.Size() / 2, Calls: calls})
			for _, o := range calls {
				assert.Regexp(d, "disk I/O error|disk is full", end.Calls[o])
				assert.Empty(d, end.Again[o])
			}
			assert.Zero(d, end.Early)
			assert.Len(d, end.Arrivals, 2)
		}},
		{name: "file too large at Open", check: func(d *damage) {
			d.given()
			end := d.child(damageLife{Bytes: 100, Early: true, Calls: []string{"lost-old"}})
			require.Len(d, end.Refused, 1)
			assert.Contains(d, end.Refused[0], strconv.Quote(d.path))
			assert.Len(d, end.Arrivals, 1)
		}},
	}
}
