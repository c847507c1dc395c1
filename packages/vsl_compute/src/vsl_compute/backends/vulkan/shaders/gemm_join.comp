#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// out = alpha * the sum of a batch's partial products + beta * out, in the order of the parts. Parts are dense; z is the batch.
layout(buffer_reference, std430, buffer_reference_align = NUMBER_SIZE) readonly buffer Partial { NUMBER v; };
layout(push_constant) uniform Parameters {
    uint64_t partial; uint64_t to; uint64_t batch_to; // in bytes
    NUMBER alpha; NUMBER beta;
    uint m; uint n; int step_m; int step_n; uint parts;
};
void main()
{
    const uint z = gl_WorkGroupID.z, size = m * n;
    for (uint i = THREAD; i < size; i += THREADS) {
        NUMBER sum = NUMBER(0);
        for (uint s = 0; s < parts; ++s) sum += Partial(partial + (uint64_t(z * parts + s) * size + i) * NUMBER_SIZE).v;
        sum = alpha * sum;
        const uint64_t place = uint64_t(int64_t(i / n) * step_m + int64_t(i % n) * step_n);
        if (beta != NUMBER(0)) sum += beta * LOAD(AT(to + z * batch_to, place));
        AT(to + z * batch_to, place) = SAVE(sum);
    }
}
