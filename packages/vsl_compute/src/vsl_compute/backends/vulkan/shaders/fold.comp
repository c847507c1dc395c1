#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// Each element of out is the sum of the window entries that look at it; axes that are not folded have one tap.
const uint RANK = 6;
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Folding {
    uint rank; uint entries;
    int size[RANK]; int out_stride[RANK]; int x_stride[RANK];
    int taps[RANK]; int tap_stride[RANK]; int step[RANK]; int dilation[RANK]; int positions[RANK];
};
layout(push_constant) uniform Parameters { uint64_t to; uint64_t x; uint64_t folding; uint count; };
void main()
{
    Folding f = Folding(folding);
    const uint rank = f.rank, entries = f.entries;
    for (uint t = THREAD; t < count; t += THREADS) {
        int coordinate[RANK];
        int64_t at = 0;
        uint rest = t;
        for (int d = int(rank) - 1; d >= 0; --d) {
            coordinate[d] = int(rest % uint(f.size[d]));
            rest /= uint(f.size[d]);
            at += int64_t(coordinate[d]) * f.out_stride[d];
        }
        NUMBER sum = NUMBER(0);
        for (uint e = 0; e < entries; ++e) {
            uint left = e;
            int64_t from = 0;
            bool looks = true;
            for (int d = int(rank) - 1; d >= 0; --d) {
                const int tap = int(left % uint(f.taps[d]));
                left /= uint(f.taps[d]);
                const int start = coordinate[d] - tap * f.dilation[d], position = start / f.step[d];
                looks = looks && start >= 0 && position * f.step[d] == start && position < f.positions[d];
                from += int64_t(position) * f.x_stride[d] + int64_t(tap) * f.tap_stride[d];
            }
            if (looks) sum += LOAD(AT(x, from));
        }
        AT(to, at) = SAVE(sum);
    }
}
