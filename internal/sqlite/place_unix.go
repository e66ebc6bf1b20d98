//go:build unix

package sqlite

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ownerOf is the user whose file it is.
func ownerOf(info fs.FileInfo) (uid int, known bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}

// modesKept says that the system has users and modes.
const modesKept = true

// checkDirectory refuses a directory in which others can put their own files in
// place of ours. One that only its owner, or a group, can write is trusted.
func (p place) checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return bare(err)
	}
	if info.Mode().Perm()&0o002 == 0 {
		return nil
	}
	if info.Mode()&fs.ModeSticky == 0 {
		return unsafePlace("everybody may replace files in its directory (it is world-writable, without the sticky bit): make a directory of mode 0700 for it, in there")
	}
	if uid, known := p.owner(info); known && uid != 0 && uid != p.user() {
		return unsafePlace(fmt.Sprintf("its directory is world-writable and belongs to user %d, who may replace files in it", uid))
	}
	return nil
}
