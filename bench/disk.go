package main

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/faultinjection/diskfault"
)

// hook puts diskfault under every journal that is opened from now on.
func (r *run) hook(hook func(diskfault.Op) diskfault.Verdict) (restore func(), err error) {
	if _, err := diskfault.Register(); err != nil {
		return nil, err
	}
	if err := diskfault.SetHook(r.dir, hook); err != nil {
		return nil, err
	}
	return func() { _ = diskfault.SetHook(r.dir, nil) }, nil // it fails before Register only
}

// slowSyncs makes each sync take d longer.
func (r *run) slowSyncs(d time.Duration) (restore func(), err error) {
	return r.hook(diskfault.DelaySync(d))
}

// countSyncs counts the syncs of the journals' logs.
func (r *run) countSyncs() (count func() int64, restore func(), err error) {
	var n atomic.Int64
	restore, err = r.hook(func(op diskfault.Op) diskfault.Verdict {
		if op.Kind == diskfault.Sync && strings.HasSuffix(op.File, "-wal") {
			n.Add(1)
		}
		return diskfault.Verdict{}
	})
	return n.Load, restore, err
}
