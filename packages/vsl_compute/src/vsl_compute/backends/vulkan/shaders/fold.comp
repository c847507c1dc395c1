#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// Each element of out is the sum of the window entries that look at it: those of the taps t and positions p with
// p * step + t * dilation == h + origin along each folded axis. With INDEX only the entries whose window chose that tap.
const uint FREE = 5, FOLDED = 3;
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Folding {
    uint size[FREE]; int out_stride[FREE]; int x_stride[FREE];
    uint extent[FOLDED]; int out_step[FOLDED]; int x_step[FOLDED];
    int taps[FOLDED]; int tap_stride[FOLDED]; int step[FOLDED]; int dilation[FOLDED]; int positions[FOLDED]; int origin[FOLDED];
};
#ifdef INDEX
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Chosen { int v; };
layout(push_constant) uniform Parameters { uint64_t to; uint64_t x; uint64_t folding; uint64_t index; uint count; };
#else
layout(push_constant) uniform Parameters { uint64_t to; uint64_t x; uint64_t folding; uint count; };
#endif
// The taps that look at place h: every `step`-th where taps are neighbours, else each is asked.
#define TAPS(d) for (int t##d = f.dilation[d] == 1 ? h[d] % f.step[d] : 0; t##d < f.taps[d]; t##d += f.dilation[d] == 1 ? f.step[d] : 1)
#define LOOKS(d) const int s##d = h[d] - t##d * f.dilation[d], p##d = s##d / f.step[d]; \
    if (s##d < 0) break; if (p##d * f.step[d] != s##d || p##d >= f.positions[d]) continue
#define FROM(d) (int64_t(p##d) * f.x_step[d] + int64_t(t##d) * f.tap_stride[d])
void main()
{
    Folding f = Folding(folding);
    for (uint i = THREAD; i < count; i += THREADS) {
        int64_t at = 0, begin = 0;
        uint rest = i;
        int h[FOLDED];
        [[unroll]] for (int d = int(FOLDED) - 1; d >= 0; --d) {
            h[d] = int(rest % f.extent[d]);
            rest /= f.extent[d];
            at += int64_t(h[d]) * f.out_step[d];
            h[d] += f.origin[d];
        }
        for (int d = int(FREE) - 1; d > 0 && rest > 0; --d) {
            const uint j = rest % f.size[d];
            rest /= f.size[d];
            at += int64_t(j) * f.out_stride[d];
            begin += int64_t(j) * f.x_stride[d];
        }
        at += int64_t(rest) * f.out_stride[0];
        begin += int64_t(rest) * f.x_stride[0];
        NUMBER sum = NUMBER(0);
        TAPS(0) {
            LOOKS(0);
            TAPS(1) {
                LOOKS(1);
                TAPS(2) {
                    LOOKS(2);
                    const int64_t from = begin + FROM(0) + FROM(1) + FROM(2);
#ifdef INDEX
                    if (Chosen(index + uint64_t(from) * 4).v != (t0 * f.taps[1] + t1) * f.taps[2] + t2) continue;
#endif
                    sum += LOAD(AT(x, from));
                }
            }
        }
        AT(to, at) = SAVE(sum);
    }
}
