// Declarations shared by every shader. kernels/kernel.py reads the same macros from the .comp
// file, so a binding, its access and the push layout are written once, here in the shader.
//
//   READS(b, T, name)    buffer that is only read         name[] of T
//   WRITES(b, T, name)   buffer that is only written
//   UPDATES(b, T, name)  buffer that is read and written
//   SHARES(b, T, name)   read and written by several workgroups of one dispatch
//   WEIGHT(b, name)      weight arena, as 16-byte vectors name4[] and as words name[]
//   CACHE(b, name)       key or value cache that is read: name[] of uvec4, name2[] of uvec2,
//                        name1[] of uint
//   PUSH { ... }         push words in order; weights add name_p0..name_p3 (plane offsets, words),
//                        key/value caches add name_base (words) by naming them here

#define READS(b, T, name) layout(std430, set = 0, binding = b) readonly buffer name##_buf { T name[]; };
#define WRITES(b, T, name) layout(std430, set = 0, binding = b) writeonly buffer name##_buf { T name[]; };
#define UPDATES(b, T, name) layout(std430, set = 0, binding = b) buffer name##_buf { T name[]; };
#define SHARES(b, T, name) \
    layout(std430, set = 0, binding = b) coherent buffer name##_buf { T name[]; };
#define WEIGHT(b, name) \
    layout(std430, set = 0, binding = b) readonly buffer name##_buf4 { uvec4 name##4[]; }; \
    layout(std430, set = 0, binding = b) readonly buffer name##_buf { uint name[]; };
#define CACHE(b, name) \
    layout(std430, set = 0, binding = b) readonly buffer name##_buf { uvec4 name[]; }; \
    layout(std430, set = 0, binding = b) readonly buffer name##_buf2 { uvec2 name##2[]; }; \
    layout(std430, set = 0, binding = b) readonly buffer name##_buf1 { uint name##1[]; };
#define PUSH layout(push_constant) uniform push_block
#define PLANES(name) uint name##_p0; uint name##_p1; uint name##_p2; uint name##_p3

#extension GL_EXT_control_flow_attributes : require
// for loops over arrays that have to stay in registers
#define FLAT [[unroll]]
