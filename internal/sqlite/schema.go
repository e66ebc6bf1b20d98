package sqlite

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

// applicationID marks our files: "idem" in ASCII.
const applicationID = 0x6964656d

//go:embed schema/*.sql
var schemaFiles embed.FS

// migrations returns the scripts in order. The n-th one leads to schema n.
func migrations() ([]string, error) {
	entries, err := fs.ReadDir(schemaFiles, "schema") // sorted by name
	if err != nil {
		return nil, err
	}
	var scripts []string
	for _, e := range entries {
		b, err := schemaFiles.ReadFile("schema/" + e.Name())
		if err != nil {
			return nil, err
		}
		scripts = append(scripts, string(b))
	}
	return scripts, nil
}

// recognise refuses what is not a journal that this version understands.
func (c *conn) recognise() error {
	id, err := c.number("PRAGMA application_id")
	if err != nil {
		return err
	}
	if id != applicationID {
		return fmt.Errorf("not a journal: application id %#x instead of %#x", uint32(id), applicationID)
	}
	have, err := c.number("PRAGMA user_version")
	if err != nil {
		return err
	}
	scripts, err := migrations()
	if err != nil {
		return err
	}
	if have > int64(len(scripts)) {
		return fmt.Errorf("schema %d is newer than %d", have, len(scripts))
	}
	return nil
}

// migrate brings the schema up, one transaction a step. Nobody else migrates
// meanwhile: the caller has the set-up lock.
func (c *conn) migrate() error {
	scripts, err := migrations()
	if err != nil {
		return err
	}
	for {
		have, err := c.number("PRAGMA user_version")
		if err != nil || have >= int64(len(scripts)) {
			return err
		}
		if err := c.step(have+1, scripts[have]); err != nil {
			return fmt.Errorf("migrate to schema %d: %w", have+1, err)
		}
	}
}

func (c *conn) step(version int64, script string) error {
	return c.atomically(func() error {
		if err := c.text(script); err != nil {
			return err
		}
		return c.text(fmt.Sprintf("PRAGMA user_version=%d", version))
	})
}

// atomically runs do in a transaction of its own, at set-up.
func (c *conn) atomically(do func() error) error {
	if _, err := c.exec(beginImmediate); err != nil {
		return err
	}
	err := do()
	if err == nil {
		_, err = c.exec(commit)
	}
	if err != nil {
		_, undone := c.exec(rollback)
		return errors.Join(err, undone)
	}
	return nil
}
