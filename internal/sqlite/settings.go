package sqlite

import (
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
)

// The level of synced batches: in write-ahead mode it equals FULL, and it is
// the only one that keeps the last commit should the mode ever not be WAL.
const (
	fullLevel   = "PRAGMA synchronous=EXTRA"
	normalLevel = "PRAGMA synchronous=NORMAL"
)

// dataSource makes the URI of a database file. What is not escaped would cut
// the name short and open another file.
func dataSource(path, mode string) string {
	p := filepath.ToSlash(path)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // C:/x
	}
	u := url.URL{Scheme: "file", Path: p}
	// An own busy wait is fair to other processes and does not freeze virtual
	// time, so SQLite's is off.
	return "file:" + u.EscapedPath() + "?mode=" + mode + "&_pragma=busy_timeout(0)&_error_rc=true"
}

var writerSettings = []string{
	"PRAGMA journal_mode=WAL",
	fullLevel,
	"PRAGMA cache_size=-16384",
	"PRAGMA wal_autocheckpoint=8000",     // a backstop: we checkpoint after the callers were woken
	"PRAGMA journal_size_limit=67108864", // trims only abnormal growth
	"PRAGMA trusted_schema=OFF",
}

var readerSettings = []string{
	fullLevel,
	"PRAGMA query_only=ON",
	"PRAGMA cache_size=-4096",
	"PRAGMA trusted_schema=OFF",
}

// openWriter opens the connection that writes. It expects a journal of ours
// and changes nothing in a file that is not.
func openWriter(path string) (*conn, error) {
	c, err := open(path, "rw", writerSettings)
	if err == nil {
		c.sends = true
	}
	return c, err
}

func openReader(path string) (*conn, error) {
	return open(path, "ro", readerSettings)
}

func open(path, mode string, settings []string) (*conn, error) {
	c, err := connect(dataSource(path, mode))
	if err != nil {
		return nil, err
	}
	c.path = path
	if err = c.recognise(); err == nil {
		err = c.configure(settings)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// configure applies the settings and reads back those a promise rests on.
func (c *conn) configure(settings []string) error {
	if runtime.GOOS == "darwin" { // fsync does not flush the drive there
		settings = append([]string{"PRAGMA fullfsync=ON", "PRAGMA checkpoint_fullfsync=ON"}, settings...)
	}
	for _, s := range settings {
		if err := c.text(s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	mode, err := c.value("PRAGMA journal_mode")
	if err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("write-ahead mode did not take: journal_mode is %v", mode)
	}
	level, err := c.number("PRAGMA synchronous")
	if err != nil {
		return err
	}
	if level < 2 {
		return fmt.Errorf("full sync did not take: synchronous is %d", level)
	}
	c.full = true
	return nil
}

// level sets how the next transaction is synced. The PRAGMA acts when it is
// prepared, so a kept statement would do nothing.
func (c *conn) level(full bool) error {
	if c.full == full {
		return nil
	}
	l := normalLevel
	if full {
		l = fullLevel
	}
	if err := c.text(l); err != nil {
		return err
	}
	c.full = full
	return nil
}
