#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// out = alpha * a @ b + beta * out. A group keeps tiles of a (BM x BK) and b (BK x BN) in shared memory, k outermost, and a thread
// TM x TN results in registers; the next tile is fetched while this one is used. a is m x k with unit stride along k, or along m
// if TURN_A; b is k x n with unit stride along n, or along k if TURN_B; out has unit stride along n. TEAMS teams of threads share
// the k's of a tile and add up at the end, for results too small to busy a device by themselves. An index of z is a batch, or a
// part of one's k: then out holds PARTIAL products, which gemm_join adds up.
// Rows and columns past an edge are read again from the last one, since nothing of them is stored; k's past the end are zeros.
layout(constant_id = 1) const uint BM = 64;
layout(constant_id = 2) const uint BN = 64;
layout(constant_id = 3) const uint BK = 16;
layout(constant_id = 4) const uint TM = 4;
layout(constant_id = 5) const uint TN = 4;
layout(constant_id = 6) const uint TURN_A = 0;
layout(constant_id = 7) const uint TURN_B = 0;
layout(constant_id = 8) const uint FOURS = 0;    // whole vectors of four: bit 0 of a, bit 1 of b, bit 2 of out
layout(constant_id = 9) const uint COUNT = 256;  // threads of a group, as constant 0
layout(constant_id = 10) const uint EDGES = 3;   // bit 0: m and n may be no multiples of the tile's, bit 1: nor k
layout(constant_id = 15) const uint FAR = 1;     // an element of a tile may lie 2^32 elements after its first: slower
layout(constant_id = 11) const uint BUFFERS = 1; // 2: the next tile is stored beside this one, so that one barrier will do
layout(constant_id = 12) const uint WIDTH = 4;   // 32 neighbouring threads are a block of WIDTH across
layout(constant_id = 13) const uint TEAMS = 1;
layout(constant_id = 14) const uint PARTIAL = 0; // out is an array of partial products, in the type of sums
const uint PM = BM / 4 + 1, PN = BN / 4 + 1;     // one vector more, so that columns lie in different banks
const uint LA = (BM * BK) / (4 * COUNT), LB = (BN * BK) / (4 * COUNT);
const uint DOWN = BM / TM, ACROSS = BN / TN, TEAM = DOWN * ACROSS;
const uint TILE = BK * (PM + PN), RESULTS = TEAMS > 1 ? BM * BN / 4 : 0;
layout(buffer_reference, std430, buffer_reference_align = SIZE4) buffer Four { STORED4 v; };
layout(buffer_reference, std430, buffer_reference_align = NUMBER_SIZE) buffer Number { NUMBER v; };
layout(push_constant) uniform Parameters {
    uint64_t a; uint64_t b; uint64_t to; uint64_t batch_a; uint64_t batch_b; uint64_t batch_to; // batches in bytes
    NUMBER alpha; NUMBER beta;
    uint m; uint n; uint k; uint lda; uint ldb; uint ldc;
    uint part; uint parts; // k's of a part, a multiple of four; parts of a batch
};
#define FOUR(address, i) Four((address) + (i) * SIZE).v
#if defined(HALF) || defined(BRAIN)
vec4 load4(uvec4 s) { return vec4(LOAD(s.x), LOAD(s.y), LOAD(s.z), LOAD(s.w)); }
#define LOAD4(s) load4(uvec4(s))
#define SAVE4(c) STORED4(uvec4(uint(SAVE((c).x)), uint(SAVE((c).y)), uint(SAVE((c).z)), uint(SAVE((c).w))))
#else
#define LOAD4(s) (s)
#define SAVE4(c) (c)
#endif
shared NUMBER4 tiles[BUFFERS * TILE > RESULTS ? BUFFERS * TILE : RESULTS];

uint64_t after(uint row, uint ld, uint column) { return FAR != 0u ? uint64_t(row) * ld + column : uint64_t(row * ld + column); }

// The l-th four of a thread's share of a tile that begins at `base`: SIDE along m or n, BK along k; ALONG says which of them has
// unit stride, m or n. Without vectors the four are COUNT apart, so that neighbouring threads read neighbours.
NUMBER4 fetch(uint64_t base, uint ld, uint l, uint SIDE, bool ALONG, bool fours, uint left, uint left_k)
{
    const uint t = gl_LocalInvocationID.x, inner = ALONG ? SIDE : BK;
    NUMBER4 r = NUMBER4(0);
    if (fours) {
        const uint q = l * COUNT + t;
        uint row = q / (inner / 4), column = q % (inner / 4) * 4u;
        const bool inside = (EDGES & 2u) == 0u || (ALONG ? row : column) < left_k;
        if ((EDGES & 1u) != 0u) {
            if (ALONG) column = min(column, left - 4u);
            else row = min(row, left - 1u);
        }
        if (inside) r = LOAD4(FOUR(base, after(row, ld, column)));
        return r;
    }
    [[unroll]] for (uint c = 0; c < 4u; ++c) {
        const uint q = (l * 4u + c) * COUNT + t;
        uint row = q / inner, column = q % inner;
        const bool inside = (EDGES & 2u) == 0u || (ALONG ? row : column) < left_k;
        if ((EDGES & 1u) != 0u) {
            if (ALONG) column = min(column, left - 1u);
            else row = min(row, left - 1u);
        }
        if (inside) r[c] = LOAD(AT(base, after(row, ld, column)));
    }
    return r;
}
void put(uint at, uint PITCH, uint l, uint SIDE, bool ALONG, bool fours, NUMBER4 r)
{
    const uint t = gl_LocalInvocationID.x, inner = ALONG ? SIDE : BK;
    if (fours) {
        const uint q = l * COUNT + t, row = q / (inner / 4), column = q % (inner / 4);
        if (ALONG) tiles[at + row * PITCH + column] = r;
        else [[unroll]] for (uint c = 0; c < 4u; ++c) tiles[at + (column * 4u + c) * PITCH + (row >> 2)][row & 3u] = r[c];
    } else [[unroll]] for (uint c = 0; c < 4u; ++c) {
        const uint q = (l * 4u + c) * COUNT + t, row = q / inner, column = q % inner;
        const uint kk = ALONG ? row : column, i = ALONG ? column : row;
        tiles[at + kk * PITCH + (i >> 2)][i & 3u] = r[c];
    }
}
void main()
{
    const uint t = gl_LocalInvocationID.x, z = gl_WorkGroupID.z;
    const uint row0 = gl_WorkGroupID.y * BM, column0 = gl_WorkGroupID.x * BN;
    const uint batch = z / parts, first = z % parts * part, step_a = TURN_A != 0u ? lda : 1u, step_b = TURN_B == 0u ? ldb : 1u;
    uint64_t base_a = a + batch * batch_a + (uint64_t(row0) * (TURN_A != 0u ? 1u : lda) + uint64_t(first) * step_a) * SIZE;
    uint64_t base_b = b + batch * batch_b + (uint64_t(column0) * (TURN_B == 0u ? 1u : ldb) + uint64_t(first) * step_b) * SIZE;
    const uint64_t base_to = to + z * batch_to;
    const uint team = t / TEAM, u = t % TEAM, block = u / 32u, lane = u % 32u;
    const uint ty = block / (ACROSS / WIDTH) * (32u / WIDTH) + lane / WIDTH, tx = block % (ACROSS / WIDTH) * WIDTH + lane % WIDTH;
    NUMBER4 sum[TM * TN / 4];
    [[unroll]] for (uint i = 0; i < TM * TN / 4; ++i) sum[i] = NUMBER4(0);
    NUMBER4 next_a[LA];
    NUMBER4 next_b[LB];
    uint left_k = min(k - first, part), at = 0u;
#define FETCH \
    [[unroll]] for (uint l = 0; l < LA; ++l) next_a[l] = fetch(base_a, lda, l, BM, TURN_A != 0u, (FOURS & 1u) != 0u, m - row0, left_k); \
    [[unroll]] for (uint l = 0; l < LB; ++l) next_b[l] = fetch(base_b, ldb, l, BN, TURN_B == 0u, (FOURS & 2u) != 0u, n - column0, left_k);
#define PUT \
    [[unroll]] for (uint l = 0; l < LA; ++l) put(at, PM, l, BM, TURN_A != 0u, (FOURS & 1u) != 0u, next_a[l]); \
    [[unroll]] for (uint l = 0; l < LB; ++l) put(at + BK * PM, PN, l, BN, TURN_B == 0u, (FOURS & 2u) != 0u, next_b[l]); \
    barrier();
    FETCH
    PUT
    while (true) {
        const bool more = left_k > BK;
        if (more) {
            left_k -= BK;
            base_a += uint64_t(step_a) * BK * SIZE;
            base_b += uint64_t(step_b) * BK * SIZE;
            FETCH
        }
        [[unroll]] for (uint kk = 0; kk < BK / TEAMS; ++kk) {
            NUMBER4 fa[TM / 4];
            NUMBER4 fb[TN / 4];
            const uint from = team * (BK / TEAMS) + kk;
            [[unroll]] for (uint i = 0; i < TM / 4; ++i) fa[i] = tiles[at + from * PM + i * DOWN + ty];
            [[unroll]] for (uint j = 0; j < TN / 4; ++j) fb[j] = tiles[at + BK * PM + from * PN + j * ACROSS + tx];
            [[unroll]] for (uint i = 0; i < TM; ++i)
                [[unroll]] for (uint j = 0; j < TN / 4; ++j)
                    sum[i * (TN / 4) + j] = ADDED(sum[i * (TN / 4) + j], NUMBER4(fa[i >> 2][i & 3u]), fb[j]);
        }
        if (!more) break;
        if (BUFFERS == 1u) barrier();
        else at = TILE - at;
        PUT
    }
    if (TEAMS > 1u) {
        [[unroll]] for (uint s = 1; s < TEAMS; ++s) {
            barrier();
            if (team == s) [[unroll]] for (uint i = 0; i < TM * TN / 4; ++i) tiles[i * TEAM + u] = sum[i];
            barrier();
            if (team == 0u) [[unroll]] for (uint i = 0; i < TM * TN / 4; ++i) sum[i] += tiles[i * TEAM + u];
        }
        if (team != 0u) return;
    }
    [[unroll]] for (uint i = 0; i < TM; ++i) {
        const uint row = row0 + (i >> 2) * DOWN * 4 + ty * 4 + (i & 3u);
        [[unroll]] for (uint j = 0; j < TN / 4; ++j) {
            const uint column = column0 + j * ACROSS * 4 + tx * 4;
            const uint64_t place = uint64_t(row) * ldc + column;
            NUMBER4 r = alpha * sum[i * (TN / 4) + j];
            if (PARTIAL != 0u) {
                [[unroll]] for (uint c = 0; c < 4u; ++c)
                    if (row < m && column + c < n) Number(base_to + (place + c) * NUMBER_SIZE).v = r[c];
            } else if ((FOURS & 4u) != 0u) {
                if ((EDGES & 1u) == 0u || (row < m && column < n)) {
                    if (beta != NUMBER(0)) r += beta * LOAD4(FOUR(base_to, place));
                    FOUR(base_to, place) = SAVE4(r);
                }
            } else if (row < m) {
                [[unroll]] for (uint c = 0; c < 4u; ++c) if (column + c < n) {
                    NUMBER y = r[c];
                    if (beta != NUMBER(0)) y += beta * LOAD(AT(base_to, place + c));
                    AT(base_to, place + c) = SAVE(y);
                }
            }
        }
    }
}
