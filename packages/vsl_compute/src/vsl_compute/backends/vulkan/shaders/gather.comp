#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// out[b, i, j] = x[b, index[b, i], j], all dense; an index outside [0, rows) is reported and gives 0.
layout(buffer_reference, std430, buffer_reference_align = INDEX_SIZE) buffer Index { INDEX v; };
layout(push_constant) uniform Parameters {
    uint64_t to; uint64_t x; uint64_t index; uint64_t report; uint count; uint inner; uint places; uint rows; uint launch;
};
void main()
{
    for (uint t = THREAD; t < count; t += THREADS) {
        const uint place = t / inner;
        const INDEX k = Index(index + uint64_t(place) * INDEX_SIZE).v; // compared as it is: lavapipe loses the sign of a wider one
        NUMBER value = NUMBER(0);
        if (k < INDEX(0) || k >= INDEX(rows)) report_index(report, launch, rows, int64_t(k));
        else value = NUMBER(AT(x, (uint64_t(place / places) * rows + uint64_t(k)) * inner + t % inner));
        AT(to, t) = STORED(value);
    }
}
