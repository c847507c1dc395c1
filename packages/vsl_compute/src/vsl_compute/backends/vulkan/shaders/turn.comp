#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// to[b, i, j] = x[b, i, j], where the neighbours of `to` are along j and those of x along i: through tiles of 32 x 32, a line
// longer than that, so that a column of a tile lies in different banks. Steps are in bytes; a tile for each group in turn.
const uint TILE = 32;
layout(push_constant) uniform Parameters {
    uint64_t to; uint64_t x; uint64_t to_batch; uint64_t to_row; uint64_t x_batch; uint64_t x_column;
    uint rows; uint columns; uint across; uint of_batch; uint tiles;
};
shared NUMBER held[TILE * (TILE + 1)];
void main()
{
    const uint near = gl_LocalInvocationID.x % TILE, first = gl_LocalInvocationID.x / TILE, step = gl_WorkGroupSize.x / TILE;
    for (uint tile = gl_WorkGroupID.x; tile < tiles; tile += gl_NumWorkGroups.x) {
        const uint batch = tile / of_batch, rest = tile % of_batch, row0 = rest / across * TILE, column0 = rest % across * TILE;
        for (uint k = first; k < TILE; k += step) {
            const uint row = row0 + near, column = column0 + k;
            if (row < rows && column < columns)
                held[k * (TILE + 1) + near] = LOAD(AT(x + batch * x_batch + column * x_column, row));
        }
        barrier();
        for (uint k = first; k < TILE; k += step) {
            const uint row = row0 + k, column = column0 + near;
            if (row < rows && column < columns)
                AT(to + batch * to_batch + row * to_row, column) = SAVE(held[near * (TILE + 1) + k]);
        }
        barrier();
    }
}
