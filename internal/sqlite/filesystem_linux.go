package sqlite

import (
	"fmt"
	"syscall"
)

// networked are filesystems on which two hosts can open one file, or whose
// locks and shared memory cannot be relied on. The numbers are Linux's
// include/uapi/linux/magic.h and fs/*/super.c (read 2026-11-29).
var networked = map[uint32]string{
	0x6969:     "nfs",
	0x517b:     "smb",
	0xfe534d42: "smb2",
	0xff534d42: "cifs",
	0x01021997: "9p",
	0x65735546: "fuse",
	0x00c36400: "ceph",
	0x5346414f: "afs",
	0x6b414653: "kafs",
	0x73757245: "coda",
	0x7461636f: "ocfs2",
	0x01161970: "gfs2",
	0x0bd00bd0: "lustre",
	0x47504653: "gpfs",
	0x564c:     "ncp",
	0x786f4256: "vboxsf",
	0xbacbacbc: "vmhgfs",
}

func statfs(dir string) (uint32, error) {
	var s syscall.Statfs_t
	err := syscall.Statfs(dir, &s)
	return uint32(s.Type), err
}

// checkFilesystem refuses what write-ahead mode cannot work on.
func checkFilesystem(dir string, kindOf func(string) (uint32, error)) error {
	kind, err := kindOf(dir)
	if err != nil {
		return fmt.Errorf("look at the filesystem: %w", err)
	}
	if name := networked[kind]; name != "" {
		return fmt.Errorf("the filesystem is %s: a journal needs a local one, with locks and shared memory", name)
	}
	return nil
}
