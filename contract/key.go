package contract

import (
	"errors"
	"fmt"
	"strings"
)

// defaultMaxLength is the limit where a contract names none: the widespread one
// (Stripe: docs.stripe.com/api/idempotent_requests, read 2026-11-29).
const defaultMaxLength = 255

// uuidLength is the length of a UUID's text form, which is what a minted key
// has (RFC 9562 4, read 2026-11-29).
const uuidLength = 36

// CheckKey reports why a key cannot be sent under this contract: its length, its
// characters or its form. The error never shows the key.
func (c *Contract) CheckKey(key string) error {
	if c == nil || c.NoKeys {
		return errors.New("contract: the server takes no key")
	}
	limit := c.MaxLength
	if limit == 0 {
		limit = defaultMaxLength
	}
	switch {
	case key == "":
		return fmt.Errorf("contract %q: the key is empty", c.Name)
	case len(key) > limit:
		return fmt.Errorf("contract %q: the key has %d bytes, more than the %d allowed", c.Name, len(key), limit)
	}
	if len(key) < c.MinLength {
		return fmt.Errorf("contract %q: the key has %d bytes, less than the %d required", c.Name, len(key), c.MinLength)
	}
	for i := range len(key) {
		inside := i > 0 && i < len(key)-1
		if problem := c.Form.charProblem(key[i], inside); problem != "" {
			return fmt.Errorf("contract %q: byte %d of the key %s", c.Name, i+1, problem)
		}
	}
	switch {
	case (c.Form == UUID || c.Form == UUID4) && !isUUID(key):
		return fmt.Errorf("contract %q: the key is not a UUID in its 36-character text form", c.Name)
	case c.Form == UUID4 && !isVersion4(key):
		return fmt.Errorf("contract %q: the key is a UUID, but not one of version 4", c.Name)
	}
	return nil
}

// charProblem says what is wrong with one byte of a key; empty means nothing.
func (f Form) charProblem(c byte, inside bool) string {
	switch {
	case c == ' ' && (f == Printable || f == WordSpace):
		if !inside {
			return "is a space, which is lost at either end"
		}
	case c < '!' || c > '~':
		return "is not a visible ASCII character"
	case (f == Word || f == WordSpace) && !isWord(c):
		return "is not a letter, a digit, \"_\" or \"-\""
	}
	return ""
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// isVersion4 looks at the version and the variant of a UUID (RFC 9562 4.1 and
// 4.2, read 2026-11-29).
func isVersion4(uuid string) bool {
	return uuid[14] == '4' && strings.IndexByte("89abAB", uuid[19]) >= 0
}

func isUUID(key string) bool {
	if len(key) != uuidLength {
		return false
	}
	for i := range len(key) {
		switch i {
		case 8, 13, 18, 23:
			if key[i] != '-' {
				return false
			}
		default:
			if !isHex(key[i]) {
				return false
			}
		}
	}
	return true
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// Format writes a key as its place's text, such as the header's value. The key
// is one that [Contract.CheckKey] takes.
func (p Place) Format(key string) string {
	if p.Encoding != Quoted {
		return key
	}
	return `"` + quotedEscapes.Replace(key) + `"`
}

// quotedEscapes are the only two escapes of a structured-field string
// (RFC 9651 3.3.3, read 2026-11-29).
var quotedEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// Parse reads the key from its place's text, such as the header's value that an
// SDK has set.
// It does not judge the key; [Contract.CheckKey] does. The error never shows the
// value.
func (p Place) Parse(value string) (key string, err error) {
	switch p.Encoding {
	case Raw:
		key = value
	case Quoted:
		key, err = parseQuoted(value)
	default:
		err = fmt.Errorf("unknown encoding %q", string(p.Encoding))
	}
	if err == nil && key == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", fmt.Errorf("contract: key in %s: %w", p, err)
	}
	return key, nil
}

// parseQuoted reads one structured-field string (RFC 9651 4.2.5, read
// 2026-11-29). Parameters behind it are refused: they would be lost when the key
// is written again.
func parseQuoted(value string) (string, error) {
	value = strings.Trim(value, " ")
	if value == "" || value[0] != '"' {
		return "", errors.New("it is not in double quotes")
	}
	var key strings.Builder
	for i := 1; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"':
			if i+1 < len(value) {
				return "", fmt.Errorf("text after the closing quote at byte %d", i+1)
			}
			return key.String(), nil
		case c == '\\':
			i++
			if i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", fmt.Errorf("bad escape at byte %d", i)
			}
			key.WriteByte(value[i])
		case c < ' ' || c > '~':
			return "", fmt.Errorf("byte %d is not allowed in a quoted string", i+1)
		default:
			key.WriteByte(c)
		}
	}
	return "", errors.New("the closing quote is missing")
}
