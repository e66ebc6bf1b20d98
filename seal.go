package idem

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"

	"github.com/idem-go/idem/internal/sqlite"
)

// Sealer seals what a journal stores of requests and answers
// ([SQLiteOptions.Sealer]). [NewAESGCM] makes one; write another to have the
// keys elsewhere. It is asked in the middle of writes, up to four times an
// operation, so it must be fast and must not wait. Where Seal fails, an operation
// is refused, and one that has ended is recorded without its answer
// ([ErrNotKept]), or is in doubt as if the answer was lost. A panic counts as a
// failure. It must be safe for concurrent use.
type Sealer interface {
	// Seal encrypts and authenticates plaintext, and authenticates associated,
	// which is not stored, under the current key, of which it returns the id: 1
	// to 64 bytes, stored readably. The result is new memory and neither argument
	// is kept.
	Seal(plaintext, associated []byte) (key string, sealed []byte, err error)
	// Open gives back what Seal has sealed under that key. An error that matches
	// [ErrSealed] says that there is no such key here: what is stored is then
	// left as it is, for those who have it. Every other error says that it is not
	// what was sealed, or not there: the row is damaged and is held.
	Open(key string, sealed, associated []byte) (plaintext []byte, err error)
}

// ErrSealed means that something is sealed and that no key at hand opens it.
var ErrSealed = sqlite.ErrSealed

const (
	aesKeySize = 32
	longestID  = 64
)

// NewAESGCM returns a [Sealer] over AES-256-GCM with random nonces of 96 bits.
// keys are 32 random bytes each, by id; everything is sealed under the current
// one, and opened under whichever it was sealed. Ids are 1 to 64 bytes and
// readable in the journal. A key that can be guessed, such as a password, is no
// key. keys is not kept.
//
// To rotate, give every process the new key as a further one, then make it the
// current one; drop the old one once the bodies of its time are pruned.
//
// Change the key before 2^32 values were sealed under it, over all journals
// that share it (NIST SP 800-38D 8.3, read 2026-11-30): four for an operation,
// so about 1,000,000,000 operations.
func NewAESGCM(keys map[string][]byte, current string) (Sealer, error) {
	s := &aesGCM{keys: make(map[string]cipher.AEAD, len(keys)), current: current}
	ids := make(map[string]string, len(keys))
	for id, key := range keys {
		if id == "" || len(id) > longestID {
			return nil, fmt.Errorf("idem: seal: the key id %q has %d bytes, not 1 to %d", id, len(id), longestID)
		}
		if len(key) != aesKeySize {
			return nil, fmt.Errorf("idem: seal: key %q has %d bytes, not %d", id, len(key), aesKeySize)
		}
		if string(key) == string(make([]byte, aesKeySize)) {
			return nil, fmt.Errorf("idem: seal: key %q is all zeros", id)
		}
		if other, ok := ids[string(key)]; ok {
			return nil, fmt.Errorf("idem: seal: the ids %q and %q have the same key", min(id, other), max(id, other))
		}
		ids[string(key)] = id
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("idem: seal: key %q: %w", id, err)
		}
		if s.keys[id], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, fmt.Errorf("idem: seal: key %q: %w", id, err)
		}
	}
	if s.keys[current] == nil {
		return nil, fmt.Errorf("idem: seal: the current key %q is not among the keys", current)
	}
	return s, nil
}

type aesGCM struct {
	keys    map[string]cipher.AEAD
	current string
}

func (s *aesGCM) Seal(plaintext, associated []byte) (string, []byte, error) {
	aead := s.keys[s.current]
	room := make([]byte, 0, len(plaintext)+aead.Overhead())
	return s.current, aead.Seal(room, nil, plaintext, associated), nil
}

func (s *aesGCM) Open(key string, sealed, associated []byte) ([]byte, error) {
	aead := s.keys[key]
	if aead == nil {
		return nil, fmt.Errorf("%w: key %q is not among the keys", ErrSealed, key)
	}
	plaintext, err := aead.Open(nil, nil, sealed, associated)
	if err != nil {
		return nil, errors.New("it was changed or moved, or is sealed under another key of the same id")
	}
	return plaintext, nil
}
