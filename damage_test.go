//go:build linux || darwin

package idem_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

const damageLeast = 105 // kinds of damage

var damageStep = 2 * diskShare // of the bytes that are flipped one by one

// Each kind of damage to a journal, to the disk under it and to the process that
// uses it, one at a time: an error says what is wrong, nothing is sent that is
// not in the journal, nothing that was sent is given another key, and once the
// damage is undone all goes on.
func TestDamage(t *testing.T) {
	m := newDamageTemplate(t)
	rows := slices.Concat(damageShm(), damageLog(), damageHeads(), damagePages(), damagePayloads(),
		damageDisk(), damageBeside(), damageCalls(), damagePlaces(), damageModes(), damageLimits())
	names := map[string]bool{}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) { row.run(t, m) })
		assert.False(t, names[row.name], row.name)
		names[row.name] = true
	}
	t.Logf("%d kinds of damage", len(rows))
	assert.GreaterOrEqual(t, len(rows), damageLeast)
}
