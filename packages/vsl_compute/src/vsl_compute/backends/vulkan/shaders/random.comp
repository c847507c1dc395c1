#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// Philox 4x32-10 (Salmon, Moraes, Dror & Shaw 2011): a thread makes one block of four words and the elements that take them. A
// short uniform number has as many digits as its dtype keeps: the rest of the word is cut, not rounded, so none becomes 1.
layout(push_constant) uniform Parameters {
    uint64_t to; uint count; uint blocks; uint key0; uint key1; uint c0; uint c1; uint c2; uint c3; uint digits;
};
#define BITS 0
#define UNIFORM 1
#define NORMAL 2
#if KIND == NORMAL
// log(m / 2^32) for m in [1, 2^32], given as m - 1: e ln 2 + log(1 + f) by fdlibm's series (e_log.c, Sun Microsystems 1993).
NUMBER log_of(uint word)
{
    NUMBER f, e = NUMBER(0);
    if (word >= 0xb504f333u) f = -NUMBER(~word) * NUMBER(2.3283064365386963e-10LF); // near 1: exact, where m / 2^32 would lose digits
    else {
        const uint m = word + 1u;
        const int top = findMSB(m);
        NUMBER part = NUMBER(m) / NUMBER(uint64_t(1) << top); // in [1, 2]
        int power = top - 32;
        if (part > NUMBER(1.4142135623730951LF)) { part *= NUMBER(0.5LF); power += 1; }
        f = part - NUMBER(1);
        e = NUMBER(power);
    }
    const NUMBER s = f / (NUMBER(2) + f), z = s * s, half_ = NUMBER(0.5LF) * f * f;
    const NUMBER r = z * (NUMBER(6.666666666666735130e-01LF) + z * (NUMBER(3.999999999940941908e-01LF) + z * (NUMBER(2.857142874366239149e-01LF)
        + z * (NUMBER(2.222219843214978396e-01LF) + z * (NUMBER(1.818357216161805012e-01LF) + z * (NUMBER(1.531383769920937332e-01LF)
        + z * NUMBER(1.479819860511658591e-01LF)))))));
    return e * NUMBER(6.93147180369123816490e-01LF) - ((half_ - (s * (half_ + r) + e * NUMBER(1.90821492927058770002e-10LF))) - f);
}
// cos(2 pi word / 2^32): the nearest quarter turn is taken off in integers, the rest by fdlibm's k_cos.c and k_sin.c
NUMBER cos_of(uint word)
{
    const uint quarter = (word + 0x20000000u) >> 30;
    const NUMBER r = NUMBER(int(word - (quarter << 30))) * NUMBER(1.4629180792671596e-09LF), z = r * r; // 2 pi / 2^32
    const NUMBER c = NUMBER(1) - NUMBER(0.5LF) * z + z * z * (NUMBER(4.16666666666666019037e-02LF) + z * (NUMBER(-1.38888888888741095749e-03LF)
        + z * (NUMBER(2.48015872894767294178e-05LF) + z * (NUMBER(-2.75573143513906633035e-07LF) + z * (NUMBER(2.08757232129817482790e-09LF) + z * NUMBER(-1.13596475577881948265e-11LF))))));
    const NUMBER s = r + r * z * (NUMBER(-1.66666666666666324348e-01LF) + z * (NUMBER(8.33333333332248946124e-03LF)
        + z * (NUMBER(-1.98412698298579493134e-04LF) + z * (NUMBER(2.75573137070700676789e-06LF) + z * (NUMBER(-2.50507602534068634195e-08LF) + z * NUMBER(1.58969099521155010221e-10LF))))));
    switch (quarter & 3u) {
    case 0u: return c;
    case 1u: return -s;
    case 2u: return -c;
    }
    return s;
}
#endif
void main()
{
    for (uint b = THREAD; b < blocks; b += THREADS) {
        const uint64_t number = ((uint64_t(c1) << 32) | c0) + b;
        uvec4 w = uvec4(uint(number), uint(number >> 32), c2, c3);
        uvec2 k = uvec2(key0, key1);
        for (int r = 0; r < 10; ++r) {
            uint high0, low0, high1, low1;
            umulExtended(0xD2511F53u, w.x, high0, low0);
            umulExtended(0xCD9E8D57u, w.z, high1, low1);
            w = uvec4(high1 ^ w.y ^ k.x, low1, high0 ^ w.w ^ k.y, low0);
            k += uvec2(0x9E3779B9u, 0xBB67AE85u);
        }
#if KIND == BITS || (KIND == UNIFORM && SIZE == 4)
        for (uint e = 0; e < 4u; ++e) {
            const uint i = b * 4u + e;
#if KIND == BITS
            if (i < count) AT(to, i) = w[e];
#else
            if (i < count) AT(to, i) = float(w[e] >> (32u - digits)) / float(1u << digits);
#endif
        }
#else
        for (uint e = 0; e < 2u; ++e) {
            const uint i = b * 2u + e, u = w[2u * e], v = w[2u * e + 1u];
#if KIND == UNIFORM
            if (i < count) AT(to, i) = (double(u >> 5) * 67108864.0LF + double(v >> 6)) * 1.1102230246251565e-16LF;
#else
            if (i < count) AT(to, i) = sqrt(NUMBER(-2) * log_of(u)) * cos_of(v);
#endif
        }
#endif
    }
}
