package idem

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is pruned makes room: as many operations again fit into the same file.
func TestO09_PrunedPagesAreUsedAgain(t *testing.T) {
	t.Parallel()
	g := newGrowing(t)
	g.finish(3 * growth())
	pruned, err := g.journal.Prune(t.Context(), time.Now())
	require.NoError(t, err)
	require.Equal(t, 3*growth(), pruned)
	g.logged()
	before, free := g.size(""), mustStats(t, g.journal).FreeBytes
	assert.Greater(t, free, before/2, "most of it was bodies")
	g.finish(growth())
	g.logged()
	assert.Equal(t, before, g.size(""))
}
