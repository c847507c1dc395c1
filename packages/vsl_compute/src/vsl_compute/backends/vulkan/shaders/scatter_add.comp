#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// out[b, index[b, i], j] += x[b, i, j] in the order of i: a thread owns a share of the rows of one (b, j) and looks at every index.
layout(buffer_reference, std430, buffer_reference_align = INDEX_SIZE) buffer Index { INDEX v; };
layout(push_constant) uniform Parameters {
    uint64_t to; uint64_t x; uint64_t index; uint64_t report;
    uint count; uint inner; uint places; uint rows; uint share; uint shares; uint launch;
};
void main()
{
    for (uint t = THREAD; t < count; t += THREADS) {
        const uint j = t % inner, part = (t / inner) % shares, b = t / (inner * shares);
        const int64_t first = int64_t(part) * share, last = min(first + share, int64_t(rows));
        for (uint i = 0; i < places; ++i) {
            const uint64_t place = uint64_t(b) * places + i;
            const INDEX k = Index(index + place * INDEX_SIZE).v; // compared as it is, as in gather
            if (k < INDEX(0) || k >= INDEX(rows)) report_index(report, launch, rows, int64_t(k));
            else if (int64_t(k) >= first && int64_t(k) < last) {
                const uint64_t at = (uint64_t(b) * rows + uint64_t(k)) * inner + j;
                AT(to, at) += AT(x, place * inner + j);
            }
        }
    }
}
