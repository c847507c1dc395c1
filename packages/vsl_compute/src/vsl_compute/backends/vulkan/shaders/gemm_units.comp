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
// tile's, and all addresses and strides of 16 bytes.
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
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Elements { ELEMENT v[]; };
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
shared uvec4 tiles[SIZE_A + ROWS_B * PB];

void main()
{
    const uint t = gl_LocalInvocationID.x, z = gl_WorkGroupID.z, batch = z / parts, first = z % parts * part;
    const uint row0 = gl_WorkGroupID.y * BM, column0 = gl_WorkGroupID.x * BN;
    const uint step_a = TURN_A != 0u ? lda : 1u, step_b = TURN_B == 0u ? ldb : 1u;
    uint64_t base_a = a + batch * batch_a + (uint64_t(row0) * (TURN_A != 0u ? 1u : lda) + uint64_t(first) * step_a) * 2u;
    uint64_t base_b = b + batch * batch_b + (uint64_t(column0) * (TURN_B == 0u ? 1u : ldb) + uint64_t(first) * step_b) * 2u;
    const uint wm = gl_SubgroupID / (BN / WN) * WM, wn = gl_SubgroupID % (BN / WN) * WN;
    SUM sum[FM * FN];
    [[unroll]] for (uint i = 0; i < FM * FN; ++i) sum[i] = SUM(0.0);
    uvec4 next_a[LA], next_b[LB];
#define FETCH \
    [[unroll]] for (uint l = 0; l < LA; ++l) { \
        const uint q = l * COUNT + t; \
        next_a[l] = Eight(base_a + uint64_t(q / (COLUMNS_A / 8) * lda + q % (COLUMNS_A / 8) * 8) * 2u).v; \
    } \
    [[unroll]] for (uint l = 0; l < LB; ++l) { \
        const uint q = l * COUNT + t; \
        next_b[l] = Eight(base_b + uint64_t(q / (COLUMNS_B / 8) * ldb + q % (COLUMNS_B / 8) * 8) * 2u).v; \
    }
#define PUT \
    [[unroll]] for (uint l = 0; l < LA; ++l) { \
        const uint q = l * COUNT + t; \
        tiles[q / (COLUMNS_A / 8) * PA + q % (COLUMNS_A / 8)] = next_a[l]; \
    } \
    [[unroll]] for (uint l = 0; l < LB; ++l) { \
        const uint q = l * COUNT + t; \
        tiles[SIZE_A + q / (COLUMNS_B / 8) * PB + q % (COLUMNS_B / 8)] = next_b[l]; \
    } \
    barrier();
    FETCH
    PUT
    for (uint left = part;; left -= BK) {
        const bool more = left > BK;
        if (more) {
            base_a += uint64_t(step_a) * BK * 2u;
            base_b += uint64_t(step_b) * BK * 2u;
            FETCH
        }
        [[unroll]] for (uint kk = 0; kk < BK; kk += 16) {
            OF_A fa[FM];
            OF_B fb;
            [[unroll]] for (uint i = 0; i < FM; ++i) {
                if (TURN_A != 0u) coopMatLoad(fa[i], tiles, kk * PA + (wm + i * 16) / 8, PA, gl_CooperativeMatrixLayoutColumnMajor);
                else coopMatLoad(fa[i], tiles, (wm + i * 16) * PA + kk / 8, PA, gl_CooperativeMatrixLayoutRowMajor);
            }
            [[unroll]] for (uint j = 0; j < FN; ++j) {
                if (TURN_B != 0u) coopMatLoad(fb, tiles, SIZE_A + (wn + j * 16) * PB + kk / 8, PB, gl_CooperativeMatrixLayoutColumnMajor);
                else coopMatLoad(fb, tiles, SIZE_A + kk * PB + (wn + j * 16) / 8, PB, gl_CooperativeMatrixLayoutRowMajor);
                [[unroll]] for (uint i = 0; i < FM; ++i) sum[i * FN + j] = coopMatMulAdd(fa[i], fb, sum[i * FN + j]);
            }
        }
        if (!more) break;
        barrier();
        PUT
    }
    const uint64_t place = uint64_t(row0 + wm) * ldc + column0 + wn;
    if (PARTIAL != 0u) {
        Sums partial = Sums(to + z * batch_to + place * 4u);
        [[unroll]] for (uint i = 0; i < FM; ++i) [[unroll]] for (uint j = 0; j < FN; ++j)
            coopMatStore(sum[i * FN + j], partial.v, i * 16 * ldc + j * 16, ldc, gl_CooperativeMatrixLayoutRowMajor);
        return;
    }
    Elements result = Elements(to + z * batch_to + place * 2u);
    [[unroll]] for (uint i = 0; i < FM; ++i) [[unroll]] for (uint j = 0; j < FN; ++j) {
        SUM y = sum[i * FN + j] * alpha;
#ifdef BRAIN
        // to nearest even here: NVIDIA's conversion cuts off (303 became 302)
        for (uint e = 0; e < y.length(); ++e) {
            const uint bits = floatBitsToUint(y[e]);
            if ((bits & 0x7f800000u) != 0x7f800000u) y[e] = uintBitsToFloat((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
        }
#endif
        coopMatStore(STORED(y), result.v, i * 16 * ldc + j * 16, ldc, gl_CooperativeMatrixLayoutRowMajor);
    }
}
