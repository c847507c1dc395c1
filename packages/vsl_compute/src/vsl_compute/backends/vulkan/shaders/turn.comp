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
    const uint64_t read_step = x_column * step, write_step = to_row * step;
    for (uint tile = gl_WorkGroupID.x; tile < tiles; tile += gl_NumWorkGroups.x) {
        const uint batch = tile / of_batch, rest = tile % of_batch, row0 = rest / across * TILE, column0 = rest % across * TILE;
        // addresses go on by steps: worked out for each element they took longer than its load
        uint64_t read = x + batch * x_batch + uint64_t(column0 + first) * x_column + uint64_t(row0 + near) * SIZE;
        uint64_t write = to + batch * to_batch + uint64_t(row0 + first) * to_row + uint64_t(column0 + near) * SIZE;
        if (row0 + TILE <= rows && column0 + TILE <= columns) {
            NUMBER inner[8]; // all are asked for before the first arrives
            [[unroll]] for (uint l0 = 0; l0 < TILE / step; l0 += 8) {
                [[unroll]] for (uint l = 0; l < min(8, TILE / step); ++l, read += read_step) inner[l] = LOAD(AT(read, 0));
                [[unroll]] for (uint l = 0; l < min(8, TILE / step); ++l) held[(first + (l0 + l) * step) * (TILE + 1) + near] = inner[l];
            }
            barrier();
            [[unroll]] for (uint l = 0; l < TILE / step; ++l) {
                AT(write, 0) = SAVE(held[near * (TILE + 1) + first + l * step]);
                write += write_step;
            }
        } else {
            for (uint k = first; k < TILE; k += step, read += read_step)
                if (row0 + near < rows && column0 + k < columns) held[k * (TILE + 1) + near] = LOAD(AT(read, 0));
            barrier();
            for (uint k = first; k < TILE; k += step, write += write_step)
                if (row0 + k < rows && column0 + near < columns) AT(write, 0) = SAVE(held[near * (TILE + 1) + k]);
        }
        barrier();
    }
}
