package idem

import "context"

// Backup writes a copy of the journal to path while it is in use. The copy has
// all that was recorded before, by this handle and others, posted outcomes too;
// what is recorded while it is made may be missing. A sealed journal's is sealed,
// under the same keys. Do not copy the file itself instead: without its -wal it
// lacks what was acknowledged last.
//
// path must be free, in a directory that exists; an error for what is there
// matches [fs.ErrExist]. The file appears at once, whole, synced and checked,
// with mode 0600, or not at all; only the death of the process leaves one beside
// it whose name ends in .part. Nobody waits meanwhile; the -wal file grows by what
// is written. ctx ends it, and so does Close, with [ErrClosed].
//
// Opened anywhere, in place of the original too, the copy is a copy: what is
// final is answered, and all that was unfinished becomes held ([HoldCopied]),
// since somebody may have gone on with it: look at the provider's side, then
// decide. Operations that are newer than it are not in it: they would get new
// keys and may execute again. To put it back, close the journal everywhere, and
// remove its file, -wal and -shm before the copy is moved there.
func (j *SQLiteJournal) Backup(ctx context.Context, path string) error {
	return failure("back up", j.store.Backup(ctx, path))
}
