// What every kernel here begins with. Addresses are bytes; indices within one launch are below 2^31.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_16bit_storage : enable
#extension GL_EXT_shader_8bit_storage : enable
#extension GL_EXT_control_flow_attributes : enable
layout(local_size_x_id = 0) in;
#define THREAD gl_GlobalInvocationID.x
#define THREADS (gl_NumWorkGroups.x * gl_WorkGroupSize.x)

// STORED is what memory holds, SIZE its bytes, NUMBER what it is computed in; LOAD and SAVE convert.
#ifdef STORED
layout(buffer_reference, std430, buffer_reference_align = SIZE) buffer Element { STORED v; };
#define AT(address, i) Element((address) + uint64_t(i) * SIZE).v
#endif

#ifdef HALF
float load_half(uint bits) { return unpackHalf2x16(bits).x; }
uint save_half(float x)
{
    // to nearest even; packHalf2x16 may round otherwise
    uint bits = floatBitsToUint(x), sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return sign | 0x7e00u;
    if (size >= 0x477ff000u) return sign | 0x7c00u;
    if (size < 0x38800000u) return sign | uint(roundEven(uintBitsToFloat(size) * 16777216.0));
    return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13);
}
#define LOAD(s) load_half(uint(s))
#define SAVE(c) STORED(save_half(c))
#elif defined(BRAIN)
uint save_brain(float x)
{
    uint bits = floatBitsToUint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
#define LOAD(s) uintBitsToFloat(uint(s) << 16)
#define SAVE(c) STORED(save_brain(c))
#else
#define LOAD(s) NUMBER(s)
#define SAVE(c) STORED(c)
#endif

// The first index that is out of range in any kernel since the host last looked: which launch, the axis' size, the index.
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Report { uint launch; uint size; int64_t index; };
void report_index(uint64_t report, uint launch, uint size, int64_t index)
{
    if (atomicCompSwap(Report(report).launch, 0u, launch) == 0u) {
        Report(report).size = size;
        Report(report).index = index;
    }
}
