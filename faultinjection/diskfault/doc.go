// Package diskfault makes SQLite's disk fail on purpose: it fails, cuts short or
// delays chosen disk operations, kills the process at one, and rebuilds every
// state that a power cut could leave on the disk. It answers the question that
// kill -9 cannot, since the system's cache outlives a process: was it synced?
//
//	vfs, err := diskfault.Register() // before the journal is opened
//	if err != nil {
//		log.Fatal(err)
//	}
//	log.Print("files go through ", vfs)
//	err = diskfault.SetHook("payments.db", diskfault.FailNth(diskfault.Sync, 1, diskfault.SyncFailed, false))
//	if err != nil {
//		log.Fatal(err)
//	}
//	journal, err := idem.Open("payments.db", nil) // fails: its first sync does
//
// It wraps the default VFS of modernc.org/sqlite, in the process, so it needs no
// root and no device, and a run takes about a millisecond.
//
// # How one test goes
//
//  1. [Register], once in the process: what is opened from then on goes through
//     this package. A file without a hook works as before.
//  2. [SetHook] with [FailNth], [FailRandom], [KillNth], [DelaySync], a
//     [Recorder] or a function of your own. A hook sees each [Op] before it is
//     done and answers with a [Verdict].
//  3. The code under test runs. Fail the first operation, the second, the third,
//     until a run ends without a fault.
//  4. For power cuts: [Recorder.States] rebuilds what the disk could hold,
//     [State.WriteTo] writes it, and the code under test opens it. What was
//     marked as promised by then must be there.
//
// A test that cannot fail proves nothing: let the disk lie once about its syncs
// (give the Recorder no sync to see), and see promises broken.
//
// # Caveats
//
// It is for tests only. The registry of VFSes is the process's, and what is
// registered stays. Reads, locks and the shared memory file (-shm) are not
// touched; neither are files that a program writes by other means than SQLite,
// which a Recorder sees only by looking at its folder.
package diskfault
