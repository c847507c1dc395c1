#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// What GLSL adds to kernels/texts/convolution.h.
layout(constant_id = 1) const uint BM = 64;
layout(constant_id = 2) const uint BN = 64;
layout(constant_id = 3) const uint BK = 16;
layout(constant_id = 4) const uint TM = 8;
layout(constant_id = 5) const uint TN = 8;
layout(constant_id = 6) const uint COUNT = 64; // threads of a group, as constant 0
layout(constant_id = 7) const uint DOUBLE = 0;
layout(constant_id = 8) const uint VECTOR_X = 0;
layout(constant_id = 9) const uint UNIFORM = 0;
layout(constant_id = 10) const uint VECTOR_B = 0;
layout(constant_id = 11) const uint WHOLE = 0;
layout(constant_id = 12) const uint BIAS = 0;
layout(constant_id = 13) const uint TAPS_ACROSS = 3;
layout(constant_id = 14) const int STEP_H = 1;
layout(constant_id = 15) const int STEP_W = 1;
layout(constant_id = 16) const int DILATE_H = 1;
layout(constant_id = 17) const int DILATE_W = 1;
const uint PM = BM / 4 + 1, PN = BN / 4 + 1;
const uint LA = (BM * BK) / (4 * COUNT), LB = (BN * BK + 4 * COUNT - 1) / (4 * COUNT);
const uint DOWN = BM / TM, ACROSS = BN / TN;
const uint LINES = BM > COUNT ? BM / COUNT : 1;
#ifdef TAPS
const uint INFOS = VECTOR_X == 0 ? LINES : LINES > 4 ? LINES / 4 : 1;
#else
const uint INFOS = VECTOR_X != 0 ? LA : LINES;
#endif
layout(push_constant) uniform Parameters {
    uint64_t x; uint64_t b; uint64_t to; uint64_t bias;
#include "../../../kernels/texts/convolution_parameters.h"
};
layout(buffer_reference, std430, buffer_reference_align = WIDTH) buffer Wide { NUMBER v; };
layout(buffer_reference, std430, buffer_reference_align = WIDTH4) buffer Wide4 { NUMBER4 v; };
#ifdef HALF
layout(buffer_reference, std430, buffer_reference_align = SIZE4) buffer Four { uvec2 v; };
#define LOAD4(s) vec4(unpackHalf2x16((s).x), unpackHalf2x16((s).y))
// save_half of four, without branches: with them NVIDIA's driver does not unroll the loops over results, and takes 15 times as long
uvec2 save_four(vec4 v)
{
    const uvec4 bits = floatBitsToUint(v), size = bits & 0x7fffffffu;
    const uvec4 small = uvec4(roundEven(uintBitsToFloat(size) * 16777216.0));
    uvec4 r = (size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13;
    r = mix(r, small, lessThan(size, uvec4(0x38800000u)));
    r = mix(r, uvec4(0x7c00u), greaterThanEqual(size, uvec4(0x477ff000u)));
    r = mix(r, uvec4(0x7e00u), greaterThan(size, uvec4(0x7f800000u))) | ((bits >> 16) & 0x8000u);
    return uvec2(r.x | r.y << 16, r.z | r.w << 16);
}
#define SAVE4(v) save_four(v)
#elif defined(BRAIN)
layout(buffer_reference, std430, buffer_reference_align = SIZE4) buffer Four { uvec2 v; };
vec4 load4(uvec2 s) { return uintBitsToFloat(uvec4(s.x << 16, s.x & 0xffff0000u, s.y << 16, s.y & 0xffff0000u)); }
#define LOAD4(s) load4(s)
#define SAVE4(v) uvec2(save_brain(v.x) | save_brain(v.y) << 16, save_brain(v.z) | save_brain(v.w) << 16)
#else
layout(buffer_reference, std430, buffer_reference_align = SIZE4) buffer Four { NUMBER4 v; };
#define LOAD4(s) (s)
#define SAVE4(v) (v)
#endif
#define PLACE(address, i, size) ((address) + int64_t(i) * (size))
#define X(i) LOAD(Element(PLACE(x, i, SIZE)).v)
#define X4(i) LOAD4(Four(PLACE(x, i, SIZE)).v)
#define B(i) LOAD(Element(PLACE(b, i, SIZE)).v)
#define B4(i) LOAD4(Four(PLACE(b, i, SIZE)).v)
#define BIAS1(i) LOAD(Element(PLACE(bias, i, SIZE)).v)
#define BIAS4(i) LOAD4(Four(PLACE(bias, i, SIZE)).v)
#ifdef TAPS
#define OUT(i, value) Wide(PLACE(to, i, WIDTH)).v = value
#define OUT4(i, value) Wide4(PLACE(to, i, WIDTH)).v = value
#else
#define OUT(i, value) Element(PLACE(to, i, SIZE)).v = SAVE(value)
#define OUT4(i, value) Four(PLACE(to, i, SIZE)).v = SAVE4(value)
#endif
#define PUT_A(line, i, value) tile_a[(line) + ((i) >> 2)][(i) & 3u] = value
#define PACKED(a, b, c, d) NUMBER4(a, b, c, d)
#define SPLAT(value) NUMBER4(value)
#define ZERO NUMBER(0)
#define INT(i) int(i)
#define UINT(i) uint(i)
#define UNROLL [[unroll]]
#define BARRIER barrier()
#define LOCAL gl_LocalInvocationID.x
#define GROUP_X gl_WorkGroupID.x
#define GROUP_Y gl_WorkGroupID.y
#define GROUP_Z gl_WorkGroupID.z
shared NUMBER4 tile_a[BK * PM * (1 + DOUBLE)];
shared NUMBER4 tile_b[BK * PN * (1 + DOUBLE)];
uint divided(uint n, uint magic, uint shift)
{
    uint high, low;
    umulExtended(n, magic, high, low);
    return (high + n) >> shift;
}
void main()
{
#include "../../../kernels/texts/convolution.h"
}
