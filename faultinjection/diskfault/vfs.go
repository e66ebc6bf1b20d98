package diskfault

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"modernc.org/libc"
	_ "modernc.org/sqlite" // configures the engine before it is used here
	lib "modernc.org/sqlite/lib"
)

const vfsName = "diskfault"

// engine is the VFS that is wrapped, and what is open through the wrapper.
var engine struct {
	once       sync.Once
	err        error
	registered atomic.Bool

	vfs     uintptr // the original
	open    openMethod
	delete  deleteMethod
	mu      sync.Mutex
	tables  map[uintptr]uintptr // the copy of each method table
	address sync.Map            // of an open file: its *file
}

// file is an open file.
type file struct {
	name    string
	methods *lib.Tsqlite3_io_methods // the original
	syncDir bool                     // the first sync takes the directory along
}

// Register puts this package between SQLite and its default VFS, for every
// database that the process opens from now on, by any package. It returns the
// name of the VFS, for a data source that names one. Calling it again does
// nothing. It is safe for concurrent use.
func Register() (vfs string, err error) {
	engine.once.Do(func() { engine.err = register() })
	if engine.err != nil {
		return "", fmt.Errorf("diskfault: register: %w", engine.err)
	}
	return vfsName, nil
}

func register() error {
	tls := libc.NewTLS()
	defer tls.Close()
	original := lib.Xsqlite3_vfs_find(tls, 0)
	if original == 0 {
		return errors.New("SQLite has no default VFS")
	}
	name, err := libc.CString(vfsName)
	if err != nil {
		return err
	}
	wrapper, err := duplicate[lib.Tsqlite3_vfs](tls, original)
	if err != nil {
		return err
	}
	v := at[lib.Tsqlite3_vfs](wrapper)
	engine.vfs, engine.tables = original, map[uintptr]uintptr{}
	engine.open, engine.delete = method[openMethod](v.FxOpen), method[deleteMethod](v.FxDelete)
	v.FzName, v.FxOpen, v.FxDelete = name, entry(xOpen), entry(xDelete)
	if code := lib.Xsqlite3_vfs_register(tls, wrapper, 1); code != lib.SQLITE_OK {
		return fmt.Errorf("SQLite answers %d", code)
	}
	engine.registered.Store(true)
	return nil
}

// wrapped is the method table to use instead of the given one.
func wrapped(tls *libc.TLS, table uintptr) (uintptr, error) {
	engine.mu.Lock()
	defer engine.mu.Unlock()
	if t, ok := engine.tables[table]; ok {
		return t, nil
	}
	t, err := duplicate[lib.Tsqlite3_io_methods](tls, table)
	if err != nil {
		return 0, err
	}
	m := at[lib.Tsqlite3_io_methods](t)
	m.FxClose, m.FxWrite, m.FxTruncate, m.FxSync = entry(xClose), entry(xWrite), entry(xTruncate), entry(xSync)
	engine.tables[table] = t
	return t, nil
}

func xOpen(tls *libc.TLS, _, name, address uintptr, flags int32, out uintptr) int32 {
	if name == 0 { // a temporary file: nothing depends on it
		return engine.open(tls, engine.vfs, name, address, flags, out)
	}
	f := &file{name: libc.GoString(name)}
	const log = lib.SQLITE_OPEN_MAIN_JOURNAL | lib.SQLITE_OPEN_SUPER_JOURNAL | lib.SQLITE_OPEN_WAL
	creates := flags&lib.SQLITE_OPEN_CREATE != 0
	f.syncDir = creates && flags&log != 0 && runtime.GOOS != "windows"
	at[lib.Tsqlite3_file](address).FpMethods = 0 // as a failed open must leave it
	return ask(Op{Kind: Open, File: f.name}).run(func(int) int32 {
		code := engine.open(tls, engine.vfs, name, address, flags, out)
		base := at[lib.Tsqlite3_file](address)
		if code != lib.SQLITE_OK || base.FpMethods == 0 {
			return code
		}
		f.methods = at[lib.Tsqlite3_io_methods](base.FpMethods)
		table, err := wrapped(tls, base.FpMethods)
		if err != nil {
			method[closeMethod](f.methods.FxClose)(tls, address)
			base.FpMethods = 0
			return lib.SQLITE_NOMEM
		}
		base.FpMethods = table
		engine.address.Store(address, f)
		return code
	})
}

func xDelete(tls *libc.TLS, _, name uintptr, syncDir int32) int32 {
	op := Op{Kind: Delete, File: libc.GoString(name), Dir: syncDir&1 != 0 && runtime.GOOS != "windows"}
	return ask(op).run(func(int) int32 { return engine.delete(tls, engine.vfs, name, syncDir) })
}

// fileAt is the open file at an address.
func fileAt(address uintptr) *file {
	f, _ := engine.address.Load(address)
	return f.(*file)
}

func xClose(tls *libc.TLS, address uintptr) int32 {
	f := fileAt(address)
	engine.address.Delete(address) // before the engine uses the address again
	return method[closeMethod](f.methods.FxClose)(tls, address)
}

func xWrite(tls *libc.TLS, address, data uintptr, n int32, off lib.Tsqlite3_int64) int32 {
	f := fileAt(address)
	op := Op{Kind: Write, File: f.name, Off: off, Data: bytesAt(data, n)}
	return ask(op).run(func(n int) int32 {
		return method[writeMethod](f.methods.FxWrite)(tls, address, data, int32(n), off)
	})
}

func xTruncate(tls *libc.TLS, address uintptr, size lib.Tsqlite3_int64) int32 {
	f := fileAt(address)
	return ask(Op{Kind: Truncate, File: f.name, Off: size}).run(func(int) int32 {
		return method[truncateMethod](f.methods.FxTruncate)(tls, address, size)
	})
}

func xSync(tls *libc.TLS, address uintptr, flags int32) int32 {
	f := fileAt(address)
	return ask(Op{Kind: Sync, File: f.name, Dir: f.syncDir}).run(func(int) int32 {
		code := method[syncMethod](f.methods.FxSync)(tls, address, flags)
		if code == lib.SQLITE_OK {
			f.syncDir = false
		}
		return code
	})
}
