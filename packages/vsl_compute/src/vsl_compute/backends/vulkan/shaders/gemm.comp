#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// out = alpha * a @ b + beta * out, a batch an index of z: a group keeps k-major tiles of a and b in shared memory, a thread TM x TN
// results in registers; the next tile is fetched while this one is used. a is m x k with unit stride along k, or along m if TURN_A;
// b is k x n with unit stride along n, or along k if TURN_B; out has unit stride along n. VECTOR 1 says that sizes and strides are
// multiples of the tile's and of 4, and addresses aligned, so that whole vectors are loaded without a question; 2, that all but the
// tile's multiples holds, so that a vector is inside or outside as a whole. WHOLE says the same of out.
layout(constant_id = 1) const uint BM = 64;
layout(constant_id = 2) const uint BN = 64;
layout(constant_id = 3) const uint BK = 16;
layout(constant_id = 4) const uint TM = 4;
layout(constant_id = 5) const uint TN = 4;
layout(constant_id = 6) const uint TURN_A = 0;
layout(constant_id = 7) const uint TURN_B = 0;
layout(constant_id = 8) const uint VECTOR = 0;
layout(constant_id = 9) const uint COUNT = 256; // threads of a group, as constant 0
layout(constant_id = 10) const uint WHOLE = 0;
const uint PM = BM / 4 + 1, PN = BN / 4 + 1;
const uint LA = (BM * BK) / (4 * COUNT), LB = (BN * BK) / (4 * COUNT);
const uint DOWN = BM / TM, ACROSS = BN / TN;
layout(buffer_reference, std430, buffer_reference_align = SIZE4) buffer Four { STORED4 v; };
layout(push_constant) uniform Parameters {
    uint64_t a; uint64_t b; uint64_t to; uint64_t batch_a; uint64_t batch_b; uint64_t batch_to; // batches in bytes
    NUMBER alpha; NUMBER beta;
    uint m; uint n; uint k; uint lda; uint ldb; uint ldc;
};
#define FOUR(address, i) Four((address) + uint64_t(i) * SIZE).v
#if defined(HALF) || defined(BRAIN)
vec4 load4(uvec4 s) { return vec4(LOAD(s.x), LOAD(s.y), LOAD(s.z), LOAD(s.w)); }
#define LOAD4(s) load4(uvec4(s))
#else
#define LOAD4(s) (s)
#endif
shared NUMBER4 tile_a[BK * PM];
shared NUMBER4 tile_b[BK * PN];

// four neighbours in memory from (row, column) of a matrix of rows x columns that begins at `base`; zeros outside
NUMBER4 fetch(uint64_t base, uint ld, uint rows, uint columns, uint row, uint column)
{
    const uint64_t at = uint64_t(row) * ld + column;
    if (VECTOR == 1u) return LOAD4(FOUR(base, at));
    NUMBER4 r = NUMBER4(0);
    if (VECTOR == 2u) {
        if (row < rows && column < columns) r = LOAD4(FOUR(base, at));
        return r;
    }
    if (row < rows) {
        [[unroll]] for (uint c = 0; c < 4u; ++c) if (column + c < columns) r[c] = LOAD(AT(base, at + c));
    }
    return r;
}
void main()
{
    const uint t = gl_LocalInvocationID.x, z = gl_WorkGroupID.z;
    const uint row0 = gl_WorkGroupID.y * BM, column0 = gl_WorkGroupID.x * BN;
    const uint64_t base_a = a + z * batch_a, base_b = b + z * batch_b, base_to = to + z * batch_to;
    const uint ty = t / ACROSS, tx = t % ACROSS;
    NUMBER4 sum[TM * TN / 4];
    [[unroll]] for (uint i = 0; i < TM * TN / 4; ++i) sum[i] = NUMBER4(0);
    NUMBER4 next_a[LA];
    NUMBER4 next_b[LB];
#define FETCH(k0) \
    [[unroll]] for (uint l = 0; l < LA; ++l) { \
        const uint q = l * COUNT + t; \
        if (TURN_A != 0u) next_a[l] = fetch(base_a, lda, k, m, (k0) + q / (BM / 4), row0 + (q % (BM / 4)) * 4); \
        else next_a[l] = fetch(base_a, lda, m, k, row0 + q / (BK / 4), (k0) + (q % (BK / 4)) * 4); \
    } \
    [[unroll]] for (uint l = 0; l < LB; ++l) { \
        const uint q = l * COUNT + t; \
        if (TURN_B == 0u) next_b[l] = fetch(base_b, ldb, k, n, (k0) + q / (BN / 4), column0 + (q % (BN / 4)) * 4); \
        else next_b[l] = fetch(base_b, ldb, n, k, column0 + q / (BK / 4), (k0) + (q % (BK / 4)) * 4); \
    }
    FETCH(0)
    for (uint k0 = 0; k0 < k; k0 += BK) {
        barrier();
        [[unroll]] for (uint l = 0; l < LA; ++l) {
            const uint q = l * COUNT + t;
            if (TURN_A != 0u) tile_a[q / (BM / 4) * PM + q % (BM / 4)] = next_a[l];
            else {
                const uint i = q / (BK / 4), kk = (q % (BK / 4)) * 4;
                [[unroll]] for (uint c = 0; c < 4u; ++c) tile_a[(kk + c) * PM + (i >> 2)][i & 3u] = next_a[l][c];
            }
        }
        [[unroll]] for (uint l = 0; l < LB; ++l) {
            const uint q = l * COUNT + t;
            if (TURN_B == 0u) tile_b[q / (BN / 4) * PN + q % (BN / 4)] = next_b[l];
            else {
                const uint j = q / (BK / 4), kk = (q % (BK / 4)) * 4;
                [[unroll]] for (uint c = 0; c < 4u; ++c) tile_b[(kk + c) * PN + (j >> 2)][j & 3u] = next_b[l][c];
            }
        }
        barrier();
        if (k0 + BK < k) { FETCH(k0 + BK) }
        [[unroll]] for (uint kk = 0; kk < BK; ++kk) {
            NUMBER4 fa[TM / 4];
            NUMBER4 fb[TN / 4];
            [[unroll]] for (uint i = 0; i < TM / 4; ++i) fa[i] = tile_a[kk * PM + i * DOWN + ty];
            [[unroll]] for (uint j = 0; j < TN / 4; ++j) fb[j] = tile_b[kk * PN + j * ACROSS + tx];
            [[unroll]] for (uint i = 0; i < TM; ++i)
                [[unroll]] for (uint j = 0; j < TN / 4; ++j)
                    sum[i * (TN / 4) + j] = ADDED(sum[i * (TN / 4) + j], NUMBER4(fa[i >> 2][i & 3u]), fb[j]);
        }
    }
    [[unroll]] for (uint i = 0; i < TM; ++i) {
        const uint row = row0 + (i >> 2) * DOWN * 4 + ty * 4 + (i & 3u);
        [[unroll]] for (uint j = 0; j < TN / 4; ++j) {
            const uint column = column0 + j * ACROSS * 4 + tx * 4;
            const uint64_t at = uint64_t(row) * ldc + column;
            NUMBER4 r = alpha * sum[i * (TN / 4) + j];
#if !defined(HALF) && !defined(BRAIN)
            if (WHOLE != 0u) {
                if (row < m && column < n) {
                    if (beta != NUMBER(0)) r += beta * FOUR(base_to, at);
                    FOUR(base_to, at) = r;
                }
                continue;
            }
#endif
            if (row < m) {
                [[unroll]] for (uint c = 0; c < 4u; ++c) if (column + c < n) {
                    NUMBER y = r[c];
                    if (beta != NUMBER(0)) y += beta * LOAD(AT(base_to, at + c));
                    AT(base_to, at + c) = SAVE(y);
                }
            }
        }
    }
}
