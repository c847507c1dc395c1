#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// One pass of a merge sort of rows of n elements: sorted runs of `width` become runs of twice that. Indices move, not values:
// `from` and `to` hold where each element came from; the first pass takes the elements as they are. A thread finds its element's
// place by bisection in the other run; of equals the left run's go first, so the order is stable.
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Place { uint v; };
layout(push_constant) uniform Parameters {
    uint64_t x; uint64_t from; uint64_t to; uint count; uint n; uint width; uint first; uint kind; uint infinity; uint descending;
};
const uint TOP = 8 * SIZE - 1;
// An unsigned number in the order of the values: kind 0 is unsigned, 1 signed, 2 floating (NaN above all, whichever way).
KEY key_of(uint row, uint place)
{
    KEY bits = KEY(AT(x, uint64_t(row) * n + place));
    const KEY sign = KEY(1) << TOP, all = (sign - KEY(1)) | sign;
    if (kind == 1u) bits ^= sign;
    if (kind == 2u) {
        const KEY size = bits & ~sign & all;
#if SIZE == 8
        if (size > (KEY(infinity) << 32)) return ~KEY(0);
#else
        if (size > KEY(infinity)) return ~KEY(0);
#endif
        if (size == KEY(0)) bits = KEY(0);
        bits = (bits & sign) != KEY(0) ? ~bits & all : bits | sign;
    }
    return descending != 0u ? ~bits & all : bits;
}
uint origin(uint row, uint place) { return first != 0u ? place : Place(from + (uint64_t(row) * n + place) * 4).v; }
void main()
{
    for (uint t = THREAD; t < count; t += THREADS) {
        const uint row = t / n, j = t % n, begin = j / (2u * width) * (2u * width);
        const uint middle = min(begin + width, n), end = min(middle + width, n);
        const bool left = j < middle;
        const uint mine = origin(row, j);
        const KEY key = key_of(row, mine);
        uint low = left ? middle : begin, high = left ? end : middle;
        const uint start = low;
        while (low < high) {
            const uint half_ = low + (high - low) / 2u;
            const KEY other = key_of(row, origin(row, half_));
            if (left ? other < key : other <= key) low = half_ + 1u;
            else high = half_;
        }
        const uint place = begin + (j - (left ? begin : middle)) + (low - start);
        Place(to + (uint64_t(row) * n + place) * 4).v = mine;
    }
}
