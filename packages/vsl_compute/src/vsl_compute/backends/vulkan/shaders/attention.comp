#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// What GLSL adds to kernels/texts/attention.h; one of FORWARD, QUERIES and KEYS is defined.
layout(constant_id = 1) const uint BM = 32;
layout(constant_id = 2) const uint BN = 32;
layout(constant_id = 3) const uint TM = 4;
layout(constant_id = 4) const uint TN = 4;
layout(constant_id = 5) const uint COUNT = 64; // threads of a group, as constant 0
layout(constant_id = 6) const uint E = 64;
layout(constant_id = 7) const uint V = 64;
layout(constant_id = 8) const uint CAUSAL = 0;
layout(constant_id = 9) const uint MASK = 0;
layout(constant_id = 10) const uint WHOLE_E = 0;
layout(constant_id = 11) const uint WHOLE_V = 0;
const uint E4 = (E + 3) / 4, V4 = (V + 3) / 4, PE = E4 | 1, PV = V4 | 1, PM = BM / 4 + 1;
const uint DOWN = BM / TM, ACROSS = BN / TN;
const uint JE = (E4 + ACROSS - 1) / ACROSS, JV = (V4 + ACROSS - 1) / ACROSS;
#define GIVEN(type, name) type name;
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Parameters {
#include "../../../kernels/texts/attention_parameters.h"
};
#undef GIVEN
layout(push_constant) uniform Pushed {
    uint64_t parameters; uint64_t a; uint64_t b; uint64_t c; uint64_t d; uint64_t mask; uint64_t lse_at; uint64_t delta_at;
    uint64_t to; uint64_t more;
};
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Number { float v; };
layout(buffer_reference, std430, buffer_reference_align = 1) readonly buffer Byte { uint8_t v; };
#ifdef HALF
layout(buffer_reference, std430, buffer_reference_align = SIZE4) buffer Four { uvec2 v; };
#define LOAD4(s) vec4(unpackHalf2x16((s).x), unpackHalf2x16((s).y))
#define SAVE4(v) uvec2(save_half(v.x) | save_half(v.y) << 16, save_half(v.z) | save_half(v.w) << 16)
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
#define A(i) LOAD(Element(PLACE(a, i, SIZE)).v)
#define B(i) LOAD(Element(PLACE(b, i, SIZE)).v)
#define C(i) LOAD(Element(PLACE(c, i, SIZE)).v)
#define D(i) LOAD(Element(PLACE(d, i, SIZE)).v)
#define A4(i) LOAD4(Four(PLACE(a, i, SIZE)).v)
#define B4(i) LOAD4(Four(PLACE(b, i, SIZE)).v)
#define C4(i) LOAD4(Four(PLACE(c, i, SIZE)).v)
#define D4(i) LOAD4(Four(PLACE(d, i, SIZE)).v)
#define MASK_BOOL(i) (uint(Byte(PLACE(mask, i, 1)).v) != 0u)
#define MASK_FLOAT(i) Number(PLACE(mask, i, 4)).v
#define LSE(i) Number(PLACE(lse_at, i, 4)).v
#define PUT_LSE(i, value) Number(PLACE(lse_at, i, 4)).v = value
#define DELTA(i) Number(PLACE(delta_at, i, 4)).v
#define TO(i, value) Element(PLACE(to, i, SIZE)).v = SAVE(value)
#define TO4(i, value) Four(PLACE(to, i, SIZE)).v = SAVE4(value)
#define MORE(i, value) Element(PLACE(more, i, SIZE)).v = SAVE(value)
#define MORE4(i, value) Four(PLACE(more, i, SIZE)).v = SAVE4(value)
#define P(n, m) tile_p[(n) * PM + ((m) >> 2)][(m) & 3u]
#define PACKED(a, b, c, d) NUMBER4(a, b, c, d)
#define SPLAT(value) NUMBER4(value)
#define ZERO NUMBER(0)
#define NONE uintBitsToFloat(0xff800000u)
#define INT(i) int(i)
#define UNROLL [[unroll]]
#define BARRIER barrier()
#define LOCAL gl_LocalInvocationID.x
#define GROUP_X gl_WorkGroupID.x
#define GROUP_Y gl_WorkGroupID.y
#define EXP(x) exp_of(x)
#define LOG(x) log_of(x)
#ifdef FORWARD
shared NUMBER4 tile_c[BN * (PE > PV ? PE : PV)];
shared NUMBER peak_of[BM], total_of[BM], factor_of[BM];
#else
shared NUMBER4 tile_b[BM * PV], tile_c[BN * PE], tile_d[BN * PV];
#endif
#ifdef KEYS
shared NUMBER4 tile_q[BN * PM];
#endif
shared NUMBER4 tile_a[BM * PE], tile_p[BN * PM];
// Vulkan promises little of exp and log. Cody & Waite's reduction and six terms: 1 ULP; what is below 2^-125 is 0.
// NaN goes first, by its bits: what a comparison says of it is the driver's to choose.
float exp_of(float x)
{
    if ((floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u) return x;
    if (x < -86.6) return 0.0;
    if (x > 88.7) return uintBitsToFloat(0x7f800000u);
    const float n = roundEven(x * 1.44269502), r = fma(n, -1.42860677e-6, fma(n, -0.693145752, x));
    float p = fma(r, 1.3888889e-3, 8.3333333e-3);
    p = fma(r, p, 4.1666667e-2);
    p = fma(r, p, 1.6666667e-1);
    p = fma(r, p, 0.5);
    p = fma(r * r, p, r) + 1.0;
    return p * uintBitsToFloat(uint(int(n) + 127) << 23);
}
// a step of Newton's mends what the device's log left; of a sum of weights, from 1 on
float log_of(float x)
{
    const float y = log(x);
    return y < 80.0 ? y + fma(x, exp_of(-y), -1.0) : y;
}
void main()
{
    Parameters given = Parameters(parameters);
#define GIVEN(type, name) const type name = given.name;
#include "../../../kernels/texts/attention_parameters.h"
#undef GIVEN
#include "../../../kernels/texts/attention.h"
}
