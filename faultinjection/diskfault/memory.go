package diskfault

import (
	"errors"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// All that touches the engine's memory. The engine is C made into Go: it has
// addresses where Go has pointers, and they point to memory of its own, which
// the garbage collector does not know.

// The methods that are replaced.
type (
	openMethod     = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32
	deleteMethod   = func(tls *libc.TLS, vfs, name uintptr, syncDir int32) int32
	closeMethod    = func(tls *libc.TLS, file uintptr) int32
	writeMethod    = func(tls *libc.TLS, file, data uintptr, n int32, off lib.Tsqlite3_int64) int32
	truncateMethod = func(tls *libc.TLS, file uintptr, size lib.Tsqlite3_int64) int32
	syncMethod     = func(tls *libc.TLS, file uintptr, flags int32) int32
)

// at is the pointer to what lies at an address.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// bytesAt are n bytes at an address, valid as long as the engine says.
func bytesAt(address uintptr, n int32) []byte {
	if n <= 0 {
		return nil
	}
	return unsafe.Slice(at[byte](address), n)
}

// method is the function behind an entry of a method table: an entry is what a
// func value consists of.
func method[F any](entry uintptr) F { return *(*F)(unsafe.Pointer(&entry)) }

// entry makes one. The function must be a declared one: nothing else keeps a
// closure alive.
func entry[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

// duplicate copies a value of the engine's to memory that is never freed.
func duplicate[T any](tls *libc.TLS, address uintptr) (uintptr, error) {
	var size T
	to := lib.Xsqlite3_malloc(tls, int32(unsafe.Sizeof(size)))
	if to == 0 {
		return 0, errors.New("out of memory")
	}
	*at[T](to) = *at[T](address)
	return to, nil
}
