#version 460
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#ifdef BRAIN
#extension GL_EXT_bfloat16 : require
#define ELEMENT bfloat16_t
#else
#define ELEMENT float16_t
#endif
// out = alpha * a @ b in 16-bit floats by a device's matrix units, sums in float32; parameters as in gemm.comp, beta is 0. A
// subgroup has WM x WN of a group's BM x BN results, in cooperative matrices of 16 x 16. m, n and a part of k are multiples of the
// tile's, BK of 32, and all addresses and strides of 16 bytes.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint BM = 128;
layout(constant_id = 2) const uint BN = 128;
layout(constant_id = 3) const uint BK = 32;
layout(constant_id = 4) const uint WM = 64;
layout(constant_id = 5) const uint WN = 64;
layout(constant_id = 6) const uint TURN_A = 0;
layout(constant_id = 7) const uint TURN_B = 0;
layout(constant_id = 9) const uint COUNT = 128;  // threads of a group, as constant 0
layout(constant_id = 14) const uint PARTIAL = 0; // out is an array of partial products in float32
layout(push_constant) uniform Parameters {
    uint64_t a; uint64_t b; uint64_t to; uint64_t batch_a; uint64_t batch_b; uint64_t batch_to; // batches in bytes
    float alpha; float beta;
    uint m; uint n; uint k; uint lda; uint ldb; uint ldc;
    uint part; uint parts; // k's of a part; parts of a batch
};
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Eight { uvec4 v; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer Rows { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer Sums { float v[]; };
const uint ROWS_A = TURN_A != 0 ? BK : BM, COLUMNS_A = TURN_A != 0 ? BM : BK; // of the tiles as they lie in memory
const uint ROWS_B = TURN_B != 0 ? BN : BK, COLUMNS_B = TURN_B != 0 ? BK : BN;
const uint PA = COLUMNS_A / 8 + 1, PB = COLUMNS_B / 8 + 1; // 16 bytes more, so that rows begin in different banks
const uint SIZE_A = ROWS_A * PA;
const uint LA = BM * BK / (8 * COUNT), LB = BN * BK / (8 * COUNT);
const uint FM = WM / 16, FN = WN / 16;
#define OF_A coopmat<ELEMENT, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define OF_B coopmat<ELEMENT, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define SUM coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define STORED coopmat<ELEMENT, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
const uint PO = WN / 8 + 1, HELD = SIZE_A + ROWS_B * PB, LEAVING = COUNT / 32 * 16 * PO; // 16 rows of each subgroup's results
shared uvec4 tiles[HELD > LEAVING ? HELD : LEAVING];

void main()
{
    const uint t = gl_LocalInvocationID.x, z = gl_WorkGroupID.z, batch = z / parts, first = z % parts * part;
    const uint row0 = gl_WorkGroupID.y * BM, column0 = gl_WorkGroupID.x * BN;
    const uint step_a = TURN_A != 0u ? lda : 1u, step_b = TURN_B == 0u ? ldb : 1u;
    const uint across_a = COLUMNS_A / 8, across_b = COLUMNS_B / 8; // threads along a row of a tile
    // Eight threads write 128 bytes at a time. Where those are two rows of 64 they are four rows apart, or banks would clash.
    const uint pairs = t / 32 * 8 + t / 8 % 4 + t / 4 % 2 * 4;
    const uint row_a = across_a == 4u ? pairs : t / across_a, row_b = across_b == 4u ? pairs : t / across_b;
    uint64_t next_a = a + batch * batch_a + (uint64_t(row0) * (TURN_A != 0u ? 1u : lda) + uint64_t(first) * step_a) * 2u
                    + uint64_t(row_a * lda + t % across_a * 8) * 2u;
    uint64_t next_b = b + batch * batch_b + (uint64_t(column0) * (TURN_B == 0u ? 1u : ldb) + uint64_t(first) * step_b) * 2u
                    + uint64_t(row_b * ldb + t % across_b * 8) * 2u;
    const uint64_t rows_a = uint64_t(COUNT / across_a * lda) * 2u, rows_b = uint64_t(COUNT / across_b * ldb) * 2u;
    const uint put_a = row_a * PA + t % across_a, put_b = SIZE_A + row_b * PB + t % across_b;
    const uint wm = gl_SubgroupID / (BN / WN) * WM, wn = gl_SubgroupID % (BN / WN) * WN;
    SUM sum[FM * FN];
    [[unroll]] for (uint i = 0; i < FM * FN; ++i) sum[i] = SUM(0.0);
    uvec4 held_a[LA], held_b[LB];
    OF_A fa[2][FM];
    OF_B fb[2][FN];
    uint left = part;
// The next tile to registers, after the last that one again: with a branch, products would not hide what it takes.
#define FETCH \
    [[unroll]] for (uint l = 0; l < LA; ++l) held_a[l] = Eight(next_a + l * rows_a).v; \
    [[unroll]] for (uint l = 0; l < LB; ++l) held_b[l] = Eight(next_b + l * rows_b).v; \
    next_a += left > BK ? uint64_t(step_a) * BK * 2u : 0u; \
    next_b += left > BK ? uint64_t(step_b) * BK * 2u : 0u; \
    left -= left > BK ? BK : 0u;
#define PUT \
    [[unroll]] for (uint l = 0; l < LA; ++l) tiles[put_a + l * (COUNT / across_a) * PA] = held_a[l]; \
    [[unroll]] for (uint l = 0; l < LB; ++l) tiles[put_b + l * (COUNT / across_b) * PB] = held_b[l];
#define LOAD(f, kk) \
    [[unroll]] for (uint i = 0; i < FM; ++i) { \
        if (TURN_A != 0u) coopMatLoad(fa[f][i], tiles, (kk) * PA + (wm + i * 16) / 8, PA, gl_CooperativeMatrixLayoutColumnMajor); \
        else coopMatLoad(fa[f][i], tiles, (wm + i * 16) * PA + (kk) / 8, PA, gl_CooperativeMatrixLayoutRowMajor); \
    } \
    [[unroll]] for (uint j = 0; j < FN; ++j) { \
        if (TURN_B != 0u) coopMatLoad(fb[f][j], tiles, SIZE_A + (wn + j * 16) * PB + (kk) / 8, PB, gl_CooperativeMatrixLayoutColumnMajor); \
        else coopMatLoad(fb[f][j], tiles, SIZE_A + (kk) * PB + (wn + j * 16) / 8, PB, gl_CooperativeMatrixLayoutRowMajor); \
    }
#define MULTIPLY(f) \
    [[unroll]] for (uint j = 0; j < FN; ++j) \
        [[unroll]] for (uint i = 0; i < FM; ++i) sum[i * FN + j] = coopMatMulAdd(fa[f][i], fb[f][j], sum[i * FN + j]);
    FETCH
    PUT
    barrier();
    FETCH
    LOAD(0, 0)
    // matrices of 16 k's are loaded while those of the 16 before are multiplied, the first of a tile while the last of another
    for (uint k0 = 0; k0 < part; k0 += BK) {
        [[unroll]] for (uint kk = 16; kk < BK; kk += 16) {
            LOAD(kk / 16 % 2, kk)
            MULTIPLY(1 - kk / 16 % 2)
        }
        barrier();
        PUT
        barrier();
        FETCH
        LOAD(0, 0)
        MULTIPLY(1)
    }
    if (PARTIAL != 0u) {
        Sums partial = Sums(to + z * batch_to + (uint64_t(row0 + wm) * ldc + column0 + wn) * 4u);
        [[unroll]] for (uint i = 0; i < FM; ++i) [[unroll]] for (uint j = 0; j < FN; ++j)
            coopMatStore(sum[i * FN + j], partial.v, i * 16 * ldc + j * 16, ldc, gl_CooperativeMatrixLayoutRowMajor);
        return;
    }
    barrier();
    // Through shared memory and in 16 bytes a thread: NVIDIA's stores of a matrix are of single elements, 50 of 450 us at 4096.
    const uint leaving = gl_SubgroupID * 16 * PO, lane = gl_SubgroupInvocationID;
    Rows result = Rows(to + z * batch_to + (uint64_t(row0 + wm) * ldc + column0 + wn) * 2u);
    [[unroll]] for (uint i = 0; i < FM; ++i) {
        [[unroll]] for (uint j = 0; j < FN; ++j) {
            SUM y = sum[i * FN + j] * alpha;
#ifdef BRAIN
            // to nearest even here: NVIDIA's conversion cuts off (303 became 302)
            for (uint e = 0; e < y.length(); ++e) {
                const uint bits = floatBitsToUint(y[e]);
                if ((bits & 0x7f800000u) != 0x7f800000u) y[e] = uintBitsToFloat((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
            }
#endif
            coopMatStore(STORED(y), tiles, leaving + j * 2, PO, gl_CooperativeMatrixLayoutRowMajor);
        }
        subgroupBarrier();
        [[unroll]] for (uint e = 0; e < WN / 16; ++e) {
            const uint q = e * 32 + lane;
            result.v[(i * 16 + q / (WN / 8)) * (ldc / 8) + q % (WN / 8)] = tiles[leaving + q / (WN / 8) * PO + q % (WN / 8)];
        }
        subgroupBarrier();
    }
}
