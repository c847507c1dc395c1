#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// out = alpha * a @ x + beta * out for a vector x. A group of COUNT threads is ROWS of LANES: without TURN, a has unit stride along
// k, and LANES threads share each of ROWS rows of a; with it, along m, and a thread has one result, or four if FOURS, while ROWS
// threads share its k's. An index of z is a batch, or a part of one's k as in gemm.
layout(constant_id = 1) const uint TURN = 0;
layout(constant_id = 2) const uint LANES = 32;
layout(constant_id = 3) const uint ROWS = 8;
layout(constant_id = 4) const uint FOURS = 0; // whole vectors of four can be read from a, and from x without TURN
layout(constant_id = 5) const uint PARTIAL = 0; // out is an array of partial products, in the type of sums
const uint COUNT = LANES * ROWS, EACH = FOURS != 0 ? 4 : 1;
const uint AHEAD = 4; // loads on their way before the first is used
layout(buffer_reference, std430, buffer_reference_align = SIZE4) buffer Four { STORED4 v; };
layout(buffer_reference, std430, buffer_reference_align = NUMBER_SIZE) buffer Number { NUMBER v; };
layout(push_constant) uniform Parameters {
    uint64_t a; uint64_t x; uint64_t to; uint64_t batch_a; uint64_t batch_x; uint64_t batch_to; // batches in bytes
    NUMBER alpha; NUMBER beta;
    uint m; uint k; uint lda; int step_x; int step_to; uint part; uint parts;
};
#if defined(HALF) || defined(BRAIN)
vec4 load4(uvec4 s) { return vec4(LOAD(s.x), LOAD(s.y), LOAD(s.z), LOAD(s.w)); }
#define LOAD4(s) load4(uvec4(s))
#else
#define LOAD4(s) (s)
#endif
shared NUMBER4 sums[COUNT];

NUMBER4 read(uint64_t base, uint64_t i)
{
    if (FOURS != 0u) return LOAD4(Four(base + i * SIZE).v);
    return NUMBER4(LOAD(AT(base, i)), 0, 0, 0);
}
// what a's entries at (row, j) are multiplied by
NUMBER4 factor(uint64_t base, uint j)
{
    if (TURN == 0u && FOURS != 0u) return LOAD4(Four(base + uint64_t(j) * SIZE).v);
    return NUMBER4(LOAD(AT(base, uint64_t(int64_t(j) * step_x))));
}
void main()
{
    const uint t = gl_LocalInvocationID.x, z = gl_WorkGroupID.z, group = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    const uint batch = z / parts, first = z % parts * part, last = min(k, first + part), lane = t % LANES, side = t / LANES;
    const uint64_t base_a = a + batch * batch_a, base_x = x + batch * batch_x, base_to = to + z * batch_to;
    NUMBER4 sum = NUMBER4(0);
    const uint row = TURN == 0u ? group * ROWS + side : (group * LANES + lane) * EACH;
    const uint step = TURN == 0u ? LANES * EACH : ROWS;
    const uint64_t begin = TURN == 0u ? uint64_t(min(row, m - 1u)) * lda : uint64_t(min(row, m - EACH));
    const uint64_t pace = TURN == 0u ? 1u : lda;
    uint j = first + (TURN == 0u ? lane * EACH : side);
    for (; j + (AHEAD - 1u) * step < last; j += AHEAD * step) {
        NUMBER4 v[AHEAD];
        [[unroll]] for (uint i = 0; i < AHEAD; ++i) v[i] = read(base_a, begin + (j + i * step) * pace);
        [[unroll]] for (uint i = 0; i < AHEAD; ++i) sum = ADDED(sum, v[i], factor(base_x, j + i * step));
    }
    for (; j < last; j += step) sum = ADDED(sum, read(base_a, begin + j * pace), factor(base_x, j));
    if (TURN == 0u) {
        sum.x = (sum.x + sum.y) + (sum.z + sum.w);
        sums[t] = sum;
        [[unroll]] for (uint s = LANES / 2u; s > 0u; s >>= 1) {
            barrier();
            if (lane < s) sums[t].x = sum.x += sums[t + s].x;
        }
        if (lane != 0u) return;
    } else {
        sums[t] = sum;
        [[unroll]] for (uint s = ROWS / 2u; s > 0u; s >>= 1) {
            barrier();
            if (side < s) sums[t] = sum += sums[t + s * LANES];
        }
        if (side != 0u) return;
    }
    [[unroll]] for (uint c = 0; c < (TURN == 0u ? 1u : EACH); ++c) if (row + c < m) {
        NUMBER y = alpha * sum[c];
        const uint64_t place = uint64_t(int64_t(row + c) * step_to);
        if (PARTIAL != 0u) {
            Number(base_to + place * NUMBER_SIZE).v = y;
            continue;
        }
        if (beta != NUMBER(0)) y += beta * LOAD(AT(base_to, place));
        AT(base_to, place) = SAVE(y);
    }
}
